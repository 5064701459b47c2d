"""Going on with a sweep never leaves it worse than it was, nor without what its earlier part had to say."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure import sweep
from bench.measure.resume import Until, require_unfinished
from bench.measure.rounds import MeasureError
from bench.measure.sweep import resume_sweep, run_sweep
from bench.record.notices import Notice
from bench.record.plan import PlanError
from bench.record.progress import End
from bench.record.run import RunRecord, read_run, write_run
from bench.record.samples_csv import read_samples
from tests.test_resume import PLAN, _hands, _stopped

LOST = Notice(code="series_failed", message="simulated/best: could not be read any more: round 1: gone")
DROPPED = Notice(code="lengths_dropped", message="lengths from 4096 tokens on are not measured: no memory")
CHECK = Notice(code="series_failed", message="simulated/best: its check failed, so it was left out: gone")


@pytest.mark.parametrize("state", ["complete", "interrupted"])
@pytest.mark.parametrize("error", [PlanError("no room"), MeasureError("killed"), KeyboardInterrupt()])
def test_a_header_stays_as_it_was_where_going_on_with_its_sweep_comes_to_nothing(
    error: BaseException, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_ahead(*arguments: object, **named: object) -> None:
        raise error

    folder = _stopped(tmp_path, state=state, notices=(LOST,))
    before = (folder / "run.json").read_bytes()
    monkeypatch.setattr(sweep, "look_ahead", look_ahead)
    if isinstance(error, PlanError):
        with pytest.raises(PlanError, match="no room"):
            resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(budget_s=PLAN.budget_s + 60))
    else:
        resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(budget_s=PLAN.budget_s + 60))
    assert (folder / "run.json").read_bytes() == before


@pytest.mark.parametrize("complete", [False, True], ids=["interrupted", "complete"])
def test_what_rounds_had_to_say_stands_until_there_are_new_ones(tmp_path: Path, *, complete: bool) -> None:
    state = "complete" if complete else "interrupted"
    folder = _stopped(tmp_path, state=state, notices=(LOST, DROPPED, CHECK))
    idle = replace(_hands(), policy=lambda progress: End("nothing fits"))
    resume_sweep(folder, data_dir=tmp_path, hands=idle, until=Until(budget_s=PLAN.budget_s + 60))
    run = read_run(folder)
    assert (run.state, [n for n in run.notices if n in (LOST, DROPPED, CHECK)]) == (
        "complete",
        [LOST, DROPPED],
    )
    write_run(folder, run.model_copy(update={"state": "interrupted"}))
    resume_sweep(folder, data_dir=tmp_path, hands=_hands())
    assert not {LOST, DROPPED} & set(read_run(folder).notices)
    assert {sample.round for sample in read_samples(folder)[0]} == {0, 1}


@pytest.mark.parametrize("code", ["answer_unchecked", "scaling_unchecked", "series_failed"])
def test_a_complete_sweep_is_gone_on_with_for_a_check_that_had_no_time(code: str, tmp_path: Path) -> None:
    folder = run_sweep(PLAN, root=tmp_path / "results", data_dir=tmp_path, hands=_hands())
    run, (samples, _) = read_run(folder), read_samples(folder)

    def longer(run: RunRecord, *, by_s: float = 60.0) -> None:
        budget_s = run.plan.budget_s + by_s
        require_unfinished(folder, run, samples, policy=_hands().policy, until=Until(budget_s=budget_s))

    with pytest.raises(PlanError, match="a longer --budget adds nothing"):
        longer(run)
    open_yet = run.model_copy(update={"notices": (Notice(code=code, message="simulated/best: no time"),)})
    longer(open_yet)
    with pytest.raises(PlanError, match="a longer --budget goes on with it"):
        longer(open_yet, by_s=0.0)


def test_a_sweep_that_was_precise_enough_is_gone_on_with_for_a_smaller_precision(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"tokens": None, "num_rounds": None})
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=_hands())
    before = read_samples(folder)[0]
    with pytest.raises(
        PlanError, match=r"as --precision asked \(a smaller one goes on\), so that a longer --budget adds"
    ):
        resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(budget_s=plan.budget_s + 60))
    resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(precision=0.03))
    after = read_samples(folder)[0]
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert read_run(folder).plan.precision == 0.03
