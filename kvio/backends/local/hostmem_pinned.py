"""Chunks in memory that is pinned for the GPU: copied straight into it, without a bounce buffer.

torch is imported when memory is pinned or a backend is attached, so that listing backends does not load it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.placement import SamplePlacement
from kvio.backends.selftest_process import try_reading
from kvio.file_ranges import Span, SpanMap
from kvio.protocol import (
    NO_LIMIT,
    Arrival,
    DeviceTarget,
    KVIOError,
    Read,
    ShortReadError,
    Target,
    Unavailable,
    UnavailableError,
)

if TYPE_CHECKING:
    import torch

    from kvio.host_buffers import HostBuffer, Registrar
    from kvio.streams import Mark, SideStream

MAX_IN_FLIGHT = 64  # jobs of one thread; more than two keep no link busier
NO_GPU = Unavailable(
    "memory is pinned for a GPU, and torch sees none here", "--backend hostmem, the same memory unpinned"
)


def find_registrar() -> "Registrar":
    """What pins memory here.

    Raises:
        UnavailableError: there is no GPU.
    """
    import torch

    from kvio.host_buffers import CudaRegistrar

    if not torch.cuda.is_available():
        raise UnavailableError(NO_GPU)
    return CudaRegistrar()


@dataclass(slots=True)
class PinnedMemory(SamplePlacement):
    """Parts of files in pinned memory, shared by the threads that read it.

    Pinning takes longer than reading, so buffers of what is held no more are used again.
    """

    find_registrar: Callable[[], "Registrar"] = find_registrar
    held: "SpanMap[HostBuffer]" = field(default_factory=SpanMap)
    name: str = "pinned host memory"
    _free: "list[HostBuffer]" = field(default_factory=list)

    def load_into_memory(self, spans: Sequence[Span]) -> None:
        """Hold these parts of files and nothing else.

        Raises:
            UnavailableError: there is no GPU.
            KVIOError: a file cannot be read, or so much cannot be pinned.
        """
        self._free.extend(self.held.keep(spans))
        for span in spans:
            if span not in self.held.contents:
                self.held.put(span, self._fill(span))

    def _fill(self, span: Span) -> "HostBuffer":
        try:
            with span.path.open("rb") as stream, ExitStack() as failing:
                stream.seek(span.start)
                buffer = self._take(span.num_bytes)
                failing.callback(self._free.append, buffer)  # pinned: it must not be dropped
                arrived = stream.readinto(buffer.view)
                if arrived != span.num_bytes:
                    raise ShortReadError(f"{span.path}: {arrived} of {span.num_bytes} bytes could be read")
                failing.pop_all()
                return buffer
        except OSError as error:
            raise KVIOError(f"{span.path}: {error.strerror}") from error

    def _take(self, num_bytes: int) -> "HostBuffer":
        """A buffer of just this size: one that is free, else a new one in place of those of other sizes."""
        for buffer in self._free:
            if buffer.num_bytes == num_bytes:
                self._free.remove(buffer)
                return buffer
        _close_all(self._free)
        from kvio.host_buffers import HostBuffer

        return HostBuffer(num_bytes, self.find_registrar())

    def remove(self) -> None:
        """Unpin and let go of everything; safe to call twice."""
        buffers = [*self.held.keep([]), *self._free]
        self._free = []
        _close_all(buffers)


def _close_all(buffers: "list[HostBuffer]") -> None:
    """Unpin every buffer, also those behind one that cannot be.

    Raises:
        KVIOError: one could not be.
    """
    with ExitStack() as closing:
        while buffers:
            closing.callback(buffers.pop().close)


class PinnedBackend:
    """The copies of as many jobs in flight as the setting's queue depth, on a stream of this thread's own."""

    name = "hostmem-pinned"
    reads_at_once: int | None = NO_LIMIT

    def __init__(self, setting: BackendConfig) -> None:
        if not isinstance(setting.placement, PinnedMemory):
            raise KVIOError("the hostmem-pinned backend needs a pinned memory that holds the chunks")
        self.queue_depth = setting.queue_depth
        self.notices: tuple[str, ...] = ()
        self._memory = setting.placement
        self._stream: SideStream | None = None
        # ticket, bytes, end of its copies
        self._in_flight: deque[tuple[int, int, Mark | ShortReadError]] = deque()

    def attach(self, targets: Sequence[Target]) -> None:
        """Make the stream that copies into the targets' device.

        Raises:
            KVIOError: a target is not device memory.
        """
        from torch import from_numpy

        from kvio.streams import make_side_stream

        devices = {target.tensor.device for target in targets if isinstance(target, DeviceTarget)}
        if len(devices) != 1:
            raise KVIOError("hostmem-pinned copies into the memory of one device only")
        self._stream = make_side_stream(devices.pop(), monotonic)
        self._as_tensor = from_numpy

    def open(self, path: Path) -> None:
        """Check that the file is held.

        Raises:
            KVIOError: it is not.
        """
        if not self._memory.held.has(path):
            raise KVIOError(f"{path}: not held in memory; hold it before it is timed")

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Queue the copies of one job."""
        if self._stream is None or not isinstance(target, DeviceTarget):
            raise KVIOError("hostmem-pinned copies into attached device memory only")
        end: Mark | ShortReadError
        try:
            end = self._copy(reads, target.tensor, self._stream)
        except ShortReadError as error:  # told by `wait`, as by backends that only know it then
            end = error
        self._in_flight.append((ticket, sum(read.num_bytes for read in reads), end))

    def _copy(self, reads: Sequence[Read], into: "torch.Tensor", stream: "SideStream") -> "Mark":
        with stream.entered():
            for read in reads:
                end = read.buffer_offset + read.num_bytes
                into[read.buffer_offset : end].copy_(self._find(read), non_blocking=True)
            return stream.mark()

    def _find(self, read: Read) -> "torch.Tensor":
        held = self._memory.held.find(read.path, read.file_offset)
        buffer, start = (np.empty(0, np.uint8), 0) if held is None else (held[0].array, held[1])
        found = buffer[start : start + read.num_bytes]
        if len(found) != read.num_bytes:
            raise ShortReadError(
                f"{read.path}: {len(found)} of {read.num_bytes} bytes held at offset {read.file_offset}"
            )
        return self._as_tensor(found)

    def wait(self) -> Sequence[Arrival]:
        """The job that was submitted first, once its copies are done.

        Raises:
            ShortReadError: what is held ends before a read does.
        """
        ticket, num_bytes, end = self._in_flight.popleft()
        if isinstance(end, ShortReadError):
            raise end
        end.synchronize()
        return [Arrival(ticket, num_bytes)]

    def shut(self, path: Path) -> None:
        """Close nothing."""

    def drain(self) -> None:
        """Wait for every copy under way."""
        if self._stream is not None:
            self._stream.synchronize()
        self._in_flight.clear()

    def close(self) -> None:
        """Drain; the memory is the placement's."""
        self.drain()


def try_pinned(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Why no memory can be pinned and copied from here; None where it can."""
    return try_reading("hostmem-pinned", directory, options, remedy="--backend hostmem")


HOSTMEM_PINNED = BackendKind(
    "chunks in DRAM that is pinned for the GPU",
    PinnedBackend,
    from_storage=False,
    target_memory="device",
    max_in_flight=MAX_IN_FLIGHT,
    reads_at_once=NO_LIMIT,
    placement=lambda options, root: PinnedMemory(),
    needs_gpu=True,
    probe=try_pinned,
)
