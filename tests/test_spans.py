"""Memory that stands in for storage holds what is read of the files, and not the rest of them."""

import os
import time
from pathlib import Path

import pytest
import torch

from bench.arms.chunk_reading import LoadSettings
from bench.arms.load import LoadArm
from bench.record.sample import Case
from kvio.backends.config import HostMemory
from kvio.file_ranges import Span, SpanMap
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.read_plan import Job, plan_jobs, spans_of
from kvio.protocol import KVIOError, Read
from kvio.store.chunk_store import ChunkStore
from tests.test_load_arm import FakeEvidence

LAYOUT = uniform_layout(2, 128)  # two layers of 128 bytes per token and plane
CPU = torch.device("cpu")
A, B = Path("a"), Path("b")


def _store(folder: Path, preset: str) -> ChunkStore:
    geometry = ChunkGeometry(LAYOUT, adapt_preset(find_preset(preset), chunk_tokens=16))
    return ChunkStore.create(folder, geometry, num_chunks=32, seed=1)


def _job(path: Path, chunk_id: int | None, *ranges: tuple[int, int]) -> Job:
    reads = tuple(Read(path, start, num_bytes, 0) for start, num_bytes in ranges)
    return Job(path, chunk_id, 0, reads, ())


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
def test_jobs_name_each_byte_once_and_touching_chunks_apart(jobs: list[Job], spans: list[Span]) -> None:
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
    memory.hold(spans_of(plan_jobs(store, [5, 6], first_token=0, prefix_tokens=32)))
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
        make_blocks=lambda tokens: KVBlocks(LAYOUT, tokens, CPU),
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
    memory.hold([Span(path, 1 << 42, 4096)])
    assert memory.held.find(path, 1 << 42) == (bytes(4096), 0)
    with pytest.raises(KVIOError, match="gone: No such file"):
        memory.hold([Span(tmp_path / "gone", 0, 1)])
