"""Several jobs in flight in one thread: out of order, counted, drained after failures."""

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bench.measure.setup import resolve_plan
from bench.record.plan import LoadSpec, Plan
from bench.report.fio_match import differences, reading_of
from kvio.backends import BACKENDS
from kvio.backends.blocking import BlockingBackend
from kvio.backends.config import BackendConfig
from kvio.backends.gds import gds_backend as gds
from kvio.backends.gds.gds_backend import MAX_READS, GdsBackend
from kvio.backends.local.hostmem_pinned import PinnedBackend
from kvio.backends.local.uring import UringBackend
from kvio.backends.mooncake.mooncake_backend import MooncakeBackend
from kvio.backends.nixl.nixl_backend import NixlBackend
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader, LoadSplit
from kvio.loading.read_plan import ChunkRead, plan_jobs
from kvio.protocol import NO_LIMIT, Arrival, DeviceTarget, HostTarget, KVIOError, Read, Target, most_reads
from kvio.store.chunk_store import ChunkStore
from tests.helpers.commands import call_bench
from tests.helpers.sweeps import make_run
from tests.report.test_fio_match import _as_fio_says

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
        self.max_in_flight = 0
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
        self.max_in_flight = max(self.max_in_flight, len(self._submitted))

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


def _jobs(store: ChunkStore, num_chunks: int = NUM_CHUNKS) -> tuple[ChunkRead, ...]:
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
    assert backend.max_in_flight == min(queue_depth, NUM_CHUNKS)
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
    assert max(backend.max_in_flight for backend in backends) <= 2
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


READS = 8  # of a job: a chunk of four layers, keys and values apart


def _run_in_order(backend: LastFirst, clock: Clock, folder: Path) -> tuple[int, float | None]:
    """The depths of a load of two jobs."""
    preset = adapt_preset(find_preset("sglang-layer-first"), chunk_tokens=4)
    store = ChunkStore.create(folder, ChunkGeometry(LAYOUT, preset), num_chunks=2, seed=1)
    jobs = plan_jobs(store, range(2), first_token=0, prefix_tokens=8)
    assert [len(job.reads) for job in jobs] == [READS, READS]
    loader = ChunkLoader(store.geometry, lambda: backend, device=CPU, now_s=clock.now_s)
    try:
        split = loader.load(KVBlocks(LAYOUT, 8, CPU), jobs)
    finally:
        loader.close()
    return split.queue_depth, split.achieved_queue_depth


@pytest.mark.parametrize(
    ("at_once", "queue_depth", "read_seconds"),
    [
        # opened at 0.25 and 0.5 s, arrived at 1.5 and 2.5 s, when the load ends: so many reads in flight in between
        (None, 2, 1 * 0.25 + 2 * 1 + 1 * 1),
        (NO_LIMIT, 2 * READS, 8 * 0.25 + 16 * 1 + 8 * 1),
        (5, 5, 5 * 0.25 + 5 * 1 + 5 * 1),
        (12, 12, 8 * 0.25 + 12 * 1 + 8 * 1),
    ],
    ids=["one of each job", "all", "at most 5", "at most 12"],
)
def test_the_depth_counts_the_reads_that_are_in_flight_together(
    tmp_path: Path, at_once: int | None, queue_depth: int, read_seconds: float
) -> None:
    clock = Clock()
    backend = LastFirst(2, clock)
    backend.reads_at_once = at_once
    assert _run_in_order(backend, clock, tmp_path) == (
        queue_depth,
        pytest.approx(read_seconds / 2.5, rel=1e-12),
    )


def test_every_backend_says_what_its_entry_says() -> None:
    together = {
        "hostmem-pinned": PinnedBackend,
        "mooncake": MooncakeBackend,
        "gds": GdsBackend,
    } | dict.fromkeys(("nixl", "nixl-gds", "nixl-obj"), NixlBackend)
    for name, kind in BACKENDS.items():
        one_by_one = UringBackend if name == "uring" else BlockingBackend
        assert together.get(name, one_by_one).reads_at_once == kind.reads_at_once, name
    assert {name for name, kind in BACKENDS.items() if kind.reads_at_once is not None} == set(together)
    assert [most_reads(4, 72, at_once) for at_once in (None, 64, NO_LIMIT)] == [4, 64, 288]


@pytest.mark.parametrize(
    ("backend", "layout", "queue_depth", "recorded"),
    [
        ("nixl", "sglang-layer-first", None, 288),
        ("gds", "sglang-layer-first", None, 64),
        ("uring", "sglang-layer-first", None, 4),
        ("posix", "sglang-layer-first", None, 1),
        ("nixl", "lmcache-raw", 8, 16),
        ("hostmem-pinned", "mlperf-npy", 4, 8),
        ("nixl", "best", 16, 16),
    ],
)
def test_a_series_records_the_reads_of_all_its_jobs(
    backend: str, layout: str, queue_depth: int | None, recorded: int
) -> None:
    spec = LoadSpec(backend=backend, preset=layout, queue_depth=queue_depth)
    setup = resolve_plan(Plan(model="qwen3-8b", loads=(spec,)))
    assert setup.series[spec.series].settings["queue_depth"] == recorded


