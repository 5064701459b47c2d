"""Several jobs in flight in one thread: out of order, counted, drained after failures."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader, LoadSplit
from kvio.loading.read_plan import Job, plan_jobs
from kvio.protocol import Arrival, HostTarget, KVIOError, Read, Target
from kvio.store.chunk_store import ChunkStore

CPU = torch.device("cpu")
LAYOUT = uniform_layout(4, 1024)
NUM_CHUNKS = 9


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_s(self) -> float:
        return self.seconds


class LastFirst:
    """Reads a job when it is waited for, the one submitted last first; each takes a second."""

    name = "last-first"
    reads_at_once: int | None = None
    notices = ("backwards",)

    def __init__(self, queue_depth: int, clock: Clock, *, fails_at: int | None = None) -> None:
        self.queue_depth = queue_depth
        self.most_in_flight = 0
        self.events: list[str] = []
        self.targets: Sequence[Target] = ()
        self._clock = clock
        self._left = fails_at
        self._submitted: list[tuple[int, Sequence[Read], Target]] = []

    def attach(self, targets: Sequence[Target]) -> None:
        self.targets = targets

    def open(self, path: Path) -> None:
        self._clock.seconds += 0.25

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        assert target is self.targets[ticket]
        self._submitted.append((ticket, reads, target))
        self.most_in_flight = max(self.most_in_flight, len(self._submitted))

    def wait(self) -> Sequence[Arrival]:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KVIOError("broken drive")
        self._clock.seconds += 1.0
        ticket, reads, target = self._submitted.pop()
        assert isinstance(target, HostTarget)
        for read in reads:
            descriptor = os.open(read.path, os.O_RDONLY)
            content = os.pread(descriptor, read.num_bytes, read.file_offset)
            os.close(descriptor)
            target.view[read.buffer_offset : read.buffer_offset + len(content)] = content
        return (Arrival(ticket, sum(read.num_bytes for read in reads)),)

    def shut(self, path: Path) -> None:
        self.events.append("shut")

    def drain(self) -> None:
        self.events.append(f"drain {len(self._submitted)}")
        self._submitted.clear()

    def close(self) -> None:
        self.events.append("close")


def _store(directory: Path, *, open_per_read: bool = False, num_threads: int = 1) -> ChunkStore:
    preset = adapt_preset(find_preset("best"), chunk_tokens=4, num_threads=num_threads)
    geometry = ChunkGeometry(LAYOUT, replace(preset, open_per_read=open_per_read))
    return ChunkStore.create(directory, geometry, num_chunks=NUM_CHUNKS, seed=1)


def _jobs(store: ChunkStore, num_chunks: int = NUM_CHUNKS) -> tuple[Job, ...]:
    return plan_jobs(store, range(num_chunks), first_token=0, prefix_tokens=4 * num_chunks)


def _load(store: ChunkStore, backend: LastFirst, clock: Clock, num_chunks: int) -> LoadSplit:
    blocks = KVBlocks(LAYOUT, 4 * NUM_CHUNKS, CPU)
    loader = ChunkLoader(store.geometry, lambda: backend, device=CPU, now_s=clock.now_s)
    try:
        split = loader.load(blocks, _jobs(store, num_chunks))
    finally:
        loader.close()
    for number in range(num_chunks):
        here = blocks.groups[0][:, 4 * number : 4 * number + 4].numpy().reshape(-1)
        assert np.array_equal(here, store.read_payload(number))
    return split


@pytest.mark.parametrize("queue_depth", [1, 2, 5, 32])
def test_jobs_that_arrive_out_of_order_reach_their_places(tmp_path: Path, queue_depth: int) -> None:
    clock = Clock()
    backend = LastFirst(queue_depth, clock)
    split = _load(_store(tmp_path), backend, clock, NUM_CHUNKS)
    assert backend.most_in_flight == min(queue_depth, NUM_CHUNKS)
    assert (split.queue_depth, split.num_bytes) == (queue_depth, NUM_CHUNKS * 32_768)
    assert split.notices == ("backwards",)
    assert (split.open_s, split.read_s) == (NUM_CHUNKS * 0.25, NUM_CHUNKS * 1.0)


def test_the_achieved_depth_is_time_in_flight_over_time_of_the_load(tmp_path: Path) -> None:
    clock = Clock()
    split = _load(_store(tmp_path), LastFirst(3, clock), clock, 3)
    # opened at 0.25, 0.5 and 0.75 s, arrived in reverse at 1.75, 2.75 and 3.75 s, when the load ends
    in_flight_s = (1.75 - 0.75) + (2.75 - 0.5) + (3.75 - 0.25)
    assert split.achieved_queue_depth == pytest.approx(in_flight_s / 3.75, rel=1e-12)


def test_a_failed_read_drains_what_is_in_flight_and_the_next_load_works(tmp_path: Path) -> None:
    store = _store(tmp_path)
    clock = Clock()
    backend = LastFirst(4, clock, fails_at=2)
    loader = ChunkLoader(store.geometry, lambda: backend, device=CPU, now_s=clock.now_s)
    blocks = KVBlocks(LAYOUT, 4 * NUM_CHUNKS, CPU)
    with pytest.raises(KVIOError, match="broken drive"):
        loader.load(blocks, _jobs(store))
    assert backend.events == ["drain 4"]  # before the load returns its blocks
    backend._left = None
    loader.load(blocks, _jobs(store))
    loader.close()
    assert backend.events == ["drain 4", "close"]
    assert np.array_equal(blocks.groups[0][:, :4].numpy().reshape(-1), store.read_payload(0))


def test_files_opened_per_read_are_shut_one_by_one(tmp_path: Path) -> None:
    clock = Clock()
    backend = LastFirst(3, clock)
    _load(_store(tmp_path, open_per_read=True), backend, clock, 5)
    assert backend.events == ["shut"] * 5 + ["close"]


def test_the_first_thread_leaves_jobs_for_the_others(tmp_path: Path) -> None:
    store = _store(tmp_path, num_threads=3)
    clock = Clock()
    backends: list[LastFirst] = []

    def make() -> LastFirst:
        backends.append(LastFirst(8, clock))
        return backends[-1]

    loader = ChunkLoader(store.geometry, make, device=CPU, now_s=clock.now_s)
    split = loader.load(KVBlocks(LAYOUT, 4 * NUM_CHUNKS, CPU), _jobs(store, 6))
    loader.close()
    assert max(backend.most_in_flight for backend in backends) <= 2
    assert split.queue_depth == 24


def test_a_backend_that_cannot_register_its_targets_leaves_nothing_behind(tmp_path: Path) -> None:
    store = _store(tmp_path)
    others = set(threading.enumerate())
    backend = LastFirst(2, Clock())

    def attach(targets: Sequence[Target]) -> None:
        raise KVIOError("no memory may be locked")

    backend.attach = attach  # type: ignore[method-assign]
    with pytest.raises(KVIOError, match="may be locked"):
        ChunkLoader(store.geometry, lambda: backend, device=CPU, now_s=Clock().now_s)
    assert backend.events == ["close"]
    assert set(threading.enumerate()) == others
