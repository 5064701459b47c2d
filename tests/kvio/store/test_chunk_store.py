"""Chunk files: fully written, told apart, checked, private; and what happens when they cannot be."""

import dataclasses
import os
import stat
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from kvio.evidence.cold_evidence import require_written
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import KVLayout, Plane, uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.store.chunk_store import ChunkStore, VerificationError
from kvio.store.manifest import MANIFEST_NAME
from kvio.store.store_files import StoreError, require_space

GEOMETRY = ChunkGeometry(uniform_layout(4, 512), adapt_preset(find_preset("best"), chunk_tokens=16))


def _create(directory: Path, num_chunks: int = 3, seed: int = 7) -> ChunkStore:
    return ChunkStore.create(directory, GEOMETRY, num_chunks=num_chunks, seed=seed)


def test_a_store_reopens_with_its_geometry_and_every_chunk_verifies(tmp_path: Path) -> None:
    _create(tmp_path)
    store = ChunkStore.open(tmp_path)
    assert store.geometry == GEOMETRY
    assert store.num_chunks == 3
    for chunk_id in range(3):
        store.verify(chunk_id)


def test_chunks_are_told_apart_by_seed_and_number_and_nothing_repeats_or_compresses(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = _create(tmp_path / "a"), _create(tmp_path / "b", seed=8)
    payloads = [store.read_payload(number) for store in (first, second) for number in range(3)]
    assert len({payload.tobytes() for payload in payloads}) == 6
    content = payloads[0].tobytes()
    assert len(zlib.compress(content)) > len(content)
    pages = {content[start : start + 256] for start in range(0, len(content), 256)}
    assert len(pages) == len(content) // 256


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = _create(tmp_path / "a"), _create(tmp_path / "b")
    assert np.array_equal(first.read_payload(2), second.read_payload(2))


def test_files_are_private_whole_and_without_holes(tmp_path: Path) -> None:
    store = _create(tmp_path)
    for path in (*(store.chunk_path(number) for number in range(3)), tmp_path / MANIFEST_NAME):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with path.open("rb") as stream:
            assert os.lseek(stream.fileno(), 0, os.SEEK_HOLE) == path.stat().st_size
    assert store.chunk_path(0).stat().st_size == 65_536
    assert list(tmp_path.glob("*.part")) == []


def test_a_sparse_file_in_place_of_a_chunk_does_not_verify(tmp_path: Path) -> None:
    store = _create(tmp_path)
    with store.chunk_path(1).open("r+b") as stream:
        stream.truncate(0)
        stream.truncate(65_536)
    with pytest.raises(VerificationError, match="chunk-000001"):
        store.verify(1)


def test_swapped_chunk_files_do_not_verify(tmp_path: Path) -> None:
    store = _create(tmp_path)
    store.chunk_path(0).rename(tmp_path / "aside")
    store.chunk_path(1).rename(store.chunk_path(0))
    (tmp_path / "aside").rename(store.chunk_path(1))
    for chunk_id in (0, 1):
        with pytest.raises(VerificationError, match=f"chunk-00000{chunk_id}"):
            store.verify(chunk_id)
    store.verify(2)


def test_one_flipped_bit_does_not_verify(tmp_path: Path) -> None:
    store = _create(tmp_path)
    content = bytearray(store.chunk_path(0).read_bytes())
    content[40_000] ^= 1
    store.chunk_path(0).write_bytes(content)
    with pytest.raises(VerificationError):
        store.verify(0)


def test_each_group_has_its_own_checksum(tmp_path: Path) -> None:
    layout = KVLayout((Plane(0, "k", 512), Plane(1, "k", 512, 4)))
    geometry = ChunkGeometry(layout, adapt_preset(find_preset("best"), chunk_tokens=16))
    store = ChunkStore.create(tmp_path, geometry, num_chunks=1, seed=0)
    payload = store.read_payload(0)
    payload[8192:] = 0  # the windowed group
    store.require_payload(0, payload, groups=[0])
    with pytest.raises(VerificationError, match="group 1 of chunk 0"):
        store.require_payload(0, payload, groups=[0, 1])


def test_a_models_own_kv_replaces_a_chunk_and_verifies_after_reopening(tmp_path: Path) -> None:
    payload = np.arange(GEOMETRY.payload_bytes // 2, dtype=np.uint16).view(np.uint8)
    _create(tmp_path).write_chunk(1, payload)
    store = ChunkStore.open(tmp_path)
    store.verify(1)
    assert np.array_equal(store.read_payload(1), payload)
    with pytest.raises(StoreError, match="10 bytes, a chunk has 65536"):
        store.write_chunk(1, payload[:10])
    with pytest.raises(StoreError, match="no chunk 9; there are 3"):
        store.write_chunk(9, payload)


def test_states_have_files_of_their_own(tmp_path: Path) -> None:
    layout = KVLayout(uniform_layout(1, 512).planes, state_bytes=5000)
    geometry = ChunkGeometry(layout, adapt_preset(find_preset("best"), chunk_tokens=16))
    store = ChunkStore.create(tmp_path, geometry, num_chunks=1, seed=0, num_states=2)
    assert store.num_states == 2
    assert store.state_path(1).stat().st_size == 8192
    store.require_state(1, np.fromfile(store.state_path(1), np.uint8)[:5000])
    with pytest.raises(VerificationError, match="state-000001"):
        store.require_state(1, np.fromfile(store.state_path(0), np.uint8)[:5000])
    own = np.full(5000, 3, np.uint8)
    store.write_state(0, own)
    ChunkStore.open(tmp_path).require_state(0, own)
    with pytest.raises(StoreError, match="there are 2 of 5000"):
        store.write_state(2, own)


def test_more_than_is_free_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"needs 65536000000000000 bytes, \d+ are free; use a smaller"):
        _create(tmp_path, num_chunks=1_000_000_000_000)
    assert list(tmp_path.iterdir()) == []


def test_free_space_of_a_missing_directory_is_an_error_not_zero(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        require_space(tmp_path / "gone", 1)


def test_a_missing_directory_and_a_store_already_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such directory; create it"):
        _create(tmp_path / "gone")
    _create(tmp_path)
    with pytest.raises(StoreError, match="holds a store already"):
        _create(tmp_path)


def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="0 chunks with seed 7"):
        _create(tmp_path, num_chunks=0)
    with pytest.raises(StoreError, match="seed -1"):
        _create(tmp_path, seed=-1)


def test_opening_names_what_is_missing_or_cut(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        ChunkStore.open(tmp_path)
    store = _create(tmp_path)
    os.truncate(store.chunk_path(2), 4096)
    with pytest.raises(StoreError, match=r"chunk-000002\.kv: 4096 bytes, 65536 were written"):
        ChunkStore.open(tmp_path)
    store.chunk_path(2).unlink()
    with pytest.raises(StoreError, match=r"chunk-000002\.kv: No such file"):
        ChunkStore.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable as JSON"),
        ('{"manifest_number": 99}', "manifest number 99"),
        ('{"manifest_number": 1, "seed": 1}', "layout: Field required"),
        ("[]", "manifest number None"),
    ],
)
def test_a_manifest_that_is_not_ours_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(StoreError, match=message) as caught:
        ChunkStore.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_removing_leaves_other_files_and_may_be_repeated(tmp_path: Path) -> None:
    store = _create(tmp_path)
    (tmp_path / "notes").write_text("mine")
    store.remove()
    store.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


