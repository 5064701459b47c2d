"""Which checks a preflight makes."""

import json
from pathlib import Path

import pytest

from bench.measure.checks import look_ahead
from bench.measure.clock import MonotonicClock
from bench.measure.jobs import CheckDone, PreflightJob
from bench.measure.plan import LoadSpec, Plan
from tests.test_cli import TINY

ALL = frozenset({"dtype", "answer:posix/best", "answer:uring/best", "answer:hybrid/posix/best", "null"})


@pytest.mark.parametrize(
    "checked",
    [
        frozenset(),
        frozenset({"dtype"}),
        frozenset({"dtype", "answer:posix/best", "answer:hybrid/posix/best"}),
        ALL | {"answer:hybrid/uring/best"},
    ],
    ids=["begun", "no time for any", "no time for the last", "all made"],
)
def test_only_checks_that_no_earlier_part_has_made_are_made(tmp_path: Path, checked: frozenset[str]) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(TINY))
    loads = (LoadSpec(chunk_tokens=32), LoadSpec(backend="uring", chunk_tokens=32))
    plan = Plan(
        model=str(config), dtype="float32", device="cpu", layers="all", tokens=(64,), loads=loads, hybrid=True
    )
    job = PreflightJob(plan, (64,), 1.0, 1e12, tmp_path, checked=checked)
    made = {done.name for done in look_ahead(job, MonotonicClock()) if isinstance(done, CheckDone)}
    assert made == (ALL | {"answer:hybrid/uring/best"}) - checked | {"dtype"}  # rates are of this process
