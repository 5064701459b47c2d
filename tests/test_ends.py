"""How a sweep ends under the policy that sweeps run with, and what is said of what is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.estimate.next_lengths import choose_lengths
from bench.measure.budget import CostBook
from bench.measure.clock import VirtualClock
from bench.measure.processes.messages import Job, JobDone, JobStopped, Message, RoundJob, SampleTaken
from bench.measure.resume import Until, require_unfinished
from bench.measure.rounds import Rounds
from bench.measure.sweep import Hands, resume_sweep, run_sweep
from bench.measure.tuning.tuning_rule import search_settings
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.run import RunRecord, SeriesInfo, read_run
from bench.record.sample import ArmName, Outcome, Sample
from bench.record.samples_csv import SampleWriter, read_samples
from tests.test_runner import Silent, carry_out

ARMS: tuple[tuple[ArmName, str], ...] = (("recompute", "recompute"), ("load", "posix"), ("load", "uring"))


class Timed:
    """A source whose every case takes as long as it has tokens, in hundredths of a second; some series never come."""

    def __init__(
        self,
        clock: VirtualClock,
        missing: tuple[str, ...] = (),
        stopped_s: float = 0.0,
        startup_s: float = 0.0,
    ) -> None:
        self._clock, self._missing, self._stopped_s, self._startup_s = clock, missing, stopped_s, startup_s

    def run(self, job: Job) -> Iterator[Message]:
        assert isinstance(job, RoundJob)
        self._clock.advance(self._startup_s)
        cases = [case for one in job.passes for group in one.groups for case in group]
        for order, case in enumerate(case for case in cases if case.series not in self._missing):
            began_s, seconds = self._clock.now_s(), case.prefix_tokens / 100
            self._clock.advance(seconds)
            sample = Sample(job.number, order, 0, began_s, case, Outcome(seconds))
            yield SampleTaken(sample, seconds)
        if self._stopped_s:
            self._clock.advance(self._stopped_s)
            yield JobStopped()
            return
        yield JobDone()

    def close(self) -> None: ...


def _sweep(
    tmp_path: Path,
    *,
    budget_s: float,
    missing: tuple[str, ...] = (),
    stopped_s: float = 0.0,
    startup_s: float = 0.0,
    **settings: object,
) -> tuple[Rounds, Silent]:
    clock = VirtualClock()
    plan = Plan.model_validate({"model": "m", "budget_s": budget_s, "num_samples": 1, **settings})
    run = RunRecord(
        run_id="r",
        started_utc="2026-01-01T00:00:00Z",
        plan=plan,
        model_name="M",
        kv_bytes_per_token=8,
        chunk_tokens=100,
        series={name: SeriesInfo(arm=arm, label=name) for arm, name in ARMS},
    )
    rounds = Rounds(
        run=run,
        series=ARMS,
        allowed=plan.tokens or tuple(range(100, 1601, 100)),
        start_s=0.0,
        deadline_s=budget_s,
        costs=CostBook(lambda case: case.prefix_tokens / 100),
    )
    observer, writer = Silent(), SampleWriter(tmp_path)
    source = Timed(clock, missing, stopped_s, startup_s)
    carry_out(rounds, source, choose_lengths, clock=clock, writer=writer, observer=observer)
    return rounds, observer


def _told(rounds: Rounds) -> list[tuple[str, bool, str]]:
    return [(notice.code, notice.suspect, notice.message) for notice in rounds.notices]


def test_what_is_left_of_a_budget_is_said_when_no_further_round_fits_into_it(tmp_path: Path) -> None:
    # the first round takes 20 s until it measures, and 3 + 6 + 12 s for three lengths
    rounds, observer = _sweep(tmp_path, budget_s=60.0, startup_s=20.0)
    assert observer.rounds == [(100, 200, 400)]
    assert _told(rounds) == [
        ("budget_left", False, "19 s of the budget were left; another round takes about 23 s")
    ]


def test_lengths_that_were_asked_for_and_never_measured_are_named(tmp_path: Path) -> None:
    rounds, observer = _sweep(tmp_path, budget_s=24.0, tokens=(100, 400, 800, 1600), num_rounds=1)
    assert observer.rounds == [(100, 400)]
    assert _told(rounds) == [
        (
            "lengths_unmeasured",
            True,
            "800, 1600 tokens were asked for and not measured: the sweep ended before; a longer --budget has room",
        )
    ]
    assert observer.phases[-1] == "done: the rounds that --rounds asked for, 1, are measured"


def test_a_second_round_of_one_length_is_measured_where_no_more_fits(tmp_path: Path) -> None:
    rounds, observer = _sweep(tmp_path, budget_s=24.5)
    assert observer.rounds == [(100, 200, 400), (100,)]
    assert _told(rounds) == []  # half a second is left


def test_a_way_to_load_that_a_stopped_round_never_came_to_is_named(tmp_path: Path) -> None:
    rounds, _ = _sweep(tmp_path, budget_s=100.0, missing=("uring",), stopped_s=90.0)
    assert [(code, suspect) for code, suspect, _ in _told(rounds)] == [
        ("round_stopped", True),
        ("series_unmeasured", True),
    ]
    assert rounds.notices[-1].message == "the budget ended before the first sample of uring"


def test_a_way_to_load_that_the_asked_rounds_never_came_to_is_named(tmp_path: Path) -> None:
    rounds, _ = _sweep(tmp_path, budget_s=1000.0, missing=("uring",), num_rounds=1)
    assert _told(rounds) == [
        ("series_unmeasured", True, "the last round ended before the first sample of uring")
    ]


PLAN = Plan(
    model="qwen3-8b",
    loads=(LoadSpec(backend="simulated"),),
    simulation=SimulationSpec(),
    precision=0.3,
)


def _hands(observer: Silent | None = None) -> Hands:
    return Hands(policy=choose_lengths, search=search_settings, observer=observer or Silent())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_rounds": 2}, "the rounds that --rounds asked for, 2, are measured"),
        ({}, "every crossover is known to ±30 %, as --precision asked (a smaller one goes on)"),
        ({"tokens": (512, 1024), "precision": 1e-6}, "a simulation ends after 40 rounds"),
    ],
    ids=["rounds", "precision", "simulation"],
)
def test_a_sweep_that_has_all_it_was_asked_for_is_not_gone_on_with(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    plan = PLAN.model_copy(update=changes)
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=_hands())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for budget_s in (None, 1e5):
        with pytest.raises(PlanError) as refused:
            resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(budget_s=budget_s))
        assert str(refused.value) == (
            f"{folder}: this sweep is complete: {reason}, so that a longer --budget adds nothing; "
            f"its answer is derived again by: make report RESULTS={folder}"
        )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_sweep_whose_other_way_to_load_broke_is_gone_on_with(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"tokens": (512, 4096)})
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=_hands())
    run = read_run(folder)
    other = SeriesInfo(arm="load", label="other", settings={"skipped": "no answer"})
    broken = Notice(code="series_failed", message="other: its check failed, so it was left out: no answer")
    run = run.model_copy(update={"series": {**run.series, "other": other}})
    _refused(folder, run, "adds nothing")
    _refused(folder, run.model_copy(update={"notices": (broken,)}), "a longer --budget goes on with it")


def _refused(folder: Path, run: RunRecord, what: str) -> None:
    samples, _ = read_samples(folder)
    with pytest.raises(PlanError, match=what):
        require_unfinished(folder, run, samples, policy=choose_lengths, until=Until())
