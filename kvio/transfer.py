"""From the bounce buffer to the blocks while the next read is under way: by a thread, or on a side stream."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from kvio.blocks import KVBlocks
from kvio.buffers import CudaRegistrar, HostBuffer
from kvio.jobs import Job

SLOTS_PER_THREAD = 2  # one is read into while the other is copied from


class Transfer(Protocol):
    """Takes one thread's chunks from its bounce buffers into the blocks."""

    def next_slot(self) -> HostBuffer:
        """A bounce buffer that is free to be read into."""

    def send(self, job: Job, blocks: KVBlocks) -> None:
        """Bring what lies in the slot last given into the blocks; may go on after it returns."""

    def finish(self) -> tuple[float | None, float | None]:
        """Wait until all has arrived; seconds of copying to the device and of scattering since last asked."""

    def close(self) -> None:
        """Let the buffers go; must be safe to call twice."""


class NoTransfer:
    """For backends that move nothing."""

    def __init__(self) -> None:
        self._slot = HostBuffer(0)

    def next_slot(self) -> HostBuffer:
        """An empty buffer."""
        return self._slot

    def send(self, job: Job, blocks: KVBlocks) -> None:
        """Nothing arrived, nothing is sent."""

    def finish(self) -> tuple[float | None, float | None]:
        """No copies, hence no seconds."""
        return None, None

    def close(self) -> None:
        """Let the buffer go."""
        self._slot.close()


class HostTransfer:
    """Blocks in host memory: a copying thread beside each reading one, so that reads never wait for copies.

    numpy copies, because it frees the GIL and, unlike torch, adds no threads of its own.
    """

    def __init__(self, slot_bytes: int, now_s: Callable[[], float]) -> None:
        self._slots = [HostBuffer(slot_bytes) for _ in range(SLOTS_PER_THREAD)]
        self._copies: list[Future[float] | None] = [None] * SLOTS_PER_THREAD
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="kvio-copy")
        self._copier.submit(int).result()  # starts the thread
        self._next = 0
        self._now_s = now_s
        self._scatter_s = 0.0

    def next_slot(self) -> HostBuffer:
        """The buffer used longest ago, once its copy is done."""
        self._settle(self._next)
        return self._slots[self._next]

    def _settle(self, number: int) -> None:
        copy, self._copies[number] = self._copies[number], None
        if copy is not None:
            self._scatter_s += copy.result()

    def send(self, job: Job, blocks: KVBlocks) -> None:
        """Have every piece copied to its place; the next read overlaps with it."""
        self._copies[self._next] = self._copier.submit(self._copy, self._slots[self._next], job, blocks)
        self._next = (self._next + 1) % SLOTS_PER_THREAD

    def _copy(self, slot: HostBuffer, job: Job, blocks: KVBlocks) -> float:
        start_s = self._now_s()
        for piece in job.pieces:
            np.copyto(piece.destination(blocks).numpy(), piece.within(slot.array))
        return self._now_s() - start_s

    def finish(self) -> tuple[float | None, float | None]:
        """Seconds of scattering, overlapped with reads or not; there is no device to copy to."""
        for number in range(SLOTS_PER_THREAD):
            self._settle(number)
        scatter_s, self._scatter_s = self._scatter_s, 0.0
        return None, scatter_s

    def close(self) -> None:
        """Stop the thread, let the buffers go."""
        self._copier.shutdown()
        for slot in self._slots:
            slot.close()


@dataclass(slots=True)
class _Slot:
    """A registered buffer, its staging memory on the device, and the marks of its last use."""

    buffer: HostBuffer
    staging: torch.Tensor  # (slot_bytes,) on the device
    marks: Sequence[torch.cuda.Event] = ()  # begin, copied, scattered


class CudaTransfer:
    """Blocks on a GPU: registered bounce buffer -> staging memory -> strided copies, on a side stream."""

    def __init__(self, slot_bytes: int, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._slots: list[_Slot] = []
        self._h2d_s = 0.0
        self._scatter_s = 0.0
        self._next = 0
        try:
            for _ in range(SLOTS_PER_THREAD):
                staging = torch.empty(slot_bytes, dtype=torch.uint8, device=device)
                self._slots.append(_Slot(HostBuffer(slot_bytes, CudaRegistrar()), staging))
        except BaseException:
            self.close()
            raise

    def next_slot(self) -> HostBuffer:
        """The buffer used longest ago, once its copy is done."""
        slot = self._slots[self._next]
        self._settle(slot)
        return slot.buffer

    def _settle(self, slot: _Slot) -> None:
        if slot.marks:
            begin, copied, scattered = slot.marks
            scattered.synchronize()
            self._h2d_s += begin.elapsed_time(copied) / 1e3  # CUDA gives milliseconds
            self._scatter_s += copied.elapsed_time(scattered) / 1e3
            slot.marks = ()

    def send(self, job: Job, blocks: KVBlocks) -> None:
        """Queue the copy and the scatter behind it; the next read overlaps with both."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        marks = [_timing_mark() for _ in range(3)]
        num_bytes = max((piece.end for piece in job.pieces), default=0)
        with torch.cuda.stream(self._stream):
            marks[0].record(self._stream)
            host = torch.from_numpy(slot.buffer.array[:num_bytes])
            slot.staging[:num_bytes].copy_(host, non_blocking=True)
            marks[1].record(self._stream)
            for piece in job.pieces:
                piece.destination(blocks).copy_(piece.within(slot.staging), non_blocking=True)
            marks[2].record(self._stream)
        slot.marks = marks

    def finish(self) -> tuple[float | None, float | None]:
        """Device seconds of the copies and of the scattering, overlapped with reads or not."""
        for slot in self._slots:
            self._settle(slot)
        seconds = (self._h2d_s, self._scatter_s)
        self._h2d_s = self._scatter_s = 0.0
        return seconds

    def close(self) -> None:
        """Wait for copies under way, then deregister: freeing memory in use by the GPU corrupts it."""
        self._stream.synchronize()
        for slot in self._slots:
            slot.buffer.close()
        self._slots.clear()


def _timing_mark() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def make_transfer(
    slot_bytes: int, device: torch.device, *, moves_bytes: bool, now_s: Callable[[], float]
) -> Transfer:
    """The transfer for one reading thread and this device."""
    if not moves_bytes:
        return NoTransfer()
    if device.type == "cuda":
        return CudaTransfer(slot_bytes, device)
    return HostTransfer(slot_bytes, now_s)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one of this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
