"""Files that stay open between reads.

File descriptors that all reading threads of a process share, so that none runs out of them.
"""

import errno
import fcntl
import os
import resource
import threading
import weakref
from collections import Counter, OrderedDict
from pathlib import Path

from kvio.protocol import KVIOError

MAX_KEPT_OPEN = 8192  # files open at once do not pay beyond that: 32 for each of 240 threads
KEPT_FREE = 256  # for all else: pipes, sockets, rings, a GPU's driver, what is being written


def raise_limit(most: int = MAX_KEPT_OPEN) -> int:
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
    limit = MAX_KEPT_OPEN if soft == resource.RLIM_INFINITY else min(soft, MAX_KEPT_OPEN)
    return max(1, limit - min(KEPT_FREE, limit // 2))


SHARED = Descriptors()  # of this process


MAX_OPEN_FILES = 32  # per thread; fewer where the limit of the process leaves each thread less
REMEDIES = {
    errno.EMFILE: "; too many open files: raise ulimit -n or use fewer threads",
    errno.ENFILE: "; the system has no more open files",
    errno.EINVAL: "; this file system refuses O_DIRECT: read buffered, or use another directory",
}


class OpenedFiles:
    """Descriptors by path; the least recently used are closed first, but none that is held.

    Args:
        direct: open with O_DIRECT.
        most: files that are kept open, where the threads' common share allows it.
        descriptors: what all threads share.
    """

    def __init__(
        self, *, direct: bool, most: int = MAX_OPEN_FILES, descriptors: Descriptors = SHARED
    ) -> None:
        self._direct = direct
        self._most = most
        self._opened: OrderedDict[Path, int] = OrderedDict()
        self._held: Counter[Path] = Counter()
        self._descriptors = descriptors
        descriptors.join(self)

    def open(self, path: Path) -> None:
        """Open `path`, and under O_DIRECT check that the descriptor really has it.

        Raises:
            KVIOError: gone, not permitted, too many open files, or O_DIRECT refused.
        """
        if path in self._opened:
            self._opened.move_to_end(path)
            return
        self._make_room()
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self._direct else 0)
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}{REMEDIES.get(error.errno or 0, '')}") from error
        self._descriptors.take()
        self._opened[path] = descriptor
        if self._direct and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise KVIOError(f"{path}: opened, but without O_DIRECT; read buffered, or use another directory")

    def descriptor(self, path: Path) -> int:
        """Of an opened path."""
        return self._opened[path]

    def is_full(self, num_open: int) -> bool:
        """Whether one of `num_open` files has to be closed before another is opened, as many threads as there are."""
        return num_open >= min(self._most, self._descriptors.share) or self._descriptors.are_gone

    def _make_room(self) -> None:
        """Close files until one more may be opened; a held one never."""
        while self.is_full(len(self._opened)):
            oldest = next((path for path in self._opened if not self._held[path]), None)
            if oldest is None:
                return
            self.shut(oldest)

    def hold(self, path: Path) -> None:
        """Keep `path` open while a read of it is in flight; once for each `let_go`."""
        self._held[path] += 1

    def let_go(self, path: Path) -> None:
        """A read of `path` has come back."""
        self._held[path] -= 1

    def shut(self, path: Path) -> None:
        """Close `path`, if it is open and not held."""
        if path in self._opened and not self._held[path]:
            os.close(self._opened.pop(path))
            self._descriptors.give_back()

    def close(self) -> None:
        """Close every file; safe to call twice."""
        self._held.clear()
        for path in list(self._opened):
            self.shut(path)
        self._descriptors.leave(self)
