"""What the preflight finds out, and how the budget is shared out by it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.arms.simulated import meet_simulated
from bench.measure.budget import (
    BudgetTooSmallError,
    CostBook,
    longest_within,
    require_budget,
    shuffle_round,
    walk_lengths,
)
from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import note_findings
from bench.measure.preflight import Findings, long_enough, prepare_rounds, run_preflight
from bench.measure.processes.messages import (
    CaseCost,
    CaseRefused,
    CheckDone,
    Job,
    JobBegun,
    JobDone,
    JobFailed,
    Message,
    RoundJob,
    SampleTaken,
    SeriesSkipped,
)
from bench.measure.processes.source import SimulatedSource
from bench.measure.rounds import MeasureError
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.measure.stores import create_stores, plan_stores
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.run import RunRecord
from bench.record.sample import Case
from kvio.store.chunk_store import ChunkStore
from tests.helpers.scripted_rounds import SilentObserver, SlowScriptedSource

CASE = Case("recompute", "recompute", 64)


def run(
    source: SlowScriptedSource, clock: VirtualClock, *, budget_s: float = 10.0, start_s: float = 0.0
) -> Findings:
    """The preflight of two lengths."""
    loads = (LoadSpec(chunk_tokens=64),)
    setup = resolve_plan(Plan(model="qwen3-0.6b", tokens=(64, 128), loads=loads, budget_s=budget_s))
    session = MeasurementSession(clock, source, None, start_s)
    return run_preflight(setup, session, start_s=start_s, checked=frozenset(), observer=SilentObserver())


def _run(*messages: Message) -> Findings:
    clock = VirtualClock()
    return run(SlowScriptedSource(clock, *messages), clock)


def test_costs_checks_and_notices_are_collected() -> None:
    notice = Notice(kind="slow_dtype", detail="slow")
    check = CheckDone("dtype", {"ratio": 0.1}, notice)
    findings = _run(check, CaseCost(CASE, wall_s=1.0, seconds=0.5), JobDone())
    assert findings.costs.expected_s(CASE) == 1.0
    assert (findings.checks, findings.notices) == ({"dtype": {"ratio": 0.1}}, [notice])
    assert findings.startup_s == 2.0


class ServerFirst(SlowScriptedSource):
    """A source whose fork server takes five seconds to start, before the process that the script is of."""

    def run(self, job: Job) -> Iterator[Message]:
        self._clock.advance(5.0)
        yield JobBegun()
        yield from super().run(job)


def test_rounds_are_not_planned_to_start_the_fork_server_again() -> None:
    clock = VirtualClock()
    findings = run(ServerFirst(clock, CaseCost(CASE, wall_s=1.0, seconds=0.5), JobDone()), clock)
    assert findings.startup_s == findings.costs.startup_s == 2.0


def test_under_a_limit_only_lengths_that_feel_it_are_chosen() -> None:
    plan = Plan(model="qwen3-0.6b", dtype="float32")  # 229,376 bytes per token
    grid = (16, 32, 64, 128)
    assert long_enough(resolve_plan(plan), grid) == grid
    # at 20 MB/s, 0.4 s are 8 MB: 35 tokens
    assert long_enough(resolve_plan(plan.model_copy(update={"limit_bytes_per_s": 20e6})), grid) == (64, 128)
    assert long_enough(resolve_plan(plan.model_copy(update={"limit_bytes_per_s": 20e9})), grid) == (128,)


def test_under_a_limit_the_marginal_question_reads_the_next_tokens_and_not_the_prefix() -> None:
    plan = Plan(model="qwen3-0.6b", dtype="float32", suffix_tokens=64, limit_bytes_per_s=20e6)
    grid = (16, 32, 64, 128)
    setup = resolve_plan(plan)
    assert [setup.load_bytes(n, 64) for n in grid] == [64 * 229_376] * 4
    assert setup.load_bytes(128, 0) == 128 * 229_376
    assert long_enough(setup, grid) == grid  # 14.7 MB take 0.7 s
    short = resolve_plan(plan.model_copy(update={"suffix_tokens": 16}))
    assert long_enough(short, grid) == grid  # 0.2 s, at whatever length


def test_a_load_never_measured_is_expected_to_read_the_next_tokens_alone() -> None:
    clock = VirtualClock()
    cost = CaseCost(Case("recompute", "recompute", 128, 64), wall_s=1.0, seconds=1.0)
    session = MeasurementSession(clock, SlowScriptedSource(clock, cost, JobDone()), None, 0.0)
    plan = Plan(model="qwen3-0.6b", dtype="float32", suffix_tokens=64, limit_bytes_per_s=20e6)
    findings = run_preflight(
        resolve_plan(plan.model_copy(update={"tokens": (256,)})),
        session,
        start_s=0.0,
        checked=frozenset(),
        observer=SilentObserver(),
    )
    assert findings.costs.expected_s(Case("load", "posix/best", 256, 64)) == 64 * 229_376 / 20e6
    assert findings.costs.expected_s(Case("load", "posix/best", 256)) == 256 * 229_376 / 20e6


def test_a_process_that_measured_nothing_in_time_had_too_small_a_budget() -> None:
    with pytest.raises(BudgetTooSmallError, match="64 tokens"):
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
    with pytest.raises(BudgetTooSmallError) as caught:
        require_budget(plan, 50.0, 64, cost_s=51.0)
    assert caught.value.needed_s == 50 + 8 * 51


def test_a_budget_that_was_spent_before_the_first_case_is_not_overspent_further() -> None:
    clock = VirtualClock()
    clock.advance(30.0)
    plan = Plan(model="qwen3-0.6b", budget_s=20, layers="fit")
    with pytest.raises(BudgetTooSmallError, match="try --budget 90s"):
        run_preflight(
            resolve_plan(plan),
            MeasurementSession(clock, SlowScriptedSource(clock), None, 0.0),
            start_s=0.0,
            checked=frozenset(),
            observer=SilentObserver(),
        )
    assert clock.now_s() == 30.0


def test_what_was_spent_of_the_budget_before_is_said_and_counted() -> None:
    clock = VirtualClock(45.0)
    with pytest.raises(BudgetTooSmallError, match="45 s") as caught:
        run(SlowScriptedSource(clock, JobDone()), clock, budget_s=60.0)
    assert caught.value.needed_s == 45 + 8 * 3


SPEC = SimulationSpec(recompute_s=(0.0, 0.001, 0.0), load_s=(0.0, 0.003), round_noise=0.0, sample_noise=0.0)
SIMULATED = Plan(model="qwen3-8b", loads=(LoadSpec(backend="simulated"),), simulation=SPEC, hybrid=True)


def _run_hybrid(setup: ResolvedPlan) -> RunRecord:
    return RunRecord(
        run_id="r",
        started_utc="2026-01-01T00:00:00Z",
        plan=setup.plan,
        model_name="M",
        kv_bytes_per_token=8,
        chunk_tokens=setup.chunk_tokens,
        series=setup.series,
    )


def test_every_load_series_has_a_hybrid_beside_it_and_none_without_the_flag() -> None:
    loads = (LoadSpec(), LoadSpec(preset="lmcache"))
    series = resolve_plan(Plan(model="qwen3-8b", loads=loads, hybrid=True)).series
    assert [(name, info.arm) for name, info in series.items() if info.arm in {"load", "hybrid"}] == [
        ("posix/best", "load"),
        ("posix/lmcache", "load"),
        ("hybrid/posix/best", "hybrid"),
        ("hybrid/posix/lmcache", "hybrid"),
    ]
    hybrid, load = series["hybrid/posix/lmcache"], series["posix/lmcache"]
    assert hybrid.settings == {**load.settings, "load_series": "posix/lmcache"}
    assert hybrid.label == load.label
    assert "hybrid" not in {
        info.arm for info in resolve_plan(Plan(model="qwen3-8b", loads=loads)).series.values()
    }


def test_the_marginal_question_and_hybrid_exclude_each_other() -> None:
    with pytest.raises(PlanError, match="--suffix-tokens"):
        resolve_plan(Plan(model="qwen3-8b", hybrid=True, suffix_tokens=64))


def test_a_backend_that_moves_nothing_is_skipped_with_the_reason() -> None:
    series = resolve_plan(Plan(model="qwen3-8b", loads=(LoadSpec(backend="null"),), hybrid=True)).series
    assert series["hybrid/null/best"].skipped is not None
    assert "null moves no bytes" in series["hybrid/null/best"].skipped


def test_a_series_skipped_by_the_preflight_is_named_in_the_header_and_never_measured() -> None:
    setup = resolve_plan(SIMULATED)
    clock = VirtualClock()
    case = Case("recompute", "recompute", 64)
    source = SlowScriptedSource(
        clock, SeriesSkipped("hybrid/simulated/best", "needs the whole model"), CaseCost(case, 1.0, 1.0)
    )
    session = MeasurementSession(clock, source, None, 0.0)
    findings = run_preflight(setup, session, start_s=0.0, checked=frozenset(), observer=SilentObserver())
    assert findings.skipped == {"hybrid/simulated/best": "needs the whole model"}
    run = note_findings(_run_hybrid(setup), findings)
    assert run.series["hybrid/simulated/best"].skipped == "needs the whole model"
    assert [(notice.kind, notice.text, notice.suspect) for notice in run.notices] == [
        ("series_skipped", "hybrid/simulated/best: skipped: needs the whole model", False)
    ]
    assert note_findings(run, findings).notices == run.notices  # said once, however often it is resumed
    rounds = prepare_rounds(
        setup,
        session,
        run,
        findings=findings,
        start_s=0.0,
        samples=[],
        search_s=0.0,
        observer=SilentObserver(),
    )
    assert rounds.series == (("recompute", "recompute"), ("load", "simulated/best"))


def test_all_three_arms_of_a_length_are_neighbours_and_in_the_budget() -> None:
    setup = resolve_plan(SIMULATED)
    clock = VirtualClock()
    session = MeasurementSession(
        clock, SimulatedSource(SPEC, clock=clock, num_bytes=lambda n, suffix: 8 * (suffix or n)), None, 0.0
    )
    findings = run_preflight(setup, session, start_s=0.0, checked=frozenset(), observer=SilentObserver())
    rounds = prepare_rounds(
        setup,
        session,
        _run_hybrid(setup),
        findings=findings,
        start_s=0.0,
        samples=[],
        search_s=0.0,
        observer=SilentObserver(),
    )
    cases = rounds.cases_at(64)
    assert [case.arm for case in cases] == ["recompute", "load", "hybrid"]
    costs = {case.arm: rounds.costs.expected_s(case) for case in cases}
    assert costs["hybrid"] == min(costs["recompute"], costs["load"])
    assert rounds.cost_s(64) == sum(costs.values())
    (one,) = shuffle_round([cases], num_samples={0: 1}, seed=3)
    assert {case.arm for case in one.groups[0]} == {"recompute", "load", "hybrid"}


def test_a_simulated_hybrid_takes_until_both_sides_meet() -> None:
    clock = VirtualClock()
    source = SimulatedSource(SPEC, clock=clock, num_bytes=lambda n, suffix: 8 * (suffix or n))
    case = Case("hybrid", "hybrid/simulated/best", 400)
    passes = shuffle_round([[case]], num_samples={0: 1}, seed=0)
    job = RoundJob(SIMULATED, 0, passes, start_s=0.0, deadline_s=99.0, seed=0)
    (taken, done) = source.run(job)
    assert isinstance(taken, SampleTaken) and isinstance(done, JobDone)
    outcome = taken.sample.outcome
    assert outcome.seconds == pytest.approx(0.3)  # 300 tokens computed while 100 are loaded
    assert outcome.load_fraction == pytest.approx(0.25)
    assert outcome.num_bytes == 800


def test_where_one_side_would_only_wait_the_other_does_everything() -> None:
    assert meet_simulated(lambda n: 1.0 + n, lambda n: 0.001 * n, 100) == (0.1, 1.0)
    assert meet_simulated(lambda n: 0.001 * n, lambda n: 5.0 + n, 100) == (0.1, 0.0)


def test_more_files_are_written_because_two_arms_walk_through_them(tmp_path: Path) -> None:
    counts = {}
    for hybrid in (False, True):
        folder = tmp_path / str(hybrid)
        folder.mkdir()
        setup = resolve_plan(
            Plan(
                model="qwen3-0.6b",
                loads=(LoadSpec(chunk_tokens=4),),
                hybrid=hybrid,
                num_samples=2,
                num_rounds=1,
            )
        )
        found = create_stores(setup, plan_stores(setup, folder, longest=8))
        counts[hybrid] = ChunkStore.open(found["posix/best"]).num_chunks
    assert counts == {False: 8, True: 16}


def test_costs_of_a_hybrid_are_learned_apart_from_those_of_its_load_series() -> None:
    costs = CostBook(lambda case: 9.0)
    costs.add(Case("load", "posix/best", 64), 1.0)
    costs.add(Case("hybrid", "hybrid/posix/best", 64), 0.5)
    assert costs.expected_s(Case("hybrid", "hybrid/posix/best", 64)) == 0.5
    assert Findings(costs).skipped == {}
