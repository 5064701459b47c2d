"""The rate of a trace: gaps between requests over the whole time, whatever their order."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.catalog.models.kv_capacity import Cache
from bench.catalog.models.resolve import resolve_model
from bench.reuse.trace import Trace, build_trace
from bench.sizing.own_rate import find_own_rate
from bench.sizing.size_scenario import find_rate, read_requests


def _trace(*times_s: float) -> Trace:
    trace = build_trace([[0]] * len(times_s), [512] * len(times_s), block_tokens=512)
    return replace(trace, timestamps_s=np.array(times_s))


@pytest.mark.parametrize("times_s", [(0.0, 10.0, 30.0), (30.0, 0.0, 10.0), (5.0, 35.0, 5.0)])
def test_the_rate_is_gaps_over_the_time_from_the_earliest_to_the_latest(times_s: tuple[float, ...]) -> None:
    found = find_own_rate(_trace(*times_s))
    assert found is not None
    assert (found.per_s, found.how) == (2 / 30, "the trace's own: 2 gaps between requests in 30.0 s")


def test_two_requests_have_one_gap() -> None:
    found = find_own_rate(_trace(0.0, 7200.0))
    assert found is not None
    assert (found.per_s, found.how) == (1 / 7200, "the trace's own: 1 gap between requests in 2.00 h")


@pytest.mark.parametrize("times_s", [(3.0,), (3.0, 3.0)])
def test_requests_at_one_time_have_no_rate(times_s: tuple[float, ...]) -> None:
    assert find_own_rate(_trace(*times_s)) is None


def test_a_rate_that_nobody_has_says_what_the_times_would_be_in_seconds() -> None:
    found = find_own_rate(_trace(*(n / 5000 for n in range(5001))))
    assert found is not None
    assert found.how.endswith(
        "2.56 million prompt tokens/s are much: timestamps are read as milliseconds, and in seconds they would be"
        " 16.7 min"
    )


def test_size_takes_the_rate_of_the_file_and_says_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    line = {"input_length": 512, "output_length": 1, "hash_ids": [1]}
    path.write_text("".join(json.dumps({"timestamp": ms, **line}) + "\n" for ms in (4000, 0)))
    requests = read_requests(
        Cache(resolve_model("qwen3-8b")),
        input_tokens=None,
        hit_ratio=None,
        trace=path,
        policy="lru",
        block_tokens=512,
        skip_bad=False,
        capacity_bytes=10**9,
    )
    assert find_rate(requests, None, None) == (0.25, "the trace's own: 1 gap between requests in 4.00 s")
    assert find_rate(requests, None, 1024.0) == (2.0, "")
    assert find_rate(requests, 3.0, None) == (3.0, "")
