"""What the preflight finds out, and how the budget is shared out by it."""

from collections.abc import Iterator

import pytest

from bench.measure.budget import CostBook
from bench.measure.clock import VirtualClock
from bench.measure.preflight import Findings, longest_within, require_budget, run_preflight, walk_lengths
from bench.measure.prepare_rounds import long_enough, look_ahead
from bench.measure.processes.messages import (
    CaseCost,
    CaseRefused,
    CheckDone,
    Job,
    JobBegun,
    JobDone,
    JobFailed,
    Message,
    PreflightJob,
)
from bench.measure.rounds import MeasureError
from bench.measure.session import Site
from bench.measure.setup import work_out
from bench.record.notices import Notice
from bench.record.plan import Plan, PlanError
from bench.record.sample import Case, Sample

CASE = Case("recompute", "recompute", 64)


class Silent:
    def on_notice(self, text: str) -> None: ...

    def on_phase(self, text: str) -> None: ...

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None: ...

    def on_sample(self, sample: Sample) -> None: ...


class Scripted:
    """A source that takes three seconds and says what it is told to."""

    def __init__(self, clock: VirtualClock, *messages: Message) -> None:
        self._clock = clock
        self._messages = messages

    def run(self, job: Job) -> Iterator[Message]:
        self._clock.advance(3.0)
        yield from self._messages

    def close(self) -> None: ...


def _run(*messages: Message) -> Findings:
    clock = VirtualClock()
    job = PreflightJob(Plan(model="m", budget_s=10), (64, 128), 1.0, 6.0, None)
    costs = CostBook(lambda case: 99.0)
    return run_preflight(job, source=Scripted(clock, *messages), costs=costs, clock=clock, observer=Silent())


def test_costs_checks_and_notices_are_collected() -> None:
    notice = Notice(code="slow_dtype", message="slow")
    check = CheckDone("dtype", {"ratio": 0.1}, notice)
    findings = _run(check, CaseCost(CASE, wall_s=1.0, seconds=0.5), JobDone())
    assert findings.costs.expected_s(CASE) == 1.0
    assert (findings.checks, findings.notices) == ({"dtype": {"ratio": 0.1}}, [notice])
    assert findings.startup_s == 2.0


class ServerFirst(Scripted):
    """A source whose fork server takes five seconds to start, before the process that the script is of."""

    def run(self, job: Job) -> Iterator[Message]:
        self._clock.advance(5.0)
        yield JobBegun()
        yield from super().run(job)


def test_rounds_are_not_planned_to_start_the_fork_server_again() -> None:
    clock = VirtualClock()
    job = PreflightJob(Plan(model="m", budget_s=10), (64, 128), 1.0, 6.0, None)
    source = ServerFirst(clock, CaseCost(CASE, wall_s=1.0, seconds=0.5), JobDone())
    costs = CostBook(lambda case: 99.0)
    findings = run_preflight(job, source=source, costs=costs, clock=clock, observer=Silent())
    assert findings.startup_s == costs.startup_s == 2.0


def test_under_a_limit_only_lengths_that_feel_it_are_chosen() -> None:
    plan = Plan(model="qwen3-0.6b", dtype="float32")  # 229,376 bytes per token
    grid = (16, 32, 64, 128)
    assert long_enough(work_out(plan), grid) == grid
    # at 20 MB/s, 0.4 s are 8 MB: 35 tokens
    assert long_enough(work_out(plan.model_copy(update={"limit_bytes_per_s": 20e6})), grid) == (64, 128)
    assert long_enough(work_out(plan.model_copy(update={"limit_bytes_per_s": 20e9})), grid) == (128,)


def test_under_a_limit_the_marginal_question_reads_the_next_tokens_and_not_the_prefix() -> None:
    plan = Plan(model="qwen3-0.6b", dtype="float32", suffix_tokens=64, limit_bytes_per_s=20e6)
    grid = (16, 32, 64, 128)
    setup = work_out(plan)
    assert [setup.load_bytes(n, 64) for n in grid] == [64 * 229_376] * 4
    assert setup.load_bytes(128, 0) == 128 * 229_376
    assert long_enough(setup, grid) == grid  # 14.7 MB take 0.7 s
    short = work_out(plan.model_copy(update={"suffix_tokens": 16}))
    assert long_enough(short, grid) == grid  # 0.2 s, at whatever length