CREATE_IN_CHILD = """
import resource, sys
from pathlib import Path
from kvio.store.store_files import StoreError
from tests.kvio.store.test_chunk_store import _create
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
try:
    _create(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""


def test_a_short_write_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # the file-size limit stops the kernel after 40000 of 65536 bytes, as a disk that fills up would
    done = subprocess.run(
        [sys.executable, "-c", CREATE_IN_CHILD, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


READ_ONLY_CHILD = """
import os, sys
from pathlib import Path
from kvio.store.store_files import StoreError
from tests.kvio.store.test_chunk_store import _create
if os.geteuid() == 0:
    os.setuid(65534)
try:
    _create(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""


def test_a_read_only_directory_is_one_line() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY_CHILD, folder], capture_output=True, text=True, check=True
        )
    assert "Permission denied" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("name", ["best", "lmcache-raw"])
def test_every_byte_is_on_the_disk_when_a_store_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        "os.fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
    )
    geometry = ChunkGeometry(uniform_layout(2, 512), adapt_preset(find_preset(name), chunk_tokens=16))
    store = ChunkStore.create(tmp_path, geometry, num_chunks=3, seed=0)
    paths = [path.with_name(path.name.removesuffix(".part")) for path in synced]
    written = 3 if name == "lmcache-raw" else 1  # times; it keeps all chunks in one file
    assert [paths.count(store.chunk_path(number)) for number in range(3)] == [written] * 3


