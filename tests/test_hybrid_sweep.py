"""`--hybrid` in a sweep: what is planned, skipped, budgeted and simulated."""

from pathlib import Path

import pytest

from bench.arms.simulated import meet_simulated
from bench.measure.budget import CostBook, shuffle_round
from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import note_findings
from bench.measure.preflight import Findings
from bench.measure.prepare_rounds import look_ahead, prepare_rounds
from bench.measure.processes.messages import CaseCost, JobDone, RoundJob, SampleTaken, SeriesSkipped
from bench.measure.processes.source import SimulatedSource
from bench.measure.session import Site
from bench.measure.setup import Setup, work_out
from bench.measure.stores import create_stores, plan_stores
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.run import RunRecord
from bench.record.sample import Case
from kvio.store.chunk_store import ChunkStore
from tests.test_preflight import Scripted, Silent

SPEC = SimulationSpec(recompute_s=(0.0, 0.001, 0.0), load_s=(0.0, 0.003), round_noise=0.0, sample_noise=0.0)
SIMULATED = Plan(model="qwen3-8b", loads=(LoadSpec(backend="simulated"),), simulation=SPEC, hybrid=True)


def _run(setup: Setup) -> RunRecord:
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
    series = work_out(Plan(model="qwen3-8b", loads=loads, hybrid=True)).series
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
        info.arm for info in work_out(Plan(model="qwen3-8b", loads=loads)).series.values()
    }


def test_the_marginal_question_and_hybrid_exclude_each_other() -> None:
    with pytest.raises(PlanError, match="leave out one of the two"):
        work_out(Plan(model="qwen3-8b", hybrid=True, suffix_tokens=64))


def test_a_backend_that_moves_nothing_is_skipped_with_the_reason() -> None:
    series = work_out(Plan(model="qwen3-8b", loads=(LoadSpec(backend="null"),), hybrid=True)).series
    assert series["hybrid/null/best"].skipped is not None
    assert "null moves no bytes" in series["hybrid/null/best"].skipped


def test_a_series_skipped_by_the_preflight_is_named_in_the_header_and_never_measured() -> None:
    setup = work_out(SIMULATED)
    clock = VirtualClock()
    case = Case("recompute", "recompute", 64)
    source = Scripted(
        clock, SeriesSkipped("hybrid/simulated/best", "needs the whole model"), CaseCost(case, 1.0, 1.0)
    )
    site = Site(clock, source, None, 0.0)
    findings = look_ahead(setup, site, start_s=0.0, checked=frozenset(), observer=Silent())
    assert findings.skipped == {"hybrid/simulated/best": "needs the whole model"}
    run = note_findings(_run(setup), findings)
    assert run.series["hybrid/simulated/best"].skipped == "needs the whole model"
    assert [(notice.code, notice.message, notice.suspect) for notice in run.notices] == [
        ("series_skipped", "hybrid/simulated/best: skipped: needs the whole model", False)
    ]
    assert note_findings(run, findings).notices == run.notices  # said once, however often it is resumed
    rounds = prepare_rounds(
        setup, site, run, findings=findings, start_s=0.0, samples=[], search_s=0.0, observer=Silent()
    )
    assert rounds.series == (("recompute", "recompute"), ("load", "simulated/best"))


def test_all_three_arms_of_a_length_are_neighbours_and_in_the_budget() -> None:
    setup = work_out(SIMULATED)
    clock = VirtualClock()
    site = Site(
        clock, SimulatedSource(SPEC, clock=clock, num_bytes=lambda n, suffix: 8 * (suffix or n)), None, 0.0
    )
    findings = look_ahead(setup, site, start_s=0.0, checked=frozenset(), observer=Silent())
    rounds = prepare_rounds(
        setup, site, _run(setup), findings=findings, start_s=0.0, samples=[], search_s=0.0, observer=Silent()
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
        setup = work_out(
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
