"""Reads files through io_uring: one thread keeps a queue of reads in flight, and hands over several at once."""

import errno
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.local.file_handles import MAX_OPEN_FILES, OpenedFiles
from kvio.backends.local.io_uring import Completion, Ring
from kvio.backends.local.posix import MAX_CALL_BYTES, require_aligned, require_going_on
from kvio.backends.selftest_process import try_reading
from kvio.protocol import (
    Arrival,
    HostTarget,
    KVIOError,
    Read,
    Target,
    Unavailable,
    UnavailableError,
)

MAX_IN_FLIGHT = 128  # per thread
NOT_REGISTERED = "buffers_not_registered"
AGAIN = frozenset({errno.EINTR, errno.EAGAIN})  # nothing was read; to be asked for again
SWITCH = Path("/proc/sys/kernel/io_uring_disabled")  # Linux >= 6.6: 1 without privileges, 2 for everybody
SECCOMP = (
    "docker run --security-opt seccomp=unconfined, or a profile that allows io_uring_setup, _enter, _register"
)


class _Flight:
    """A job under way: which of its reads, and how much of it has arrived."""

    def __init__(self, reads: Sequence[Read], target: HostTarget) -> None:
        self.target = target
        self.arrived = 0
        self.all_arrived = 0
        self._reads = iter(reads)
        self.read: Read | None = next(self._reads, None)

    def advance(self, num_bytes: int) -> None:
        """Count what has arrived; go on to the next read where this one is whole."""
        self.arrived += num_bytes
        self.all_arrived += num_bytes
        if self.read is not None and self.arrived == self.read.num_bytes:
            self.read = next(self._reads, None)
            self.arrived = 0


