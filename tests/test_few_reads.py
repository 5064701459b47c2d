"""A load of fewer reads than may be in flight is no share of what fio reads with all of them in flight."""

import json
from dataclasses import replace
from pathlib import Path

from bench.estimate.analysis import analyse
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Sample
from bench.report.fio import compare_fio, read_fio
from bench.report.fio_match import most_reads_by_length, reading_of, say_alike, say_job
from tests.test_fio_figures import OUTPUT
from tests.tier_sweeps import DISK, LENGTHS, make_tier_run, make_tier_samples

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
    rows = (line.partition("tokens")[2].split("]")[1].split() for line in table.splitlines()[2:])
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


def test_the_job_for_a_series_keeps_its_depth_and_says_when_loads_make_too_few_reads() -> None:
    run, _ = _sweep()
    assert "--queue-depth 4" in say_job(run, SERIES)
    assert say_alike(run, SERIES, 4) == f"a job that does: {say_job(run, SERIES)}"
    assert say_alike(run, SERIES, 1) == (
        "a job that does, once a load makes the 4 reads that may be in flight (it makes 1: sweep longer prefixes): "
        f"{say_job(run, SERIES)}"
    )
    suffix = run.model_copy(update={"plan": run.plan.model_copy(update={"suffix_tokens": 256})})
    assert "(it makes 1: sweep a longer suffix): " in say_alike(suffix, SERIES, 1)
    assert reading_of(run, SERIES, 1).in_flight == 4
