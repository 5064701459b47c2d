"""Which checks a preflight makes."""

import json
from pathlib import Path

import pytest
import torch

from bench.measure.clock import MonotonicClock
from bench.measure.processes.messages import CheckDone, PreflightJob
from bench.measure.setup import work_out
from bench.measure.worker.model_session import open_workbench
from bench.measure.worker.preflight_checks import NUM_PROBES, compare_rates, look_ahead
from bench.record.plan import LoadSpec, Plan
from bench.record.sample import Case, Outcome
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


class Disturbed:
    """Products of 100 FLOP/s in float32 and 20 in bfloat16, a tenth of it in four turns of five."""

    turn = 0

    def __init__(self, shapes: object, *, dtype: torch.dtype, **_: object) -> None:
        self._rate = 100.0 if dtype == torch.float32 else 20.0

    def warm_up(self, case: Case) -> None: ...

    def close(self) -> None: ...

    def run(self, case: Case) -> Outcome:
        Disturbed.turn += 1
        rate = self._rate if Disturbed.turn // 2 % 5 == 0 else self._rate / 10
        return Outcome(seconds=1.0, flops_per_s=rate)


def test_other_work_on_the_machine_changes_neither_the_rates_of_dtypes_nor_their_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(TINY))
    setup = work_out(Plan(model=str(config), dtype="bfloat16", device="cpu", layers="all"))
    bench = open_workbench(setup, layers=(0, 1), longest=64, now_s=lambda: 0.0, seed=0)
    monkeypatch.setattr("bench.measure.worker.preflight_checks.GemmArm", Disturbed)
    assert compare_rates(bench) == {"bfloat16": 20.0, "float32": 100.0}
    assert Disturbed.turn == 2 * NUM_PROBES
