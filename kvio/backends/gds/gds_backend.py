"""Reads straight into device memory through kvikio: by cuFile, or by kvikio's own POSIX calls (compat=on)."""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.gds.gds_library import INSTALL, find_driver_kind, is_installed
from kvio.backends.gds.gds_options import OPTIONS, parse_gds_options
from kvio.backends.gds.gds_process import Configuration, GdsProcess, join_process, read_path_counters
from kvio.backends.gds.registration import REGISTRATIONS
from kvio.backends.local.file_handles import SHARED
from kvio.backends.local.posix import require_aligned
from kvio.backends.selftest_process import try_reading
from kvio.protocol import (
    Arrival,
    DeviceTarget,
    KVIOError,
    Read,
    ShortReadError,
    Target,
    Unavailable,
    UnavailableError,
)

MAX_HANDLES = 16  # per thread; fewer where the limit of the process leaves each thread less
HELD = 2  # descriptors that kvikio has of each file
MAX_READS = 64  # per thread; reads go to a pool of threads, never to cuFile's batches, which hang above 128
END_OF_FILE = "EOF"  # how kvikio's message ends when the file does
ON_THE_CPU = "--backend-option gds.compat=on, or --backend posix"
NO_DRIVER = "there is no libcuda.so.1, which kvikio loads even to read into host memory"


@dataclass(slots=True)
class _Flight:
    """A job: its reads that are to begin, and those that have begun with their futures, in order."""

    ticket: int
    buffer: Any
    waiting: deque[Read]
    begun: deque[tuple[Read, Any]] = field(default_factory=deque)

    @property
    def is_done(self) -> bool:
        return not self.waiting and all(future.done() for _, future in self.begun)

    def reads(self, path: Path) -> bool:
        """Whether this file is still to be read."""
        return any(read.path == path for read in (*self.waiting, *(read for read, _ in self.begun)))