def test_a_load_never_measured_is_expected_to_read_the_next_tokens_alone() -> None:
    clock = VirtualClock()
    cost = CaseCost(Case("recompute", "recompute", 128, 64), wall_s=1.0, seconds=1.0)
    site = Site(clock, Scripted(clock, cost, JobDone()), None, 0.0)
    plan = Plan(model="qwen3-0.6b", dtype="float32", suffix_tokens=64, limit_bytes_per_s=20e6)
    findings = look_ahead(
        work_out(plan.model_copy(update={"tokens": (256,)})),
        site,
        start_s=0.0,
        checked=frozenset(),
        observer=Silent(),
    )
    assert findings.costs.expected_s(Case("load", "posix/best", 256, 64)) == 64 * 229_376 / 20e6
    assert findings.costs.expected_s(Case("load", "posix/best", 256)) == 256 * 229_376 / 20e6


def test_a_process_that_measured_nothing_in_time_had_too_small_a_budget() -> None:
    with pytest.raises(
        PlanError,
        match="budget of 10 s is too small to measure anything: after 3 s the shortest case, 64 tokens",
    ):
        _run(JobDone())


def test_a_length_that_does_not_fit_is_remembered_with_its_reason() -> None:
    refused = CaseRefused(Case("recompute", "recompute", 128), "no memory")
    findings = _run(CaseCost(CASE, wall_s=1.0, seconds=1.0), refused, JobDone())
    assert findings.refused == {128: "no memory"}


def test_a_machine_that_can_hold_nothing_says_why() -> None:
    with pytest.raises(MeasureError, match="no memory"):
        _run(CaseRefused(CASE, "no memory"), JobDone())


def test_what_was_asked_wrongly_is_told_from_what_failed() -> None:
    with pytest.raises(PlanError, match="no such weights"):
        _run(JobFailed("no such weights", refused=True))
    with pytest.raises(MeasureError, match="preflight: disk gone"):
        _run(JobFailed("disk gone"))


def test_the_walk_doubles_up_to_the_maximum() -> None:
    assert walk_lengths(64, 1000) == (64, 128, 256, 512)
    assert walk_lengths(64, 64) == (64,)


def test_the_longest_length_is_the_one_for_which_all_rounds_fit() -> None:
    costs = {64: 1.0, 128: 2.0, 256: 4.0, 512: 8.0}
    # 8 rounds of 10 s, of which 2 s start the process: 8 s hold 1 + 2 + 4
    assert longest_within((64, 128, 256, 512), costs, left_s=80.0, startup_s=2.0, num_rounds=8) == 256
    assert longest_within((64, 128, 256, 512), costs, left_s=1.0, startup_s=2.0, num_rounds=8) == 64
    assert longest_within((64, 128), costs, left_s=14.9, startup_s=2.0, num_rounds=8) == 64
    assert longest_within((64, 128), costs, left_s=15.0, startup_s=2.0, num_rounds=8) == 128


def test_a_budget_in_which_the_shortest_length_does_not_fit_is_refused() -> None:
    plan = Plan(model="m", budget_s=100)
    require_budget(plan, 50.0, 64, cost_s=50.0)
    with pytest.raises(
        PlanError,
        match="a budget of 100 s is too small to measure anything: 64 tokens take about 51 s, 50 s are left",
    ):
        require_budget(plan, 50.0, 64, cost_s=51.0)


def test_a_budget_that_was_spent_before_the_first_case_is_not_overspent_further() -> None:
    clock = VirtualClock()
    clock.advance(30.0)
    plan = Plan(model="qwen3-0.6b", budget_s=20, layers="fit")
    with pytest.raises(
        PlanError,
        match="too small to measure anything: 30 s were spent before the first case could begin; try --budget 90s",
    ):
        look_ahead(
            work_out(plan),
            Site(clock, Scripted(clock), None, 0.0),
            start_s=0.0,
            checked=frozenset(),
            observer=Silent(),
        )
    assert clock.now_s() == 30.0


def test_what_was_spent_of_the_budget_before_is_said_and_counted() -> None:
    clock = VirtualClock()
    job = PreflightJob(Plan(model="m", budget_s=60), (64, 128), 1.0, 6.0, None)
    with pytest.raises(
        PlanError, match=r"60 s of which 45 s were spent before is too small .* try --budget 69s"
    ):
        run_preflight(
            job,
            source=Scripted(clock, JobDone()),
            costs=CostBook(lambda case: 99.0),
            clock=clock,
            observer=Silent(),
            left_s=15.0,
        )
