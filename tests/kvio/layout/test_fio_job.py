"""The fio job of a layout reads what the layout's chunks are read with: fio itself is asked."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.fio_job import write_job
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import PRESETS, Preset, adapt_preset, find_preset
from kvio.protocol import KVIOError

LAYOUT = uniform_layout(4, 1024)  # 8,192 bytes per token
MIB = 1 << 20


def _geometry(name: str, chunk_tokens: int = 16, **more: int | None) -> ChunkGeometry:
    preset = adapt_preset(find_preset(name), chunk_tokens=chunk_tokens, **more)  # type: ignore[arg-type]
    return ChunkGeometry(LAYOUT, preset)


def _job(geometry: ChunkGeometry, directory: Path, engine: str = "psync", working_set: int = 4 * MIB) -> str:
    return write_job(
        geometry, model="m", engine=engine, directory=str(directory), working_set_bytes=working_set
    ).text


def _reads_of_fio(job: str, directory: Path) -> list[tuple[str, int, int]]:
    """File, offset and bytes of each read that fio issues, of all threads."""
    (directory / "job.fio").write_text(job)
    subprocess.run(
        ["fio", "--write_iolog=log", "job.fio"], cwd=directory, check=True, capture_output=True, timeout=60
    )
    lines = [line.split() for path in directory.glob("log*") for line in path.read_text().splitlines()]
    return [(line[1], int(line[3]), int(line[4])) for line in lines if line[2:3] == ["read"]]


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio")
@pytest.mark.parametrize(
    "name", ["lmcache", "lmcache-gds", "lmcache-layerwise", "vllm-fs", "sglang-layer-first"]
)
def test_fio_reads_every_object_once_with_the_reads_of_the_layout(tmp_path: Path, name: str) -> None:
    geometry = _geometry(name, num_threads=1)  # threads would write their logs over one another
    expected = Counter(
        (read.file_offset, read.num_bytes) for read in geometry.reads_for(0, 16) if read.object_number == 0
    )
    found = _reads_of_fio(_job(geometry, tmp_path), tmp_path)
    by_file = {
        path: Counter((at, size) for other, at, size in found if other == path) for path, _, _ in found
    }
    assert len(by_file) == 4 * MIB // geometry.stride_bytes
    assert all(reads == expected for reads in by_file.values())


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio")
def test_fio_reads_every_slot_once_in_another_order(tmp_path: Path) -> None:
    geometry = _geometry("kvbm", num_threads=1)
    found = _reads_of_fio(_job(geometry, tmp_path), tmp_path)
    offsets = [at for _, at, _ in found]
    assert sorted(offsets) == list(range(0, 4 * MIB, 131_072)) != offsets
    assert {size for _, _, size in found} == {131_072}


def test_threads_depth_and_page_cache_are_the_presets() -> None:
    lines = _job(_geometry("sglang-zero-copy"), Path("/d"), "io_uring", 64 * MIB).splitlines()
    assert {"numjobs=1", "iodepth=128", "direct=1", "openfiles=1", "ioengine=io_uring"} <= set(lines)
    lines = _job(_geometry("lmcache"), Path("/d")).splitlines()
    assert {"numjobs=4", "iodepth=1", "direct=0", "bs=131072", "filesize=131072", "nrfiles=8"} <= set(lines)


def test_what_fio_cannot_do_alike_is_said_in_the_job() -> None:
    assert "# the header is read together" in _job(_geometry("lmcache-raw"), Path("/d"))
    odd = _geometry("best", request_bytes=49_152)
    assert [read.num_bytes for read in odd.reads_for(0, 16)] == [49_152, 49_152, 32_768]
    assert "# the last read of each object is shorter" in _job(odd, Path("/d"))


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_every_layout_has_a_job_that_reads_at_most_its_working_set(preset: Preset) -> None:
    geometry = ChunkGeometry(LAYOUT, preset)
    for engine in ("psync", "libaio", "io_uring"):
        job = write_job(geometry, model="m", engine=engine, directory="/d", working_set_bytes=512 * MIB)
        assert 0 < job.read_bytes <= 512 * MIB
        assert f"ioengine={engine}" in job.text


def test_a_job_that_cannot_be_is_refused_in_one_line() -> None:
    with pytest.raises(KVIOError, match="unknown fio engine 'mmap'; there are: psync"):
        _job(_geometry("lmcache"), Path("/d"), "mmap")
    with pytest.raises(KVIOError, match="does not hold an object of 131072 bytes for each of 4 threads"):
        _job(_geometry("lmcache"), Path("/d"), working_set=131_072)
    with pytest.raises(KVIOError, match="cannot be named in a fio job"):
        _job(_geometry("lmcache"), Path("/d\nexec_prerun=x"))
