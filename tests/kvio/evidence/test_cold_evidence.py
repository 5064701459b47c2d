"""A warm read is never called cold: real files, real counters, and the table of what proves what."""

import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvio.evidence import allocation as extents
from kvio.evidence.cold_evidence import (
    NOTICES,
    EvidenceError,
    ReadCounters,
    count_fresh_bytes,
    prove_cache_state,
    prove_data_path,
    read_counters,
    require_plausible,
    require_written,
)
from kvio.evidence.gds_path import CuFileReads, KvikioReads, PathCounters
from kvio.evidence.page_cache import evict, resident_bytes, warm
from kvio.evidence.storage_device import BlockDevice, PhysicalDevice, find_block_device
from kvio.protocol import CacheState, Read
from tests.helpers.places import memory_folder, require_disk

MIB = 1 << 20
SIZE_BYTES = 8 * MIB
Proof = tuple[CacheState, tuple[str, ...]]


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    return require_disk(tmp_path)


def fill(path: Path) -> Path:
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


def read_and_prove(path: Path, *, direct: bool = False, times: int = 1) -> Proof:
    """Read the file `times` times, as one sample."""
    device = find_block_device(path)
    target = mmap.mmap(-1, SIZE_BYTES)  # a page-aligned buffer, as O_DIRECT needs
    resident_before = resident_bytes(path)
    descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    before = read_counters(device)
    payload = sum(os.preadv(descriptor, [target], 0) for _ in range(times))
    moved = read_counters(device).moved_since(before)
    os.close(descriptor)
    assert payload == times * SIZE_BYTES
    return prove_cache_state(
        asked_direct=direct,
        payload_bytes=payload,
        resident_before=resident_before,
        moved=moved,
        resident_after=resident_bytes(path),
    )