class GdsBackend:
    """One thread's reads, which kvikio's pool carries out.

    Raises:
        KVIOError: an option makes no sense, or kvikio is not here or was configured otherwise in this process.
    """

    name = "gds"
    reads_at_once: int | None = MAX_READS

    def __init__(self, setting: BackendConfig) -> None:
        self._options = parse_gds_options(setting.options)
        self._direct = setting.direct or not self._options.compat
        self._log_folder = setting.directory
        self._process: GdsProcess = join_process(Configuration(self._options, setting.direct))
        self.queue_depth = min(setting.queue_depth, MAX_READS)
        self.notices: tuple[str, ...] = ()
        self._handles: OrderedDict[Path, Any] = OrderedDict()
        self._in_flight: deque[_Flight] = deque()
        self._num_begun = 0  # reads that kvikio has
        self._buffers: dict[int, Any] = {}  # by slot: what kvikio takes for the memory of a target
        self._registered: list[Any] = []
        SHARED.join(self)

    def attach(self, targets: Sequence[Target]) -> None:
        """Open cuFile and register the targets with it, or check that host memory is what was asked for.

        Raises:
            KVIOError: a target cannot be read into this way, or registered.
        """
        tensors = [target.tensor for target in targets if isinstance(target, DeviceTarget)]
        if len(tensors) != len(targets):
            raise KVIOError("gds reads into device memory only")
        if tensors and tensors[0].device.type != "cuda":
            self._attach_host()
            self._buffers = {target.slot: tensors[n].numpy() for n, target in enumerate(targets)}
            return
        self._buffers = {target.slot: tensors[n] for n, target in enumerate(targets)}
        if not self._options.compat:
            self._process.open_cufile(self._log_folder)
            if self._options.register:
                REGISTRATIONS.register(self._process.kvikio, tensors)
                self._registered = tensors

    def _attach_host(self) -> None:
        if not self._options.compat:
            raise UnavailableError(Unavailable("cuFile reads into a GPU, and there is none", ON_THE_CPU))
        kind = find_driver_kind()
        if kind == "absent":
            raise UnavailableError(Unavailable(NO_DRIVER, "install the NVIDIA driver, or --backend posix"))
        if kind == "stand-in":
            self.notices = ("standin_driver",)

    def open(self, path: Path) -> None:
        """Open and register `path`, which then stays open.

        Raises:
            KVIOError: gone, not permitted, too many open files, not readable by cuFile, or O_DIRECT refused.
        """
        if path in self._handles:
            self._handles.move_to_end(path)
            return
        while self._handles and self._is_full():
            self._shut(next(iter(self._handles)))
        try:
            handle = self._process.kvikio.CuFile(path)
        except RuntimeError as error:
            raise KVIOError(f"{path}: {_reason(error)}{_remedy(error)}") from error
        SHARED.take(HELD)
        self._handles[path] = handle
        if self._options.compat and self._direct and not handle.is_direct_io_supported():
            raise KVIOError(
                f"{path}: opened, but without O_DIRECT; read --buffered, or use another directory"
            )

    def _is_full(self) -> bool:
        """Whether a file has to be closed before another is opened; never one of those that may be in flight."""
        most = MAX_HANDLES if not SHARED.are_gone else 1
        return len(self._handles) > max(min(most, SHARED.share // HELD) - 1, self.queue_depth)

    def _shut(self, path: Path) -> None:
        self._handles.pop(path).close()
        SHARED.give_back(HELD)

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Hand the reads to kvikio's pool, as far as it has fewer than `MAX_READS` of this thread.

        Raises:
            KVIOError: a read is not aligned, so that a part of it would take another way in silence.
        """
        if self._direct:
            require_aligned(reads, target.address)
        self._in_flight.append(_Flight(ticket, self._buffers[target.slot], deque(reads)))
        self._begin()

    def _begin(self) -> None:
        """Begin what may begin, the oldest first."""
        for flight in self._in_flight:
            while flight.waiting and self._num_begun < MAX_READS:
                read = flight.waiting.popleft()
                place = flight.buffer[read.buffer_offset : read.buffer_offset + read.num_bytes]
                pread = self._handles[read.path].pread
                future = pread(place, read.num_bytes, read.file_offset, self._options.task_bytes)
                flight.begun.append((read, future))
                self._num_begun += 1

    def wait(self) -> Sequence[Arrival]:
        """The oldest job, once it is done, and those behind it that are done too."""
        if not self._in_flight:
            raise KVIOError("gds: nothing is in flight")
        arrivals = [self._finish_oldest()]
        while self._in_flight and self._in_flight[0].is_done:
            arrivals.append(self._finish_oldest())
        return arrivals

    def _finish_oldest(self) -> Arrival:
        flight = self._in_flight[0]
        arrived = 0
        while flight.begun:  # a future gives its result once, also to `drain` after a failure
            read, future = flight.begun.popleft()
            self._num_begun -= 1
            arrived += _finish(read, future)
            self._begin()
        self._in_flight.popleft()
        return Arrival(flight.ticket, arrived)

    def shut(self, path: Path) -> None:
        """Close `path`, unless a job in flight reads it."""
        if path in self._handles and not any(flight.reads(path) for flight in self._in_flight):
            self._shut(path)

    def drain(self) -> None:
        """Wait for every read that was begun; the first failure was told already."""
        while self._in_flight:
            for _, future in self._in_flight.popleft().begun:
                try:
                    future.get()
                except RuntimeError:  # told by `wait`, or of a load that failed anyway
                    continue
        self._num_begun = 0

    def close(self) -> None:
        """Drain, close every file, deregister the targets; safe to call twice."""
        self.drain()
        try:
            while self._handles:
                self._shut(next(iter(self._handles)))
        finally:
            SHARED.leave(self)
            registered, self._registered = self._registered, []
            REGISTRATIONS.release(self._process.kvikio, registered)


def try_gds(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Why kvikio cannot read files in `directory` this way; None where it can.

    Raises:
        KVIOError: an option makes no sense.
    """
    parse_gds_options(options)
    if not is_installed("kvikio"):
        return Unavailable("kvikio is not installed", INSTALL)
    return try_reading("gds", directory, options, remedy="--backend posix")


def _finish(read: Read, future: Any) -> int:  # noqa: ANN401 — kvikio has no types
    where = f"{read.num_bytes} bytes at offset {read.file_offset}"
    try:
        arrived = int(future.get())
    except RuntimeError as error:
        if _reason(error) == END_OF_FILE:  # which does not say how much arrived
            there = max(0, read.path.stat().st_size - read.file_offset)
            raise ShortReadError(f"{read.path}: {there} of {where}, the end") from error
        raise KVIOError(f"{read.path}: reading {where}: {_reason(error)}") from error
    if arrived != read.num_bytes:
        raise ShortReadError(f"{read.path}: {arrived} of {where}")
    return arrived


def _reason(error: RuntimeError) -> str:
    """What the system said, without the place in kvikio's sources."""
    return str(error).strip().rpartition(": ")[2]


def _remedy(error: RuntimeError) -> str:
    if "Too many open files" in str(error):
        return "; kvikio holds two descriptors per file: raise ulimit -n or use fewer threads"
    return ""


GDS = BackendKind(
    "files, by cuFile or kvikio into the GPU",
    GdsBackend,
    target_memory="device",
    max_in_flight=MAX_READS,
    reads_at_once=MAX_READS,
    options=OPTIONS,
    read_path=read_path_counters,
    probe=try_gds,
)
