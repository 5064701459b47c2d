"""What a way to read must offer.

Page-aligned memory to read into, for trials and for placing: without torch, which takes seconds to import.
"""

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from kvio.errors import KVIOError as KVIOError

if TYPE_CHECKING:
    import torch  # the command line lists backends without it

CacheState = Literal["cold", "warm", "direct", "unverified"]  # of the page cache before a read
PROVING_SHARE = 0.98  # of the payload that counters must have seen; metadata and read-ahead blur the rest
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


class ShortReadError(KVIOError):
    """Fewer bytes arrived than were asked for; counting them would make the storage look fast."""


@dataclass(frozen=True, slots=True)
class Read:
    """`num_bytes` of file `path` from `file_offset`, to go to `buffer_offset` of the target."""

    path: Path
    file_offset: int
    num_bytes: int
    buffer_offset: int


@dataclass(frozen=True, slots=True)
class HostTarget:
    """Page-aligned host memory that one job is read into.

    Args:
        slot: its number among the targets of its thread: the index of a registered buffer.
        address: of the first byte.
        view: the memory, writable.
    """

    slot: int
    address: int
    view: memoryview

    @property
    def num_bytes(self) -> int:
        """Size."""
        return len(self.view)


@dataclass(frozen=True, slots=True)
class DeviceTarget:
    """Device memory that one job is read into.

    Args:
        slot: its number among the targets of its thread.
        tensor: the memory, (num_bytes,) of uint8; on the host where the device is the CPU.
    """

    slot: int
    tensor: "torch.Tensor"

    @property
    def address(self) -> int:
        """Of the first byte, on the device."""
        return self.tensor.data_ptr()

    @property
    def num_bytes(self) -> int:
        """Size."""
        return self.tensor.numel()


Target = HostTarget | DeviceTarget


@dataclass(frozen=True, slots=True)
class Arrival:
    """The job of this ticket has been read: `num_bytes` are in its target."""

    ticket: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why a backend cannot be used here, and the command or setting that would change that."""

    reason: str
    remedy: str


class ServerAddress(Protocol):
    """A server that sends what is read."""

    @property
    def name(self) -> str:
        """For people; without secrets."""

    @property
    def host(self) -> str | None:
        """Where the bytes come from; None where that is not known."""

    @property
    def port(self) -> int:
        """Of that host."""

    @property
    def remote(self) -> bool:
        """Whether it is a user's, which takes its own time to be filled; False of one that the run starts and ends."""


@runtime_checkable
class Witness(Protocol):
    """A backend or reader that can tell which way its reads took, where no counter of the kernel does."""

    def take_way(self) -> str | None:
        """The data path of the reads since last asked, as it was seen; None when there were none."""


class UnavailableError(KVIOError):
    """A backend cannot be used here."""

    def __init__(self, why: Unavailable) -> None:
        super().__init__(f"{why.reason}; try: {why.remedy}")
        self.why = why


NO_LIMIT = 1 << 30  # of reads in flight: as many as the jobs in flight have


def most_reads(num_jobs: int, reads_per_job: int, at_once: int | None) -> int:
    """Reads in flight at most, when so many jobs are; `at_once` as a `Backend` says it."""
    return num_jobs if at_once is None else min(num_jobs * reads_per_job, at_once)


class Backend(Protocol):
    """Reads jobs into targets, several at once.  One object per reading thread; not shared between threads.

    Args:
        name: the key in `BACKENDS`.
        queue_depth: jobs that may be in flight at once.
        reads_at_once: reads in flight at most, of a backend that begins all reads of a job together; None for one that
            begins the next read of a job when the one before has arrived.
        notices: codes of what makes its reads suspect or slower than they could be, known after `attach`.
    """

    name: str
    queue_depth: int
    reads_at_once: int | None
    notices: tuple[str, ...]

    def attach(self, targets: Sequence[Target]) -> None:
        """Get to know, and register, every target there will ever be; called once, before all else."""

    def open(self, path: Path) -> None:
        """Open `path` for `submit`; timed as `open_s`."""

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Begin the reads of one job, all of opened paths; at the latest with the next `wait`."""

    def wait(self) -> Sequence[Arrival]:
        """The jobs that have arrived since the last call, at least one; every job arrives once.

        Raises:
            ShortReadError: a read gave fewer bytes than asked.
            KVIOError: the file is gone, not permitted, not readable this way.
        """

    def shut(self, path: Path) -> None:
        """Close `path`, unless a job in flight reads it."""

    def drain(self) -> None:
        """Forget what is in flight; nothing is written into any target after this returns."""

    def close(self) -> None:
        """Drain, close every file, deregister the targets; must be safe to call twice."""


def make_host_target(num_bytes: int) -> HostTarget:
    """Zeroed memory of that size; gone with the last reference to it."""
    memory = mmap.mmap(-1, num_bytes)
    return HostTarget(0, ctypes.addressof(ctypes.c_char.from_buffer(memory)), memoryview(memory))