def test_an_evicted_read_is_cold(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    assert read_and_prove(path) == ("cold", ())


def test_a_read_right_after_writing_is_warm(on_disk: Path) -> None:
    assert read_and_prove(fill(on_disk / "chunk")) == ("warm", ("not_cold",))


def test_a_second_read_is_warm(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    assert [read_and_prove(path)[0], read_and_prove(path)[0]] == ["cold", "warm"]


def test_a_warmed_read_is_warm(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    warm(path)
    assert read_and_prove(path) == ("warm", ("not_cold",))


def test_one_file_repeated_in_a_sample_is_partly_warm(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    assert read_and_prove(path, times=4) == ("warm", ("partly_warm",))


def test_a_part_repeated_is_not_cold_though_read_ahead_moves_the_counters(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    reads = [Read(path, 0, MIB, 0)] * 4
    device = find_block_device(path)
    before = read_counters(device)
    with path.open("rb", buffering=0) as stream:
        for _ in reads:
            assert len(os.pread(stream.fileno(), MIB, 0)) == MIB
    state, codes = prove_cache_state(
        asked_direct=False,
        payload_bytes=4 * MIB,
        resident_before=0,
        moved=read_counters(device).moved_since(before),
        fresh_bytes=count_fresh_bytes(reads),
    )
    assert state == "warm"
    assert codes[0] == "repeated"


def test_each_byte_is_fresh_once() -> None:
    one, other = Path("one"), Path("other")
    reads = [
        Read(one, 0, 10, 0),
        Read(one, 5, 10, 0),
        Read(other, 5, 10, 0),
        Read(one, 20, 5, 0),
        Read(one, 0, 2, 0),
    ]
    assert count_fresh_bytes(reads) == 15 + 10 + 5
    assert count_fresh_bytes([]) == 0


def test_repeated_direct_reads_stay_direct_and_say_so() -> None:
    assert prove_cache_state(
        asked_direct=True,
        payload_bytes=100,
        resident_before=0,
        moved=ReadCounters(100, 100),
        fresh_bytes=25,
    ) == ("direct", ("repeated",))


def test_a_file_whose_half_is_resident_is_partly_warm(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    evict(path)
    with path.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # else read-ahead brings the rest too
        stream.read(SIZE_BYTES // 2)
    assert read_and_prove(path) == ("warm", ("partly_warm",))


def test_a_direct_read_is_direct_whatever_the_page_cache_holds(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    os.sync()
    assert read_and_prove(path, direct=True) == ("direct", ())
    evict(path)
    assert read_and_prove(path, direct=True) == ("direct", ())


@pytest.mark.parametrize("direct", [False, True])
def test_tmpfs_is_warm_even_through_o_direct(direct: bool) -> None:
    with memory_folder() as folder:
        path = fill(folder / "chunk")
        evict(path)
        state, codes = read_and_prove(path, direct=direct)
    assert state == "warm"
    assert codes == (("direct_not_honoured", "not_cold") if direct else ("not_cold",))


def test_a_sparse_file_is_never_cold(on_disk: Path) -> None:
    path = on_disk / "sparse"
    with path.open("wb") as stream:
        stream.truncate(SIZE_BYTES)
    assert read_and_prove(path) == ("warm", ("not_cold",))
    with pytest.raises(EvidenceError, match=rf"sparse, a hole at byte 0 of {SIZE_BYTES}"):
        require_written(path)


def test_a_fallocated_file_is_never_cold(on_disk: Path) -> None:
    path = on_disk / "allocated"
    with path.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, SIZE_BYTES)
    assert path.stat().st_blocks * 512 >= SIZE_BYTES  # st_blocks shows nothing
    assert read_and_prove(path) == ("warm", ("not_cold",))
    with pytest.raises(EvidenceError, match="allocated but never written at byte 0"):
        require_written(path)


def test_a_hole_in_the_middle_is_found(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    with path.open("r+b") as stream:
        stream.seek(2 * SIZE_BYTES)
        stream.write(b"tail")
    with pytest.raises(EvidenceError, match=rf"hole at byte {SIZE_BYTES} of {2 * SIZE_BYTES + 4}"):
        require_written(path)


def test_an_unwritten_tail_is_found(on_disk: Path) -> None:
    path = fill(on_disk / "chunk")
    with path.open("r+b") as stream:
        os.posix_fallocate(stream.fileno(), 0, 2 * SIZE_BYTES)
    with pytest.raises(EvidenceError, match=f"allocated but never written at byte {SIZE_BYTES}"):
        require_written(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(EvidenceError, match="empty"):
        require_written(tmp_path / "empty")


def test_a_sparse_file_is_found_on_tmpfs_too() -> None:
    with memory_folder() as folder:
        path = folder / "sparse"
        with path.open("wb") as stream:
            stream.truncate(SIZE_BYTES)
        with pytest.raises(EvidenceError, match="sparse"):
            require_written(path)


def test_a_file_of_more_extents_than_one_call_gives_is_walked_to_its_end(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = 256 * 1024
    path = on_disk / "fragments"
    with path.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 8 * piece)
        for number in (0, 2, 4, 6):  # written and unwritten pieces by turns
            os.pwrite(stream.fileno(), os.urandom(piece), number * piece)
        os.fsync(stream.fileno())
        monkeypatch.setattr(extents, "_EXTENTS_PER_CALL", 3)
        found = list(extents._extents(stream.fileno()))
    unwritten = [logical for logical, flags in found if flags & extents.FIEMAP_EXTENT_UNWRITTEN]
    assert unwritten == [number * piece for number in (1, 3, 5, 7)]


@pytest.fixture
def on_loop(tmp_path: Path) -> Iterator[Path]:
    """A file system in a file, mounted."""
    image, point = require_disk(tmp_path) / "image", tmp_path / "mounted"
    with image.open("wb") as stream:
        stream.truncate(64 * MIB)
    point.mkdir()
    made = (
        subprocess.run(["mkfs.ext4", "-q", image], capture_output=True) if shutil.which("mkfs.ext4") else None
    )
    if (
        made is None
        or made.returncode
        or subprocess.run(["mount", "-o", "loop", image, point], capture_output=True).returncode
    ):
        pytest.skip("no loop mounts here")
    yield point
    subprocess.run(["umount", point], check=True)


@pytest.mark.root
def test_on_a_loop_device_nothing_is_proved(on_loop: Path, tmp_path: Path) -> None:
    path = fill(on_loop / "chunk")
    evict(path)
    warm(tmp_path / "image")
    assert resident_bytes(path) == 0  # here, though not in the image below
    assert read_and_prove(path) == ("unverified", ("counters_missing",))
    assert read_and_prove(path, direct=True) == ("unverified", ("counters_missing",))


def test_a_written_file_passes(on_disk: Path) -> None:
    require_written(fill(on_disk / "chunk"))


@pytest.mark.parametrize(
    ("direct", "resident", "process", "device", "expected"),
    [
        # buffered, both counters known
        (False, 0, 100, 100, ("cold", ())),
        (False, 0, 98, 98, ("cold", ())),
        (
            False,
            0,
            97,
            100,
            ("unverified", ("partly_counted",)),
        ),  # somebody else brought the rest into the page cache
        (False, 0, 3, 100, ("unverified", ("partly_counted",))),
        (False, 0, 2, 100, ("unverified", ("counters_missing",))),
        (False, 0, 100, 97, ("warm", ("below_page_cache",))),
        (False, 0, 100, 0, ("warm", ("below_page_cache",))),
        (False, 0, 0, 0, ("warm", ("not_cold",))),
        (False, 1, 100, 100, ("unverified", ("partly_warm",))),
        (False, 50, 50, 50, ("warm", ("partly_warm",))),
        (False, 100, 0, 0, ("warm", ("not_cold",))),
        (False, 100, 0, 500, ("warm", ("not_cold",))),  # a neighbour keeps the device busy
        (False, 0, 0, 500, ("unverified", ("counters_missing",))),
        (False, None, 100, 100, ("unverified", ("residency_unknown",))),
        (False, None, 0, 0, ("warm", ("not_cold",))),
        # buffered, a counter missing
        (False, 0, 100, None, ("unverified", ("device_counter_missing",))),
        (False, 100, 0, None, ("warm", ("not_cold",))),
        (False, 0, 0, None, ("unverified", ("counters_missing",))),
        (False, 0, None, 100, ("unverified", ("counters_missing",))),
        (False, 0, None, 0, ("warm", ("not_cold",))),
        (False, 0, None, None, ("unverified", ("counters_missing",))),
        # O_DIRECT asked
        (True, 0, 100, 100, ("direct", ())),
        (True, 100, 100, 100, ("direct", ())),
        (True, None, 100, 100, ("direct", ())),
        (True, 0, 100, None, ("unverified", ("device_counter_missing",))),
        (True, 0, 100, 10, ("unverified", ("below_page_cache",))),
        (True, 100, 97, 97, ("warm", ("direct_not_honoured", "partly_warm"))),
        (True, 100, 0, 0, ("warm", ("direct_not_honoured", "not_cold"))),
        (True, 0, None, 100, ("unverified", ("counters_missing",))),
        (True, 0, None, None, ("unverified", ("counters_missing",))),
    ],
)
def test_the_table_of_proofs(
    direct: bool, resident: int | None, process: int | None, device: int | None, expected: Proof
) -> None:
    scaled = [None if value is None else value * MIB for value in (resident, process, device)]
    proved = prove_cache_state(
        asked_direct=direct,
        payload_bytes=100 * MIB,
        resident_before=scaled[0],
        moved=ReadCounters(scaled[1], scaled[2]),
    )
    assert proved == expected
    assert set(proved[1]) <= set(NOTICES)


def test_a_direct_read_that_filled_the_page_cache_was_none() -> None:
    moved = ReadCounters(100 * MIB, 100 * MIB)
    state, codes = prove_cache_state(
        asked_direct=True, payload_bytes=100 * MIB, resident_before=0, moved=moved, resident_after=100 * MIB
    )
    assert (state, codes) == ("cold", ("direct_not_honoured",))


def test_the_one_page_that_an_odd_tail_leaves_is_allowed() -> None:
    moved = ReadCounters(MIB // 16, MIB // 16)
    state, codes = prove_cache_state(
        asked_direct=True,
        payload_bytes=MIB // 16,
        resident_before=0,
        moved=moved,
        resident_after=mmap.PAGESIZE,
    )
    assert (state, codes) == ("direct", ())


def test_no_payload_proves_nothing() -> None:
    assert prove_cache_state(
        asked_direct=True, payload_bytes=0, resident_before=0, moved=ReadCounters(0, 0)
    ) == ("unverified", ("nothing_read",))


@pytest.mark.parametrize(
    ("backend", "direct", "state", "expected"),
    [
        ("posix", True, "direct", "posix-direct"),
        ("posix", True, "warm", "posix-buffered"),
        ("posix", True, "cold", "posix-buffered"),
        ("posix", True, "unverified", "posix-unverified"),
        ("posix", False, "cold", "posix-buffered"),
        ("posix", False, "unverified", "posix-buffered"),
        ("uring", True, "direct", "uring-direct"),
        ("hostmem", True, "warm", "hostmem"),
        ("null", False, "unverified", "null"),
        ("gds", True, "direct", "gds-unverified"),
    ],
)
def test_the_data_path_is_what_was_proved(
    backend: str, direct: bool, state: CacheState, expected: str
) -> None:
    assert prove_data_path(
        backend=backend,
        asked_direct=direct,
        state=state,
        payload_bytes=4096,
        moved=ReadCounters(4096, 4096),
    ) == (expected, ())


def test_counters_of_libraries_on_the_way_decide_the_path_where_there_are_any() -> None:
    def after(num_p2p: int) -> ReadCounters:
        cufile = CuFileReads(num_bytes=4096 * num_p2p, gpu_bytes=4096 * num_p2p, num_p2p=num_p2p)
        return ReadCounters(0, 4096 * num_p2p, PathCounters(False, KvikioReads(0, 4096 * num_p2p), cufile))

    def prove(moved: ReadCounters) -> tuple[str, tuple[str, ...]]:
        return prove_data_path(
            backend="gds", asked_direct=True, state="direct", payload_bytes=4096, moved=moved
        )

    assert prove(after(3).moved_since(after(2))) == ("gds-p2pdma", ())
    assert prove(after(2).moved_since(after(2))) == ("gds-unverified", ("gds_unproven",))
    assert prove(after(3).moved_since(ReadCounters(0, 0))) == ("gds-unverified", ())


def counter_tree(root: Path, *, read_bytes: int, sectors: dict[str, int]) -> Path:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/io").write_text(f"rchar: 9\nsyscr: 1\nread_bytes: {read_bytes}\nwrite_bytes: 7\n")
    for name, count in sectors.items():
        (root / "sys/block" / name).mkdir(parents=True, exist_ok=True)
        (root / "sys/block" / name / "stat").write_text(f"  11  22 {count}  44 55 66 77 88 0 99 100\n")
    return root


def striped(**changes: bool) -> BlockDevice:
    disks = tuple(
        PhysicalDevice(name, f"8:{number}", **changes) for number, name in enumerate(("sda", "sdb"))
    )
    return BlockDevice("md0", "9:0", ("9:0",), disks)


def test_sectors_of_all_physical_devices_are_summed(tmp_path: Path) -> None:
    root = counter_tree(tmp_path, read_bytes=1000, sectors={"sda": 10, "sdb": 5})
    before = read_counters(striped(), root)
    assert before == ReadCounters(1000, 15 * 512)
    counter_tree(tmp_path, read_bytes=5000, sectors={"sda": 12, "sdb": 5})
    assert read_counters(striped(), root).moved_since(before) == ReadCounters(4000, 1024)


def test_a_counter_nobody_keeps_is_missing_not_zero(tmp_path: Path) -> None:
    root = counter_tree(tmp_path, read_bytes=1, sectors={"sda": 10})
    assert read_counters(striped(), root).device_bytes is None  # sdb has no stat
    assert read_counters(striped(counts_reads=False), root).device_bytes is None
    assert read_counters(None, tmp_path / "nowhere") == ReadCounters(None, None)


def test_a_counter_that_ran_backwards_says_nothing() -> None:
    assert ReadCounters(5, 7).moved_since(ReadCounters(6, 7)) == ReadCounters(None, 0)


def test_a_rate_above_the_link_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"44\.67 GB/s read over a link of 3\.94 GB/s"):
        require_plausible(44_670_000_000, 1.0, 3.938e9)
    require_plausible(3_900_000_000, 1.0, 3.938e9)
    require_plausible(44_670_000_000, 1.0, None)


def test_a_read_in_no_time_is_refused() -> None:
    with pytest.raises(EvidenceError, match="no time passed"):
        require_plausible(1, 0.0, None)
