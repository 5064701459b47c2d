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
from bench.arms.read_evidence import KernelEvidence
from bench.record.sample import Case, Outcome
from kvio.evidence.cold_evidence import EvidenceError
from kvio.evidence.page_cache import warm
from kvio.evidence.storage_device import describe_storage
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import LoadSplit
from kvio.loading.read_plan import Job
from kvio.store.chunk_store import ChunkStore
from tests.places import memory_folder, require_disk

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
            evidence=KernelEvidence(describe_storage(folder)),
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

    def load_through_the_page_cache(blocks: KVBlocks, jobs: Sequence[Job]) -> LoadSplit:
        """As ext4 with data=journal does: the flag stays, both counters move, and the pages are there afterwards."""
        split = load(blocks, jobs)
        for path in {job.path for job in jobs}:
            warm(path)
        return split

    monkeypatch.setattr(arm.reading.loader, "load", load_through_the_page_cache)
    outcome = _sample(arm)
    assert (outcome.cache_state, outcome.data_path) == ("cold", "posix-buffered")
    assert outcome.notices == ("direct_not_honoured",)
