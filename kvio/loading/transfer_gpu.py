"""By way of staging memory on the device, and from there by strided copies on a side stream."""

from collections.abc import Sequence

import torch

from kvio.host_buffers import CudaRegistrar, HostBuffer, Slots
from kvio.loading.blocks import KVBlocks
from kvio.loading.read_plan import ChunkRead
from kvio.protocol import DeviceTarget
from kvio.streams import Mark, SideStream

# GPUs map their memory for other devices in pages of 64 KiB: GPUDirect RDMA, "Design Considerations"
DEVICE_ALIGN_BYTES = 65_536


def make_staging(num_bytes: int, device: torch.device) -> torch.Tensor:
    """Aligned memory on the device, (num_bytes,) of uint8, touched once."""
    # torch aligns to 64 bytes on the host and 512 on a GPU
    spacious = torch.zeros(num_bytes + DEVICE_ALIGN_BYTES, dtype=torch.uint8, device=device)
    start = -spacious.data_ptr() % DEVICE_ALIGN_BYTES
    return spacious[start : start + num_bytes]


def scatter(job: ChunkRead, staging: torch.Tensor, blocks: KVBlocks) -> None:
    """Copy every piece of a job from staging memory to its place in the blocks."""
    for piece in job.pieces:
        piece.destination(blocks).copy_(piece.within(staging), non_blocking=True)


class DeviceTransfer:
    """For backends that read into the device: the slots are staging memory, and only the scatter is left."""

    def __init__(self, slot_bytes: int, num_slots: int, *, device: torch.device, stream: SideStream) -> None:
        self._stream = stream
        staging = [make_staging(slot_bytes, device) for _ in range(num_slots)]
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # touched before anyone reads into it
        self.targets = [DeviceTarget(slot, memory) for slot, memory in enumerate(staging)]
        self._marks: list[tuple[Mark, Mark] | None] = [None] * num_slots  # begin, scattered
        self._slots = Slots(num_slots, self._release)
        self._scatter_s = 0.0

    def take_slot(self) -> int:
        """A free slot, else the one sent first, once its scatter is done."""
        return self._slots.take()

    def _release(self, slot: int) -> None:
        marks, self._marks[slot] = self._marks[slot], None
        if marks is not None:
            marks[1].synchronize()
            self._scatter_s += marks[0].elapsed_time(marks[1]) / 1e3

    def send(self, slot: int, job: ChunkRead, blocks: KVBlocks) -> None:
        """Queue the scatter; the next reads overlap with it."""
        with self._stream.entered():
            begin = self._stream.mark()
            scatter(job, self.targets[slot].tensor, blocks)
            self._marks[slot] = (begin, self._stream.mark())
        self._slots.send(slot)

    def finish(self) -> tuple[float | None, float | None]:
        """Device seconds of scattering; what copying to the device took is part of the reads."""
        self._slots.settle_all()
        scatter_s, self._scatter_s = self._scatter_s, 0.0
        return None, scatter_s

    def close(self) -> None:
        """Wait for scatters under way, then let the memory go; the backend has deregistered it before."""
        self._stream.synchronize()
        self.targets = []


class BounceTransfer:
    """From registered bounce buffers: copied to staging memory on the GPU, then scattered from there."""

    def __init__(self, slot_bytes: int, num_slots: int, *, device: torch.device, stream: SideStream) -> None:
        self._stream = stream
        self._marks: list[Sequence[Mark]] = [()] * num_slots  # begin, copied, scattered
        self._slots = Slots(num_slots, self._release)
        self._h2d_s = 0.0
        self._scatter_s = 0.0
        registrar = CudaRegistrar() if device.type == "cuda" else None
        self._staging = [make_staging(slot_bytes, device) for _ in range(num_slots)]  # each (slot_bytes,)
        self._buffer = HostBuffer(slot_bytes * num_slots, registrar)
        self.targets = self._buffer.targets(num_slots)

    def take_slot(self) -> int:
        """A free slot, else the one sent first, once its copy is done."""
        return self._slots.take()

    def _release(self, slot: int) -> None:
        marks, self._marks[slot] = self._marks[slot], ()
        if marks:
            begin, copied, scattered = marks
            scattered.synchronize()
            self._h2d_s += begin.elapsed_time(copied) / 1e3
            self._scatter_s += copied.elapsed_time(scattered) / 1e3

    def send(self, slot: int, job: ChunkRead, blocks: KVBlocks) -> None:
        """Queue the copy and the scatter behind it; the next reads overlap with both."""
        num_bytes = max((piece.end for piece in job.pieces), default=0)
        staging = self._staging[slot]
        with self._stream.entered():
            begin = self._stream.mark()
            host = torch.frombuffer(self.targets[slot].view, dtype=torch.uint8)[:num_bytes]
            staging[:num_bytes].copy_(host, non_blocking=True)
            copied = self._stream.mark()
            scatter(job, staging, blocks)
            self._marks[slot] = (begin, copied, self._stream.mark())
        self._slots.send(slot)

    def finish(self) -> tuple[float | None, float | None]:
        """Device seconds of the copies and of the scattering, overlapped with reads or not."""
        self._slots.settle_all()
        seconds = (self._h2d_s, self._scatter_s)
        self._h2d_s = self._scatter_s = 0.0
        return seconds

    def close(self) -> None:
        """Wait for copies under way, then deregister: freeing memory in use by the GPU corrupts it."""
        self._stream.synchronize()
        self.targets = []
        self._buffer.close()
        self._staging.clear()
