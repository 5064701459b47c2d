"""The work still done behind a hit is at least the step that every prompt ends with, whatever the noise."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.catalog.models.kv_capacity import Cache
from bench.catalog.models.resolve import resolve_model
from bench.estimate.analysis import analyse
from bench.predict.curve import MeasuredCurve
from bench.record.validate import InputError
from bench.reuse.trace import Trace, build_trace
from bench.sizing.demand import (
    RequestList,
    find_demand,
    find_rate,
    list_requests,
    mean_request,
    work_in_seconds,
)
from bench.sizing.size_scenario import TraceRequests
from bench.sizing.throughput import step_curve
from tests.helpers.tier_sweeps import Way, make_tier_run, make_tier_samples

FLAT = MeasuredCurve((64, 128, 256), (0.0103, 0.0100, 0.0101))  # of a GPU whose passes cost the same
STEP = MeasuredCurve((64, 256), (0.009, 0.009))
RISING = MeasuredCurve((1000, 2000, 4000), (1.0, 2.5, 7.0))


def test_a_whole_hit_costs_the_first_token_step() -> None:
    assert work_in_seconds(RISING, STEP)(2000, 1999) == pytest.approx(0.009)
    assert work_in_seconds(RISING, STEP)(2000, 1000) == pytest.approx(1.5)
    assert work_in_seconds(RISING, STEP)(2000, 0) == pytest.approx(2.5)


def test_a_curve_that_falls_by_noise_never_gives_a_negative_share() -> None:
    demand = find_demand(
        [(128, 64)], Cache(resolve_model("qwen3-8b")), work_in_seconds(FLAT, STEP), requests_per_s=1.0
    )
    assert demand.marginal_share == pytest.approx(0.9)
    assert work_in_seconds(FLAT)(128, 64) == 0.0  # where nobody measured the step


def test_the_step_never_costs_more_than_the_whole_prompt() -> None:
    slow = MeasuredCurve((64, 256), (1.0, 1.0))
    work = work_in_seconds(FLAT, slow)
    assert work(128, 127) == work(128, 0) == pytest.approx(0.0100)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.9, 1.0])
def test_the_share_lies_between_0_and_1(ratio: float) -> None:
    request = mean_request(200, ratio)
    demand = find_demand(
        [request], Cache(resolve_model("qwen3-8b")), work_in_seconds(FLAT, STEP), requests_per_s=1.0
    )
    assert 0 < demand.marginal_share <= 1


def test_the_step_of_a_sweep_is_that_of_the_series_asked_for() -> None:
    ways = (Way("posix", fixed_s=0.02), Way("uring", fixed_s=0.03), Way("s3", fixed_s=0.0))
    points = analyse(make_tier_run(ways), make_tier_samples(ways)).points
    found = [step_curve(points, way.series) for way in ways]
    assert [None if one is None else one.at(2000) for one in found] == [
        pytest.approx(0.02),
        pytest.approx(0.03),
        None,
    ]


def _trace(*times_s: float) -> Trace:
    trace = build_trace([[0]] * len(times_s), [512] * len(times_s), block_tokens=512)
    return replace(trace, timestamps_s=np.array(times_s))


def _own_rate(*times_s: float) -> tuple[float, str]:
    return find_rate(TraceRequests(trace=Path("t")), RequestList([(512, 0)], _trace(*times_s)))


@pytest.mark.parametrize("times_s", [(0.0, 10.0, 30.0), (30.0, 0.0, 10.0), (5.0, 35.0, 5.0)])
def test_the_rate_is_gaps_over_the_time_from_the_earliest_to_the_latest(times_s: tuple[float, ...]) -> None:
    assert _own_rate(*times_s) == (2 / 30, "the trace's own: 2 gaps between requests in 30.0 s")


@pytest.mark.parametrize("times_s", [(3.0,), (3.0, 3.0)])
def test_requests_at_one_time_have_no_rate(times_s: tuple[float, ...]) -> None:
    assert _trace(*times_s).requests_per_s is None
    with pytest.raises(InputError, match="per_s"):
        _own_rate(*times_s)


def test_an_unlikely_rate_says_what_the_times_would_be_in_seconds() -> None:
    _, how = _own_rate(*(n / 5000 for n in range(5001)))
    assert "2.56 million prompt tokens/s" in how
    assert how.endswith("16.7 min")


def test_a_rate_that_is_given_wins_over_that_of_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    line = {"input_length": 512, "output_length": 1, "hash_ids": [1]}
    path.write_text("".join(json.dumps({"timestamp": ms, **line}) + "\n" for ms in (4000, 0)))
    asked = TraceRequests(trace=path)
    requests = list_requests(asked, Cache(resolve_model("qwen3-8b")), 10**9)
    assert find_rate(asked, requests) == (0.25, "the trace's own: 1 gap between requests in 4.00 s")
    assert find_rate(asked.model_copy(update={"target": 1024.0}), requests) == (2.0, "")
    assert find_rate(asked.model_copy(update={"per_s": 3.0}), requests) == (3.0, "")