@pytest.mark.parametrize("backend", ["nixl", "uring", "posix"])
def test_the_job_of_fio_for_a_series_keeps_as_many_reads_in_flight(tmp_path: Path, backend: str) -> None:
    spec = LoadSpec(backend=backend, preset="sglang-layer-first")
    setup = resolve_plan(Plan(model="qwen3-8b", loads=(spec,)))
    run = make_run(series=setup.series, model_name=setup.model.name, plan=setup.plan)
    reading, settings = reading_of(run, spec.series), setup.series[spec.series].settings
    command = [
        *("fio", "--model", "qwen3-8b", "--layout", "sglang-layer-first", "--working-set", "64GiB"),
        *("--kv-dtype", run.plan.kv_dtype or run.plan.dtype, "--queue-depth", str(reading.in_flight)),
        "--no-buffered" if reading.direct else "--buffered",
        *("--engine", "psync" if backend == "posix" else "io_uring"),
        *(() if backend == "posix" else ("--threads", str(settings["num_threads"]))),
    ]
    done = call_bench(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert differences(_as_fio_says(done.stdout, tmp_path), reading) == ()


class Pool:
    """Stands for kvikio: counts the reads that it was given and that nobody has waited for."""

    def __init__(self) -> None:
        self.open: set[Path] = set()
        self.in_flight = self.most = 0

    def CuFile(self, path: Path) -> "Handle":  # noqa: N802 - kvikio's name
        self.open.add(path)
        return Handle(self, path)


class Handle:
    def __init__(self, pool: Pool, path: Path) -> None:
        self._pool = pool
        self._path = path

    def pread(self, place: object, num_bytes: int, offset: int, task_bytes: int) -> "Future":
        assert self._path in self._pool.open
        self._pool.in_flight += 1
        self._pool.most = max(self._pool.most, self._pool.in_flight)
        content = self._path.read_bytes()[offset : offset + num_bytes]
        place[:] = torch.frombuffer(bytearray(content), dtype=torch.uint8).numpy()  # type: ignore[index]
        return Future(self._pool, len(content))

    def is_direct_io_supported(self) -> bool:
        return True

    def close(self) -> None:
        self._pool.open.discard(self._path)


class Future:
    def __init__(self, pool: Pool, num_bytes: int) -> None:
        self._pool = pool
        self._num_bytes = num_bytes

    def done(self) -> bool:
        return True

    def get(self) -> int:
        self._pool.in_flight -= 1
        return self._num_bytes


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool()
    monkeypatch.setattr(gds, "join_process", lambda configuration: SimpleNamespace(kvikio=made))
    monkeypatch.setattr(gds, "find_driver_kind", lambda: "gpu")
    yield made
    assert (made.in_flight, made.open) == (0, set())


def _gds(num_jobs: int, num_bytes: int) -> tuple[GdsBackend, list[DeviceTarget]]:
    backend = GdsBackend(BackendConfig(queue_depth=num_jobs, options={"compat": "on"}))
    targets = [DeviceTarget(n, torch.zeros(num_bytes, dtype=torch.uint8)) for n in range(num_jobs)]
    backend.attach(targets)
    return backend, targets


def test_gds_has_64_reads_of_a_thread_in_flight_at_most_and_brings_all(tmp_path: Path, pool: Pool) -> None:
    content = os.urandom(200 * 16)
    path = tmp_path / "chunk"
    path.write_bytes(content)
    backend, targets = _gds(3, len(content))
    backend.open(path)
    for ticket, target in enumerate(targets):
        backend.submit(ticket, [Read(path, 16 * n, 16, 16 * n) for n in range(200)], target)
    backend.shut(path)  # still to be read
    arrivals = deque[tuple[int, int]]()
    while len(arrivals) < 3:
        arrivals.extend((arrival.ticket, arrival.num_bytes) for arrival in backend.wait())
    assert list(arrivals) == [(n, len(content)) for n in range(3)]
    assert [bytes(target.tensor.numpy()) for target in targets] == [content] * 3
    assert pool.most == MAX_READS == 64
    backend.close()


def test_gds_forgets_reads_that_were_never_begun_and_goes_on(tmp_path: Path, pool: Pool) -> None:
    path = tmp_path / "chunk"
    path.write_bytes(bytes(4096))
    backend, (target,) = _gds(1, 4096)
    for _ in range(2):
        backend.open(path)
        backend.submit(0, [Read(path, 16 * n, 16, 16 * n) for n in range(200)], target)
        assert pool.in_flight == 64
        backend.drain()
        assert pool.in_flight == 0
    backend.close()
