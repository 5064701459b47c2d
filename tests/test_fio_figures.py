"""What fio wrote, read with care and put beside a sweep."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Estimate, Point
from bench.record.run import SeriesInfo
from bench.report.fio import FioError, FioFigures, compare_fio, read_fio, split_points
from bench.report.fio_match import Reading
from tests.sweeps import make_run
from tests.tier_sweeps import DISK, MEMORY, OBJECTS, make_tier_run, make_tier_samples

OUTPUT = {
    "fio version": "fio-3.33",
    "global options": {"ioengine": "psync", "direct": "1", "iodepth": "8"},
    "jobs": [
        {
            "jobname": "kv-lmcache",
            "error": 0,
            "job options": {"numjobs": "4"},
            "read": {
                "io_bytes": 4_194_304,
                "bw_bytes": 2_000_000_000,
                "total_ios": 4,
                "clat_ns": {"mean": 1e6, "percentile": {"50.000000": 900_000, "99.000000": 4_000_000}},
            },
        }
    ],
}
READING = Reading(
    model=None,
    layout=None,
    chunk_bytes=None,
    request_bytes=1_048_576.0,
    read_bytes=1_048_576.0,
    direct=True,
    in_flight=4,  # psync reads one at a time, whatever iodepth
)


def _written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "fio.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_figures_are_in_bytes_and_seconds(tmp_path: Path) -> None:
    assert read_fio(_written(tmp_path, OUTPUT)) == (
        FioFigures("kv-lmcache", "psync", READING, 2e9, 0.0009, 0.004),
    )


def test_lines_that_fio_prints_before_its_json_are_skipped(tmp_path: Path) -> None:
    path = _written(tmp_path, "fio: this platform is old\n" + json.dumps(OUTPUT))
    assert read_fio(path)[0].bytes_per_s == 2e9


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no JSON in it; run fio with --output-format=json"),
        ("{", "not JSON"),
        ({"jobs": []}, "not the JSON of fio: jobs"),
        ({"jobs": [{"jobname": "a"}]}, "jobs.0.read"),
        ({"jobs": [{**OUTPUT["jobs"][0], "error": 5}]}, "failed with error 5"),  # type: ignore[index]
    ],
    ids=["empty", "cut", "no jobs", "no reads", "failed"],
)
def test_what_is_not_fios_is_refused(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(FioError, match=said):
        read_fio(_written(tmp_path, content))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FioError, match="No such file"):
        read_fio(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("request_bytes", "said"),
    [
        (1_048_576, "0.50 1 MiB — —"),
        (4_194_304, "— 4 MiB — — read: 1 MiB, here 4 MiB"),
    ],
    ids=["alike", "otherwise"],
)
def test_the_table_gives_the_share_of_the_fastest_job_only_where_both_read_alike(
    tmp_path: Path, request_bytes: int, said: str
) -> None:
    jobs = read_fio(_written(tmp_path, OUTPUT))
    rate = Estimate(1e9, 0.9e9, 1.1e9)
    times = {"recompute_s": None, "load_s": None, "ratio": None, "load_p95_s": None, "load_p99_s": None}
    point = Point(
        series="posix/best",
        prefix_tokens=4096,
        num_rounds=5,
        num_samples=10,
        first_token_s=None,
        num_bytes=None,
        bytes_per_s=rate,
        break_even_bytes_per_s=None,
        mfu=None,
        recompute_scaled=False,
        **times,
    )
    settings = {
        "preset": "best",
        "cache_state": "direct",
        "chunk_bytes": 9_437_184,
        "queue_depth": 4,
        "request_bytes": request_bytes,
    }
    series = {"posix/best": SeriesInfo(arm="load", label="posix", settings=settings)}
    table, any_alike = compare_fio(jobs, [point], run=make_run(series=series), samples=())
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert lines[1] == "fio kv-lmcache psync direct, 4 in flight 2 1.00 1 MiB 0.9 ms 4 ms"
    assert lines[2] == f"sweep posix/best 4,096 tokens 1 [0.9–1.1] {said}"
    assert any_alike == (request_bytes == 1_048_576)


def test_only_what_was_read_from_files_is_put_beside_fio() -> None:
    ways = (DISK, MEMORY, OBJECTS)
    run, samples = make_tier_run(ways), make_tier_samples(ways)
    points, left_out = split_points(run, analyse(run, samples).points)
    assert {point.series for point in points} == {"posix/best"}
    assert left_out == "hostmem/best (host memory), s3/best (object store)"


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio")
def test_what_fio_itself_writes_is_read(tmp_path: Path) -> None:
    asked = ["--name=kv", "--rw=read", "--bs=64k", "--size=1m", "--ioengine=psync", "--output-format=json"]
    subprocess.run(["fio", *asked, "--output=fio.json"], cwd=tmp_path, check=True, timeout=60)
    (found,) = read_fio(tmp_path / "fio.json")
    assert (found.name, found.reading.read_bytes, found.reading.direct) == ("kv", 65_536, False)
    assert found.reading.in_flight == 1


def test_a_job_that_is_there_once_for_each_thread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FioError, match=r"job kv-lmcache is there 2 times.*group_reporting"):
        read_fio(_written(tmp_path, {**OUTPUT, "jobs": OUTPUT["jobs"] * 2}))  # type: ignore[operator]


def test_what_is_no_number_among_the_options_is_refused(tmp_path: Path) -> None:
    job = {**OUTPUT["jobs"][0], "job options": {"numjobs": "4k"}}  # type: ignore[index]
    with pytest.raises(FioError, match="job kv-lmcache: not the options of a job"):
        read_fio(_written(tmp_path, {**OUTPUT, "jobs": [job]}))