class UringBackend:
    """As many jobs in flight as the setting's queue depth, one read of each."""

    name = "uring"
    reads_at_once: int | None = None

    def __init__(self, setting: BackendConfig) -> None:
        if not 1 <= setting.queue_depth <= MAX_IN_FLIGHT:
            raise KVIOError(f"uring keeps 1 to {MAX_IN_FLIGHT} reads in flight, not {setting.queue_depth}")
        self.queue_depth = setting.queue_depth
        self.notices: tuple[str, ...] = ()
        self._direct = setting.direct
        self._files = OpenedFiles(direct=setting.direct, most=max(MAX_OPEN_FILES, setting.queue_depth))
        self._flights: dict[int, _Flight] = {}
        self._ring: Ring | None = None

    def attach(self, targets: Sequence[Target]) -> None:
        """Make the ring, and register the targets where the limit on locked memory allows it.

        Raises:
            UnavailableError: the kernel gives no ring.
        """
        try:
            self._ring = Ring(self.queue_depth)
        except OSError as error:
            raise UnavailableError(explain_refusal(error)) from error
        try:
            self._ring.register([(target.address, target.num_bytes) for target in targets])
        except OSError as error:
            if error.errno not in {errno.ENOMEM, errno.EOPNOTSUPP, errno.EFAULT}:
                raise KVIOError(f"registering buffers with io_uring: {error.strerror}") from error
            self.notices = (NOT_REGISTERED,)

    def open(self, path: Path) -> None:
        """Open `path`, which then stays open.

        Raises:
            KVIOError: gone, not permitted, too many open files, or O_DIRECT refused.
        """
        self._files.open(path)

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Queue the first read of a job; the kernel gets to know of it in the next `wait`.

        Raises:
            KVIOError: not aligned as O_DIRECT needs.
        """
        if not isinstance(target, HostTarget):
            raise KVIOError("uring reads into host memory only")
        if self._direct:
            require_aligned(reads, target.address)
        flight = _Flight(reads, target)
        self._begin(ticket, flight)

    def _begin(self, ticket: int, flight: _Flight) -> None:
        """Queue what is left of a job's read."""
        read = flight.read
        if read is None:
            raise KVIOError("uring was given a job without reads")
        ring, descriptor = self._live_ring(), self._files.descriptor(read.path)
        self._flights[ticket] = flight
        self._files.hold(read.path)
        ring.queue_read(
            ticket,
            descriptor,
            offset=read.file_offset + flight.arrived,
            address=flight.target.address + read.buffer_offset + flight.arrived,
            num_bytes=min(read.num_bytes - flight.arrived, MAX_CALL_BYTES),
            buffer=None if self.notices else flight.target.slot,
        )

    def _live_ring(self) -> Ring:
        if self._ring is None:
            raise KVIOError("the uring backend is closed, or has no targets yet")
        return self._ring

    def wait(self) -> Sequence[Arrival]:
        """Hand all that is queued to the kernel at once; the jobs that have arrived.

        Raises:
            ShortReadError: the file ends before a read does.
            KVIOError: a read failed.
        """
        ring = self._live_ring()
        found: list[Arrival] = []
        try:
            while not found:
                for result in ring.wait():
                    found.extend(self._take(result))
            ring.submit()  # what goes on with a further read must not wait for our caller
        except OSError as error:
            raise KVIOError(f"io_uring: {error.strerror}") from error
        return found

    def _take(self, result: Completion) -> Sequence[Arrival]:
        """The job that this result completes; else its next read is queued."""
        flight = self._flights.pop(result.tag)
        read = flight.read
        if read is None:
            raise KVIOError("io_uring gave a result twice")
        self._files.let_go(read.path)
        if result.code < 0 and -result.code not in AGAIN:
            where = f"{read.num_bytes - flight.arrived} bytes at offset {read.file_offset + flight.arrived}"
            raise KVIOError(f"{read.path}: reading {where}: {os.strerror(-result.code)}")
        if result.code >= 0:
            require_going_on(read, flight.arrived + result.code, got=result.code, direct=self._direct)
            flight.advance(result.code)
        if flight.read is not None:
            self._begin(result.tag, flight)
            return ()
        return (Arrival(result.tag, flight.all_arrived),)

    def shut(self, path: Path) -> None:
        """Close a file, unless another job in flight reads it."""
        self._files.shut(path)

    def drain(self) -> None:
        """Wait for the reads under way: the kernel cannot call back what a drive has begun."""
        if self._ring is not None:
            self._ring.drain()
        for flight in self._flights.values():
            if flight.read is not None:
                self._files.let_go(flight.read.path)
        self._flights.clear()

    def close(self) -> None:
        """Drain, deregister, close every file."""
        try:
            if self._ring is not None:
                self._ring.close()
        finally:
            self._ring = None
            self._flights.clear()
            self._files.close()


def try_uring(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """The probe: a real read through a real ring."""
    return try_reading("uring", directory, options, remedy="--backend posix")


def explain_refusal(error: OSError, switch: Path = SWITCH) -> Unavailable:
    """Why the kernel gives no ring, and what to try."""
    if error.errno in {errno.EPERM, errno.EACCES}:
        setting = switch.read_text().strip() if switch.exists() else "0"
        if setting != "0":
            return Unavailable(
                f"kernel.io_uring_disabled is {setting}", "sysctl -w kernel.io_uring_disabled=0"
            )
        return Unavailable("io_uring is refused here, as by the seccomp filter of a container", SECCOMP)
    if error.errno == errno.ENOSYS:
        return Unavailable("this kernel has no io_uring, or a seccomp filter hides it", SECCOMP)
    if error.errno == errno.EINVAL:
        return Unavailable("this kernel's io_uring cannot defer its work", "Linux 6.1 or newer")
    if error.errno == errno.ENOMEM:
        limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        return Unavailable(
            f"no memory for the ring; RLIMIT_MEMLOCK is {limit_bytes} bytes", "ulimit -l unlimited"
        )
    remedy = "ulimit -n 4096" if error.errno in {errno.EMFILE, errno.ENFILE} else "--backend posix"
    return Unavailable(f"io_uring: {error.strerror}", remedy)


URING = BackendKind(
    "files, a queue of reads in each thread", UringBackend, max_in_flight=MAX_IN_FLIGHT, probe=try_uring
)
