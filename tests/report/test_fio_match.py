"""Whether fio and a sweep read alike, from what a job of ours says of itself and from a sweep's settings."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Estimate, Point
from bench.measure.setup import resolve_plan
from bench.record.plan import LoadSpec, Plan
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Sample
from bench.report.fio import FioError, FioFigures, compare_fio, read_fio, split_points
from bench.report.fio_match import (
    FioReading,
    differences,
    most_reads_by_length,
    reading_of,
)
from bench.report.text.terminal import plain
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.fio_job import plain_name, read_description, write_job
from kvio.layout.presets import PRESETS, adapt_preset
from tests.helpers.sweeps import make_run
from tests.helpers.tier_sweeps import DISK, LENGTHS, MEMORY, OBJECTS, make_tier_run, make_tier_samples

READING = FioReading(
    model="Qwen3-8B",
    layout="lmcache",
    chunk_bytes=4096,
    request_bytes=4096,
    read_bytes=4096,
    direct=False,
    in_flight=4,
)


def _as_fio_says(text: str, path: Path) -> FioReading:
    """The reading in what fio would write of a job, which hands back its options as they are."""
    options = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    job = {
        "jobname": "kv",
        "desc": options["description"],
        "job options": options,
        "read": {
            "io_bytes": 8 * int(options["bs"]),
            "bw_bytes": 1,
            "total_ios": 8,
            "clat_ns": {"mean": 1},
        },
    }
    (path / "fio.json").write_text(json.dumps({"jobs": [job]}))
    return read_fio(path / "fio.json")[0].reading


@pytest.mark.parametrize("layout", PRESETS)
@pytest.mark.parametrize("model", ["qwen3-8b", "gpt-oss-20b"])
def test_the_job_of_a_layout_reads_as_a_sweep_of_that_layout(tmp_path: Path, layout: str, model: str) -> None:
    setup = resolve_plan(Plan(model=model, loads=(LoadSpec(backend="posix", preset=layout),)))
    (load,) = setup.loads
    job = write_job(
        load.geometry,
        model=setup.model.name,
        engine="psync",
        directory="/d",
        working_set_bytes=1 << 40,
    )
    run = make_run(series=setup.series, model_name=setup.model.name)
    fio, sweep = _as_fio_says(job.text, tmp_path), reading_of(run, load.name)
    assert differences(fio, sweep) == ()
    for direct in (not load.geometry.direct,):
        other = ChunkGeometry(setup.layout, adapt_preset(load.geometry.preset, direct=direct))
        if other.direct == direct:
            text = write_job(
                other, model=setup.model.name, engine="psync", directory="/d", working_set_bytes=1 << 40
            ).text
            assert len(differences(_as_fio_says(text, tmp_path), sweep)) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "Qwen3-0.6B"}, "model: Qwen3-8B, here Qwen3-0.6B"),
        ({"layout": "vllm-fs"}, "layout: lmcache, here vllm-fs"),
        ({"chunk_bytes": 8 << 20}, "chunk: 0.00391 MiB, here 8 MiB"),
        ({"request_bytes": None}, "read: 0.00391 MiB, here not recorded"),
        ({"direct": True}, "buffered, here direct"),
        ({"in_flight": None}, "in flight: 4, here not recorded"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_each_difference_is_said(change: dict[str, object], said: str) -> None:
    changed = {name: getattr(READING, name) for name in FioReading.__slots__} | change
    assert differences(READING, FioReading(**changed)) == (said,)


def test_a_job_whose_block_size_was_changed_no_longer_says_what_it_reads(tmp_path: Path) -> None:
    setup = resolve_plan(Plan(model="qwen3-8b", loads=(LoadSpec(backend="posix", preset="lmcache"),)))
    text = write_job(
        setup.loads[0].geometry,
        model="m",
        engine="libaio",
        directory="/d",
        working_set_bytes=1 << 34,
        in_flight=3,
    ).text
    assert _as_fio_says(text, tmp_path).layout == "lmcache"
    found = _as_fio_says(text.replace("bs=37748736", "bs=1048576"), tmp_path)
    assert (found.layout, found.model, found.read_bytes, found.in_flight) == (None, None, 1 << 20, 12)


def test_a_name_is_one_word_of_a_description_and_other_descriptions_are_left_alone() -> None:
    assert plain_name("my model;x${HOME}#") == "my_model_x__HOME__"
    assert read_description("kvcross model=a layout=b") == {"model": "a", "layout": "b"}
    assert read_description("model=a layout=b") == read_description("") == {}


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
READING_FIO_FIGURES = FioReading(
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
        FioFigures("kv-lmcache", "psync", READING_FIO_FIGURES, 2e9, 0.0009, 0.004),
    )


def test_text_around_the_json_is_skipped(tmp_path: Path) -> None:
    text = f"fio: this {{platform}} is old\n{{cut\n{json.dumps(OUTPUT, indent=1)}\nfio: done }}\n"
    assert read_fio(_written(tmp_path, text))[0].bytes_per_s == 2e9


@pytest.mark.parametrize(
    ("options", "direct"),
    [
        ({"direct": "1"}, True),
        ({"direct": "0"}, False),
        ({"buffered": "0"}, True),
        ({"buffered": "1"}, False),
        ({}, False),
    ],
)
def test_both_names_of_the_page_cache_setting_are_read(
    tmp_path: Path, options: dict[str, str], direct: bool
) -> None:
    assert read_fio(_written(tmp_path, {**OUTPUT, "global options": options}))[0].reading.direct == direct


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "--output-format=json"),
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
    lines = [" ".join(line.split()) for line in plain(table).splitlines()]
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


SETTINGS = {"preset": "best", "cache_state": "direct", "chunk_bytes": 9_437_184, "request_bytes": 1_048_576}
SERIES = DISK.series


def _sweep() -> tuple[RunRecord, list[Sample]]:
    """Four reads may be in flight; loads of 1,000, 2,000, 4,000 and 8,000 tokens make 1, 2, 4 and 8."""
    settings = SETTINGS | {"backend": "posix", "queue_depth": 4}
    run = make_tier_run((DISK,))
    series = SeriesInfo(arm="load", label="posix", settings=settings)
    samples = [
        replace(sample, outcome=replace(sample.outcome, num_requests=sample.case.prefix_tokens // 1000))
        for sample in make_tier_samples((DISK,))
    ]
    return run.model_copy(update={"series": {**run.series, SERIES: series}}), samples


def _compare(folder: Path, in_flight: int) -> tuple[list[str], bool]:
    """The share of each length and how it differs, and whether any was read alike."""
    job = {**OUTPUT["jobs"][0], "job options": {"numjobs": str(in_flight)}}  # type: ignore[index]
    (folder / "fio.json").write_text(json.dumps({**OUTPUT, "jobs": [job]}))
    run, samples = _sweep()
    jobs, points = read_fio(folder / "fio.json"), analyse(run, samples).points
    table, any_alike = compare_fio(jobs, points, run=run, samples=samples)
    rows = (line.partition("tokens")[2].split("]")[1].split() for line in plain(table).splitlines()[2:])
    return [" ".join((row[0], *row[5:])) for row in rows], any_alike


def test_lengths_whose_loads_make_fewer_reads_than_the_depth_have_no_share(tmp_path: Path) -> None:
    assert _compare(tmp_path, 4) == (
        [
            "— in flight: 4, here 1, all reads of a load",
            "— in flight: 4, here 2, all reads of a load",
            "2.00",
            "2.00",
        ],
        True,
    )


def test_a_job_with_as_many_reads_in_flight_as_a_short_load_makes_reads_like_it(tmp_path: Path) -> None:
    assert _compare(tmp_path, 1) == (
        [
            "2.00",
            "— in flight: 1, here 2, all reads of a load",
            "— in flight: 1, here 4",
            "— in flight: 1, here 4",
        ],
        True,
    )


def test_the_reads_are_the_most_of_those_samples_that_count_and_of_one_rank() -> None:
    run, samples = _sweep()
    assert most_reads_by_length(run, samples, SERIES) == dict(zip(LENGTHS, (1, 2, 4, 8), strict=True))
    warm = replace(samples[1].outcome, num_requests=100, cache_state="warm")
    assert most_reads_by_length(run, [replace(samples[1], outcome=warm)], SERIES) == {}
    ranks = run.model_copy(update={"plan": run.plan.model_copy(update={"tensor_parallel": 2})})
    assert most_reads_by_length(ranks, samples, SERIES) == dict(zip(LENGTHS, (1, 1, 2, 4), strict=True))
