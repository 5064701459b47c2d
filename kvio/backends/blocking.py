"""Makes a backend of a way to read that returns only when the bytes have arrived."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kvio.backends.config import BackendConfig
from kvio.protocol import Arrival, Backend, HostTarget, KVIOError, Read, Target, Witness


class Reader(Protocol):
    """Reads into host memory, one job at a time."""

    name: str

    def open(self, path: Path) -> None:
        """Open `path` for `read`."""

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes that arrived in `target`; all reads are of opened paths.

        Raises:
            ShortReadError: a read gave fewer bytes than asked.
            KVIOError: the file is gone, not permitted, not readable this way.
        """

    def shut(self, path: Path) -> None:
        """Close `path`."""

    def close(self) -> None:
        """Close every file; must be safe to call twice."""


class BlockingBackend:
    """One job in flight, read while it is waited for; queue depth comes from threads."""

    queue_depth = 1
    reads_at_once: int | None = None
    notices: tuple[str, ...] = ()

    def __init__(self, reader: Reader) -> None:
        self.name = reader.name
        self._reader = reader
        self._submitted: tuple[int, Sequence[Read], memoryview] | None = None

    def attach(self, targets: Sequence[Target]) -> None:
        """Register nothing."""

    def open(self, path: Path) -> None:
        """Open the file."""
        self._reader.open(path)

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Keep the job for `wait`."""
        if self._submitted is not None:
            raise KVIOError(f"{self.name} reads one job at a time; wait for the one before")
        if not isinstance(target, HostTarget):
            raise KVIOError(f"{self.name} reads into host memory only")
        self._submitted = (ticket, reads, target.view)

    def wait(self) -> Sequence[Arrival]:
        """Read the job."""
        if self._submitted is None:
            raise KVIOError(f"{self.name}: nothing is in flight")
        (ticket, reads, view), self._submitted = self._submitted, None
        return (Arrival(ticket, self._reader.read(reads, view)),)

    def take_way(self) -> str | None:
        """What the reader saw, if it looks."""
        return self._reader.take_way() if isinstance(self._reader, Witness) else None

    def shut(self, path: Path) -> None:
        """Close the file."""
        self._reader.shut(path)

    def drain(self) -> None:
        """Forget a job that was never begun."""
        self._submitted = None

    def close(self) -> None:
        """Close every file."""
        self.drain()
        self._reader.close()


def blocking(make_reader: Callable[[BackendConfig], Reader]) -> Callable[[BackendConfig], Backend]:
    """Makes backends of such readers."""
    return lambda setting: BlockingBackend(make_reader(setting))
