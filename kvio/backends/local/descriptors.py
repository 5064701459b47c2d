"""File descriptors that all reading threads of a process share, so that none runs out of them."""

import resource
import threading
import weakref

MOST = 8192  # files open at once do not pay beyond that: 32 for each of 240 threads
KEPT_FREE = 256  # for all else: pipes, sockets, rings, a GPU's driver, what is being written


def raise_limit(most: int = MOST) -> int:
    """Raise this process's own limit to the one that it may not exceed, or to `most`; gives what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class Descriptors:
    """What the holders of this process may keep open, each of them the same.

    Args:
        most: for all holders; None for what the process's limit allows when a holder joins.

    Attributes:
        share: descriptors for each holder, one at least: without any, nothing could be read.
    """

    def __init__(self, most: int | None = None) -> None:
        self._fixed = most
        self._most = self.share = most or 1
        self._holders: weakref.WeakSet[object] = weakref.WeakSet()
        self._num_taken = 0
        self._lock = threading.Lock()

    def join(self, holder: object) -> None:
        """From now on `holder` has a share."""
        with self._lock:
            self._holders.add(holder)
            self._most = _allowed() if self._fixed is None else self._fixed
            self._divide()

    def leave(self, holder: object) -> None:
        """The others share what it had; safe to call twice."""
        with self._lock:
            self._holders.discard(holder)
            self._divide()

    def _divide(self) -> None:
        self.share = max(1, self._most // max(1, len(self._holders)))

    @property
    def are_gone(self) -> bool:
        """All are taken: by holders that have not opened anything since their share became smaller."""
        return self._num_taken >= self._most

    def take(self, number: int = 1) -> None:
        """So many have been opened."""
        with self._lock:
            self._num_taken += number

    def give_back(self, number: int = 1) -> None:
        """So many have been closed."""
        with self._lock:
            self._num_taken -= number


def _allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
    return max(1, limit - min(KEPT_FREE, limit // 2))


SHARED = Descriptors()  # of this process
