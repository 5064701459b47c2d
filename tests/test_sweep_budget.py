"""From when on a budget counts."""

from pathlib import Path

import pytest

from bench.measure import sweep
from bench.measure.clock import VirtualClock
from bench.measure.sweep import Hands, run_sweep
from bench.measure.tuning.tuning_rule import search_settings
from bench.record.plan import LoadSpec, Plan, PlanError
from tests.test_runner import Silent, _all_lengths


def test_finding_out_what_works_here_is_paid_from_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock(100.0)
    began: list[float] = []

    def probe(plan: Plan, data_dir: Path) -> tuple[Plan, tuple[()]]:
        clock.advance(9.0)
        return plan, ()

    def open_site(setup: object, data_dir: Path, *, since_s: float) -> None:
        began.append(since_s)
        raise PlanError("far enough")

    monkeypatch.setattr(sweep, "MonotonicClock", lambda: clock)
    monkeypatch.setattr(sweep, "leave_out_unavailable", probe)
    monkeypatch.setattr(sweep, "open_site", open_site)
    with pytest.raises(PlanError, match="far enough"):
        run_sweep(
            Plan(model="qwen3-8b", loads=(LoadSpec(backend="hostmem"),)),
            root=tmp_path,
            data_dir=tmp_path,
            hands=Hands(policy=_all_lengths, search=search_settings, observer=Silent()),
        )
    assert (began, clock.now_s()) == ([100.0], 109.0)
