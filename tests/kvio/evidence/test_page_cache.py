"""The page cache as the kernel sees it, on a real disk and on tmpfs."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvio.evidence import page_cache as pagecache
from kvio.evidence.page_cache import evict, resident_bytes, warm
from tests.helpers.places import memory_folder, require_disk

SIZE_BYTES = 3 * 1024 * 1024 + 100


def fill(path: Path, size_bytes: int = SIZE_BYTES) -> Path:
    path.write_bytes(os.urandom(size_bytes))
    return path


def count_with(name: str) -> Callable[[Path], int]:
    """One of the two ways to count, by itself."""

    def count(path: Path) -> int:
        with path.open("rb") as stream:
            if name == "mincore":
                pages = pagecache._count_by_mincore(stream.fileno(), path.stat().st_size)
            else:
                pages = pagecache._count_by_cachestat(stream.fileno())
        if pages is None:
            pytest.skip(f"{name} does not answer here")
        return pages

    return count


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    return require_disk(tmp_path)


def test_a_written_file_is_resident_and_gone_after_evict(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    assert resident_bytes(path) == SIZE_BYTES
    evict(path)
    assert resident_bytes(path) == 0


def test_warm_makes_every_byte_resident(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    warm(path)
    assert resident_bytes(path) == SIZE_BYTES


def test_asking_twice_does_not_warm(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    assert [resident_bytes(path), resident_bytes(path)] == [0, 0]


def test_a_read_of_the_head_leaves_the_file_partly_resident(on_disk: Path) -> None:
    path = fill(on_disk / "chunk", 16 * 1024 * 1024)
    evict(path)
    with path.open("rb", buffering=0) as stream:
        stream.read(mmap.PAGESIZE)
    resident = resident_bytes(path)
    assert resident is not None
    assert mmap.PAGESIZE <= resident < 16 * 1024 * 1024


def test_tmpfs_stays_resident_whatever_is_asked() -> None:
    with memory_folder() as folder:
        path = fill(folder / "chunk")
        evict(path)
        assert resident_bytes(path) == SIZE_BYTES


def test_mapped_pages_survive_evict(on_disk: Path) -> None:
    path = fill(on_disk / "chunk", 8 * mmap.PAGESIZE)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        assert sum(mapping[::1]) > 0  # touch every page
        evict(path)
        assert resident_bytes(path) == 8 * mmap.PAGESIZE
    evict(path)
    assert resident_bytes(path) == 0


@pytest.mark.parametrize("name", ["cachestat", "mincore"])
def test_both_ways_count_the_same_pages(name: str, on_disk: Path) -> None:
    count = count_with(name)
    path = fill(on_disk / "chunk", 5 * mmap.PAGESIZE + 1)
    assert count(path) == 6
    evict(path)
    assert count(path) == 0


def test_mincore_answers_where_cachestat_is_missing(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fill(on_disk / "chunk")
    monkeypatch.setattr(pagecache, "_count_by_cachestat", lambda descriptor: None)
    assert resident_bytes(path) == SIZE_BYTES
    evict(path)
    assert resident_bytes(path) == 0


def test_where_neither_answers_residency_is_unknown_not_zero(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(on_disk / "chunk")
    monkeypatch.setattr(pagecache, "_count_by_cachestat", lambda descriptor: None)
    monkeypatch.setattr(pagecache, "_may_ask_mincore", lambda descriptor: False)
    assert resident_bytes(path) is None


def test_a_missing_syscall_is_not_an_error(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagecache, "CACHESTAT_SYSCALL", 100_000)
    assert resident_bytes(fill(on_disk / "chunk")) == SIZE_BYTES


def test_an_empty_file_has_nothing_resident(on_disk: Path) -> None:
    assert resident_bytes(fill(on_disk / "empty", 0)) == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        resident_bytes(tmp_path / "nowhere")
