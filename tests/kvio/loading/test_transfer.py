"""Transfers: every piece in its place, whichever way; slots come free in order, and after failures."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from kvio.host_buffers import Slots
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.read_plan import ChunkRead, plan_jobs
from kvio.loading.transfer import MAX_BYTES_AT_ONCE, HostTransfer, NoTransfer, Transfer, make_transfer
from kvio.loading.transfer_gpu import DEVICE_ALIGN_BYTES, BounceTransfer, DeviceTransfer, make_staging
from kvio.protocol import DeviceTarget, HostTarget, Target
from kvio.store.chunk_store import ChunkStore
from kvio.streams import HostSideStream

CPU = torch.device("cpu")
LAYOUT = uniform_layout(4, 1024)
GEOMETRY = ChunkGeometry(LAYOUT, adapt_preset(find_preset("best"), chunk_tokens=4))
SLOT_BYTES = GEOMETRY.slot_bytes
MAKERS: dict[str, Callable[[int], Transfer]] = {
    "host": lambda count: HostTransfer(SLOT_BYTES, count, now_s=time.monotonic),
    "bounce": lambda count: BounceTransfer(
        SLOT_BYTES, count, device=CPU, stream=HostSideStream(time.monotonic)
    ),
    "device": lambda count: DeviceTransfer(
        SLOT_BYTES, count, device=CPU, stream=HostSideStream(time.monotonic)
    ),
}


def _jobs(directory: Path, prefix_tokens: int) -> tuple[ChunkRead, ...]:
    count = -(-prefix_tokens // 4)
    store = ChunkStore.create(directory, GEOMETRY, num_chunks=count, seed=0)
    return plan_jobs(store, range(count), first_token=0, prefix_tokens=prefix_tokens)


def _fill(target: Target, job: ChunkRead, seed: int) -> None:
    content = np.random.default_rng(seed).integers(0, 256, job.num_bytes, np.uint8)
    if isinstance(target, HostTarget):
        target.view[: job.num_bytes] = content.data
    else:
        target.tensor[: job.num_bytes] = torch.from_numpy(content)


@pytest.mark.parametrize("name", list(MAKERS))
def test_slots_read_into_out_of_order_reach_their_own_places(tmp_path: Path, name: str) -> None:
    jobs = _jobs(tmp_path, 20)
    transfer = MAKERS[name](3)
    blocks = KVBlocks(LAYOUT, 20, CPU)
    for first, second in ((0, 1), (2, 3)):
        slots = {number: transfer.take_slot() for number in (first, second)}
        for number in (second, first):  # the second arrives first
            _fill(transfer.targets[slots[number]], jobs[number], seed=number)
            transfer.send(slots[number], jobs[number], blocks)
    slot = transfer.take_slot()
    _fill(transfer.targets[slot], jobs[4], seed=4)
    transfer.send(slot, jobs[4], blocks)
    _, scatter_s = transfer.finish()
    transfer.close()
    assert scatter_s is not None
    assert scatter_s > 0
    planes = blocks.groups[0].numpy()  # (8, 20, 1024)
    for number in range(5):
        content = np.random.default_rng(number).integers(0, 256, 8 * 4 * 1024, np.uint8).reshape(8, 4, 1024)
        assert np.array_equal(planes[:, number * 4 : number * 4 + 4], content)


def test_only_what_is_copied_to_a_device_has_seconds_for_it(tmp_path: Path) -> None:
    job = _jobs(tmp_path, 4)[0]
    blocks = KVBlocks(LAYOUT, 4, CPU)
    seconds = {}
    for name, make in MAKERS.items():
        transfer = make(2)
        transfer.send(transfer.take_slot(), job, blocks)
        seconds[name] = transfer.finish()[0]
        assert transfer.finish()[1] == 0.0  # counted once
        transfer.close()
    assert seconds["host"] is seconds["device"] is None
    assert seconds["bounce"] is not None


@pytest.mark.parametrize("name", list(MAKERS))
def test_slots_that_were_never_sent_are_free_again_after_finish(name: str) -> None:
    transfer = MAKERS[name](3)
    first = [transfer.take_slot() for _ in range(3)]
    transfer.finish()
    assert sorted(transfer.take_slot() for _ in range(3)) == sorted(first) == [0, 1, 2]
    transfer.close()


def test_a_slot_is_settled_before_it_is_given_again() -> None:
    settled: list[int] = []
    slots = Slots(2, settled.append)
    slots.send(slots.take())
    slots.send(slots.take())
    assert settled == []
    assert (slots.take(), settled) == (0, [0])
    slots.settle_all()
    assert settled == [0, 1]


@pytest.mark.parametrize("name", list(MAKERS))
def test_closing_a_transfer_leaves_no_thread_and_may_be_repeated(name: str) -> None:
    others = set(threading.enumerate())
    transfer = MAKERS[name](2)
    transfer.close()
    transfer.close()
    assert set(threading.enumerate()) == others
    assert list(transfer.targets) == []


def test_staging_memory_begins_on_a_page_of_the_gpu() -> None:
    staging = [make_staging(5000, CPU) for _ in range(3)]
    assert [memory.data_ptr() % DEVICE_ALIGN_BYTES for memory in staging] == [0, 0, 0]
    assert [memory.numel() for memory in staging] == [5000, 5000, 5000]


def test_what_the_backend_reads_into_decides_the_slots() -> None:
    made = {
        into: make_transfer(4096, CPU, num_slots=2, into=into, now_s=time.monotonic)  # type: ignore[arg-type]
        for into in ("host", "device", "nowhere")
    }
    assert {into: type(transfer) for into, transfer in made.items()} == {
        "host": HostTransfer,
        "device": DeviceTransfer,
        "nowhere": NoTransfer,
    }
    assert [target.num_bytes for target in made["host"].targets] == [4096, 4096]
    assert isinstance(made["device"].targets[0], DeviceTarget)
    assert [target.num_bytes for target in made["nowhere"].targets] == [0, 0]
    for transfer in made.values():
        transfer.close()


@pytest.mark.parametrize("chunk_bytes", [MAX_BYTES_AT_ONCE, 2 * MAX_BYTES_AT_ONCE], ids=["small", "large"])
def test_only_a_large_job_waits_for_the_copying_thread(tmp_path: Path, chunk_bytes: int) -> None:
    tokens = chunk_bytes // LAYOUT.bytes_per_token
    geometry = ChunkGeometry(LAYOUT, adapt_preset(find_preset("best"), chunk_tokens=tokens))
    (job,) = plan_jobs(
        ChunkStore.create(tmp_path, geometry, num_chunks=1, seed=0), [0], first_token=0, prefix_tokens=tokens
    )
    transfer, blocks = (
        HostTransfer(geometry.slot_bytes, 2, now_s=time.monotonic),
        KVBlocks(LAYOUT, tokens, CPU),
    )
    blocks.poison()
    busy = threading.Event()
    transfer._copier.submit(busy.wait)
    slot = transfer.take_slot()
    transfer.targets[slot].view[:] = bytes(geometry.slot_bytes)
    transfer.send(slot, job, blocks)
    arrived = not blocks.groups[0].any()
    busy.set()
    transfer.finish()
    transfer.close()
    assert arrived == (chunk_bytes == MAX_BYTES_AT_ONCE)
    assert not blocks.groups[0].any()
