"""A warm read is never called cold: the load arm on real files, with the kernel's own counters."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

import bench.arms.read_evidence
from bench.arms.chunk_reading import LoadSettings
from bench.arms.load import LoadArm
from bench.arms.read_evidence import ReadEvidence
from bench.record.sample import Case, Outcome
from kvio.backends.config import HostMemory
from kvio.evidence.cold_evidence import EvidenceError
from kvio.evidence.page_cache import warm
from kvio.evidence.storage_device import describe_storage
from kvio.file_ranges import Span, SpanMap
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import LoadSplit
from kvio.loading.read_plan import ChunkRead, plan_jobs, spans_of
from kvio.protocol import KVIOError, Read
from kvio.store.chunk_store import ChunkStore
from tests.arms.test_load import FakeEvidence
from tests.helpers.places import memory_folder, require_disk

LAYOUT = uniform_layout(8, 4096)  # 65,536 bytes per token
CASE = Case("load", "load", 65)  # one chunk of 64 tokens: 4 MiB
Opener = Callable[..., LoadArm]


@pytest.fixture
def open_arm() -> Iterator[Opener]:
    arms: list[LoadArm] = []

    def make(folder: Path, *, direct: bool, num_chunks: int = 2) -> LoadArm:
        geometry = ChunkGeometry(LAYOUT, adapt_preset(find_preset("best"), direct=direct))
        arm = LoadArm(
            ChunkStore.create(folder, geometry, num_chunks=num_chunks, seed=0),
            LoadSettings("posix"),
            make_blocks=lambda tokens: KVBlocks(LAYOUT, tokens, torch.device("cpu")),
            device=torch.device("cpu"),
            now_s=time.monotonic,
            evidence=ReadEvidence(describe_storage(folder)),
            first_token=None,
        )
        arms.append(arm)
        return arm

    yield make
    for arm in arms:
        arm.close()


def _sample(arm: LoadArm) -> Outcome:
    arm.prepare(CASE)
    return arm.run(CASE)


@pytest.mark.parametrize(("direct", "state"), [(True, "direct"), (False, "cold")])
def test_an_evicted_read_from_a_disk_is_proved(
    open_arm: Opener, tmp_path: Path, direct: bool, state: str
) -> None:
    require_disk(tmp_path)
    outcome = _sample(open_arm(tmp_path, direct=direct))
    assert outcome.cache_state == state
    assert outcome.data_path == ("posix-direct" if direct else "posix-buffered")
    assert outcome.process_bytes is not None
    assert outcome.process_bytes >= 4 << 20
    assert outcome.notices == ()


def test_without_eviction_a_buffered_read_is_warm(
    open_arm: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_disk(tmp_path)
    arm = open_arm(tmp_path, direct=False)
    monkeypatch.setattr(bench.arms.read_evidence, "evict", warm)
    outcome = _sample(arm)
    assert outcome.cache_state == "warm"
    assert outcome.notices != ()


def test_the_second_read_of_one_file_is_evicted_and_proved_again(open_arm: Opener, tmp_path: Path) -> None:
    require_disk(tmp_path)
    arm = open_arm(tmp_path, direct=False, num_chunks=2)
    first, second = _sample(arm), _sample(arm)
    assert (first.cache_state, second.cache_state) == ("cold", "cold")
    assert "bytes_read_again" not in first.notices
    assert "bytes_read_again" in _sample(arm).notices + second.notices


@pytest.mark.parametrize("direct", [True, False])
def test_memory_is_never_cold_and_never_direct(open_arm: Opener, direct: bool) -> None:
    with memory_folder() as folder:
        outcome = _sample(open_arm(folder, direct=direct))
    assert outcome.cache_state in {"warm", "unverified"}
    assert outcome.data_path != "posix-direct"
    assert outcome.notices != ()


def test_an_allocated_file_that_was_never_written_is_never_timed(open_arm: Opener, tmp_path: Path) -> None:
    require_disk(tmp_path)
    arm = open_arm(tmp_path, direct=True)
    path = tmp_path / "chunk-000000.kv"
    size = path.stat().st_size
    path.unlink()
    with path.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, size)
    with pytest.raises(EvidenceError, match="never written"):
        arm.prepare(CASE)


def test_a_direct_read_that_the_file_system_buffered_is_not_called_direct(
    open_arm: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_disk(tmp_path)
    arm = open_arm(tmp_path, direct=True)
    load = arm.reading.loader.load

    def load_through_the_page_cache(blocks: KVBlocks, jobs: Sequence[ChunkRead]) -> LoadSplit:
        """As ext4 with data=journal does: the flag stays, both counters move, and the pages are there afterwards."""
        split = load(blocks, jobs)
        for path in {job.path for job in jobs}:
            warm(path)
        return split

    monkeypatch.setattr(arm.reading.loader, "load", load_through_the_page_cache)
    outcome = _sample(arm)
    assert (outcome.cache_state, outcome.data_path) == ("cold", "posix-buffered")
    assert outcome.notices == ("direct_not_honoured",)


LAYOUT_SPANS = uniform_layout(2, 128)  # two layers of 128 bytes per token and plane
CPU = torch.device("cpu")
A, B = Path("a"), Path("b")


def _store(folder: Path, preset: str) -> ChunkStore:
    geometry = ChunkGeometry(LAYOUT_SPANS, adapt_preset(find_preset(preset), chunk_tokens=16))
    return ChunkStore.create(folder, geometry, num_chunks=32, seed=1)


def _job(path: Path, chunk_id: int | None, *ranges: tuple[int, int]) -> ChunkRead:
    reads = tuple(Read(path, start, num_bytes, 0) for start, num_bytes in ranges)
    return ChunkRead(path, chunk_id, 0, reads, ())


@pytest.mark.parametrize(
    ("jobs", "spans"),
    [
        ([_job(A, 0, (0, 4), (4, 4)), _job(A, 0, (8, 4))], [Span(A, 0, 12)]),
        ([_job(A, 1, (8, 8)), _job(A, 0, (0, 8))], [Span(A, 0, 8), Span(A, 8, 8)]),
        ([_job(A, 0, (0, 4), (8, 4)), _job(B, 0, (0, 4))], [Span(A, 0, 4), Span(A, 8, 4), Span(B, 0, 4)]),
        ([_job(A, 3, (0, 8)), _job(A, 3, (0, 8)), _job(A, 3, (4, 8))], [Span(A, 0, 12)]),
        ([_job(A, 3, (0, 8)), _job(A, 4, (6, 8))], [Span(A, 0, 14)]),
        ([_job(B, None, (0, 4))], [Span(B, 0, 4)]),
        ([], []),
    ],
    ids=["one chunk", "slots", "gaps and files", "twice", "overlap", "state", "nothing"],
)
def test_jobs_name_each_byte_once_and_touching_chunks_apart(jobs: list[ChunkRead], spans: list[Span]) -> None:
    assert spans_of(jobs) == spans


def test_a_read_is_found_in_the_span_that_it_begins_in() -> None:
    held = SpanMap[str]()
    held.put(Span(A, 8, 8), "second")
    held.put(Span(A, 0, 8), "first")
    assert held.find(A, 10) == ("second", 2)
    assert held.find(A, 7) == ("first", 7)
    assert held.keep([Span(A, 8, 8), Span(B, 0, 8)]) == ["first"]
    assert held.find(A, 7) is None
    assert (held.has(A), held.has(B)) == (True, False)


def test_of_a_container_only_the_chunks_of_a_sample_are_held(tmp_path: Path) -> None:
    store = _store(tmp_path, "kvbm")
    (container,) = {store.chunk_path(number) for number in range(32)}
    memory = HostMemory()
    memory.load_into_memory(spans_of(plan_jobs(store, [5, 6], first_token=0, prefix_tokens=32)))
    sizes = [len(content) for content in memory.held.contents.values()]
    assert sizes == [store.geometry.padded_bytes] * 2
    assert sum(sizes) * 16 == container.stat().st_size


@pytest.mark.parametrize("preset", ["kvbm", "vllm-offload", "lmcache-raw", "best", "sglang-layer-first"])
def test_loads_from_memory_bring_what_was_stored_and_hold_no_more_than_they_read(
    tmp_path: Path, preset: str
) -> None:
    arm = LoadArm(
        _store(tmp_path, preset),
        LoadSettings("hostmem"),
        make_blocks=lambda tokens: KVBlocks(LAYOUT_SPANS, tokens, CPU),
        device=CPU,
        now_s=time.monotonic,
        evidence=FakeEvidence(),
        first_token=None,
    )
    memory = arm.reading._depot
    assert isinstance(memory, HostMemory)
    for _ in range(3):
        arm.prepare(Case("load", "s", 100, 0))
        outcome = arm.run(Case("load", "s", 100, 0))
        assert outcome.verified is True
        held_bytes = sum(len(content) for content in memory.held.contents.values())
        assert held_bytes == 7 * arm.reading.geometry.padded_bytes
    arm.close()
    assert memory.held.contents == {}


def test_a_sparse_file_larger_than_memory_is_no_matter_when_little_of_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "container"
    with path.open("wb") as stream:
        os.truncate(stream.fileno(), 1 << 43)
    memory = HostMemory()
    memory.load_into_memory([Span(path, 1 << 42, 4096)])
    assert memory.held.find(path, 1 << 42) == (bytes(4096), 0)
    with pytest.raises(KVIOError, match="gone: No such file"):
        memory.load_into_memory([Span(tmp_path / "gone", 0, 1)])
