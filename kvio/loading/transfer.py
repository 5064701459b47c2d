"""From where a thread reads into to the blocks, while the next reads are under way."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, Protocol

import numpy as np
import torch

from kvio.host_buffers import HostBuffer, Slots
from kvio.loading.blocks import KVBlocks
from kvio.loading.read_plan import ChunkRead
from kvio.loading.transfer_gpu import BounceTransfer, DeviceTransfer
from kvio.protocol import HostTarget, Target
from kvio.streams import make_side_stream

# copying this much takes some 50 us, and so, or longer where cores are busy, does waking another thread for it
MAX_BYTES_AT_ONCE = 512 << 10


class Transfer(Protocol):
    """Takes one thread's chunks from its slots into the blocks."""

    @property
    def targets(self) -> Sequence[Target]:
        """The memory of each slot, for the backend to read into; the same from beginning to end."""

    def take_slot(self) -> int:
        """The number of a slot that is free to be read into; waits for a copy where none is."""

    def send(self, slot: int, job: ChunkRead, blocks: KVBlocks) -> None:
        """Bring what was read into a slot into the blocks; may go on after it returns."""

    def finish(self) -> tuple[float | None, float | None]:
        """Wait until all has arrived; seconds of copying to the device and of scattering since last asked.

        All slots are free then, those too that were taken and never sent.
        """

    def close(self) -> None:
        """Let the buffers go; must be safe to call twice."""


class NoTransfer:
    """For backends that move nothing: slots without memory."""

    def __init__(self, num_slots: int) -> None:
        self.targets = [HostTarget(slot, 0, memoryview(bytearray())) for slot in range(num_slots)]
        self._slots = Slots(num_slots, lambda slot: None)

    def take_slot(self) -> int:
        """A free slot."""
        return self._slots.take()

    def send(self, slot: int, job: ChunkRead, blocks: KVBlocks) -> None:
        """Nothing arrived, nothing is sent."""
        self._slots.send(slot)

    def finish(self) -> tuple[float | None, float | None]:
        """No copies, hence no seconds."""
        self._slots.settle_all()
        return None, None

    def close(self) -> None:
        """Let nothing go."""


class HostTransfer:
    """Blocks in host memory: a copying thread beside each reading one, so that reads do not wait for large copies.

    numpy copies, because it frees the GIL and, unlike torch, adds no threads of its own.
    """

    def __init__(self, slot_bytes: int, num_slots: int, *, now_s: Callable[[], float]) -> None:
        self._buffer = HostBuffer(slot_bytes * num_slots)
        self._copies: list[Future[float] | None] = [None] * num_slots
        self._slots = Slots(num_slots, self._release)
        self._now_s = now_s
        self._scatter_s = 0.0
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="kvio-copy")
        self._copier.submit(int).result()  # starts the thread
        self.targets = self._buffer.targets(num_slots)

    def take_slot(self) -> int:
        """A free slot, else the one sent first, once its copy is done."""
        return self._slots.take()

    def _release(self, slot: int) -> None:
        copy, self._copies[slot] = self._copies[slot], None
        if copy is not None:
            self._scatter_s += copy.result()

    def send(self, slot: int, job: ChunkRead, blocks: KVBlocks) -> None:
        """Have every piece copied to its place: a large job while the next is read, a small one at once."""
        if max((piece.end for piece in job.pieces), default=0) <= MAX_BYTES_AT_ONCE:
            self._scatter_s += self._copy(self.targets[slot], job, blocks)
        else:
            self._copies[slot] = self._copier.submit(self._copy, self.targets[slot], job, blocks)
        self._slots.send(slot)

    def _copy(self, target: HostTarget, job: ChunkRead, blocks: KVBlocks) -> float:
        start_s = self._now_s()
        arrived = np.frombuffer(target.view, np.uint8)
        for piece in job.pieces:
            np.copyto(piece.destination(blocks).numpy(), piece.within(arrived))
        return self._now_s() - start_s

    def finish(self) -> tuple[float | None, float | None]:
        """Seconds of scattering, overlapped with reads or not; there is no device to copy to."""
        self._slots.settle_all()
        scatter_s, self._scatter_s = self._scatter_s, 0.0
        return None, scatter_s

    def close(self) -> None:
        """Stop the thread, let the buffer go."""
        self._copier.shutdown()
        self.targets = []
        self._buffer.close()


def make_transfer(
    slot_bytes: int,
    device: torch.device,
    *,
    num_slots: int,
    into: Literal["host", "device", "nowhere"],
    now_s: Callable[[], float],
) -> Transfer:
    """The transfer for one reading thread, this device, and a backend that reads into this."""
    if into == "nowhere":
        return NoTransfer(num_slots)
    if into == "device":
        stream = make_side_stream(device, now_s)
        return DeviceTransfer(slot_bytes, num_slots, device=device, stream=stream)
    if device.type == "cuda":
        stream = make_side_stream(device, now_s)
        return BounceTransfer(slot_bytes, num_slots, device=device, stream=stream)
    return HostTransfer(slot_bytes, num_slots, now_s=now_s)