def test_slots_of_one_file_hold_the_chunks_at_a_fixed_stride_without_holes(tmp_path: Path) -> None:
    preset = adapt_preset(find_preset("lmcache-raw"), chunk_tokens=16)
    geometry = ChunkGeometry(uniform_layout(2, 512), preset)
    store = ChunkStore.create(tmp_path, geometry, num_chunks=3, seed=0)
    assert {path.name for path in tmp_path.iterdir()} == {"chunk-container-0000.kv", MANIFEST_NAME}
    assert [store.places(number)[0].offset for number in range(3)] == [0, 36_864, 73_728]
    assert store.chunk_path(0).stat().st_size == 3 * 36_864
    assert store.chunk_path(0).stat().st_mode & 0o777 == 0o600
    require_written(store.chunk_path(0))
    payload = np.arange(geometry.payload_bytes // 2, dtype=np.uint16).view(np.uint8)
    store.write_chunk(1, payload)
    again = ChunkStore.open(tmp_path)
    assert np.array_equal(again.read_payload(1), payload)
    for number in range(3):
        again.verify(number)


def test_a_full_container_is_followed_by_another(tmp_path: Path) -> None:
    preset = dataclasses.replace(find_preset("mooncake"), chunk_tokens=16, container_bytes=70_000)
    store = ChunkStore.create(tmp_path, ChunkGeometry(uniform_layout(2, 512), preset), num_chunks=3, seed=0)
    places = [(place.path.name, place.offset) for number in range(3) for place in store.places(number)]
    first, second = "chunk-container-0000.kv", "chunk-container-0001.kv"
    assert places == [(first, 0), (first, 32_768), (second, 0)]
    assert (tmp_path / second).stat().st_size == 32_768


def test_objects_of_one_chunk_exchanged_are_noticed(tmp_path: Path) -> None:
    preset = adapt_preset(find_preset("sglang-zero-copy"), chunk_tokens=16)
    store = ChunkStore.create(tmp_path, ChunkGeometry(uniform_layout(2, 512), preset), num_chunks=1, seed=0)
    k, v = (place.path for place in store.places(0))
    assert (k.name, v.name) == ("chunk-000000-000.kv", "chunk-000000-001.kv")
    aside = k.rename(tmp_path / "aside")
    v.rename(k)
    aside.rename(v)
    with pytest.raises(VerificationError):
        ChunkStore.open(tmp_path).verify(0)
    store.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_read_under_other_threads_and_requests_and_under_no_other_layout(tmp_path: Path) -> None:
    ChunkStore.create(tmp_path, GEOMETRY, num_chunks=2, seed=1)
    other = adapt_preset(GEOMETRY.preset, num_threads=9, request_bytes=8192, queue_depth=3)
    store = ChunkStore.open(tmp_path, preset=other)
    assert (store.geometry.preset, ChunkStore.open(tmp_path).geometry) == (other, GEOMETRY)
    store.verify(1)
    for wrong in (
        adapt_preset(other, chunk_tokens=GEOMETRY.chunk_tokens * 2),
        adapt_preset(other, direct=not other.direct),
        find_preset("sglang-layer-first"),
    ):
        with pytest.raises(StoreError, match="laid out otherwise"):
            ChunkStore.open(tmp_path, preset=wrong)
