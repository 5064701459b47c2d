"""Which layers are built is decided once for a sweep: every round, and every resumed one, builds the same."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.arms.model.memory import MemoryShortError
from bench.estimate.analysis import analyse
from bench.estimate.next_lengths import choose_lengths
from bench.measure import sweep
from bench.measure.budget import CostBook
from bench.measure.clock import MonotonicClock, VirtualClock
from bench.measure.conditions.header import note_findings
from bench.measure.preflight import Findings
from bench.measure.preflight import run_preflight as carry_out
from bench.measure.processes.messages import (
    CaseCost,
    Job,
    JobDone,
    LayersChosen,
    Message,
    Pass,
    PreflightJob,
    RoundJob,
)
from bench.measure.rounds import Rounds, plan_round
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.measure.worker import worker_main as worker
from bench.measure.worker.preflight_checks import decide_layers, run_preflight_checks
from bench.record.plan import LoadSpec, Plan, SimulationSpec
from bench.record.run import BuiltLayers, RunRecord, read_run, write_run
from bench.record.sample import Case, Sample
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import format_depth
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.scripted_rounds import SilentObserver, SlowScriptedSource
from tests.helpers.sweeps import make_run, make_samples

SOME = BuiltLayers(indices=(0, 1), total=8)
LENGTHS = (64, 128, 1024)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Of a model of 8 layers with 0.36 MB of weights each, and 1 MB of KV per 1024 tokens and layer."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY | {"num_hidden_layers": 8}))
    return Plan(
        model=str(path), dtype="float32", device="cpu", tokens=LENGTHS, loads=(LoadSpec(chunk_tokens=64),)
    )


def _preflight(plan: Plan, layers: tuple[int, ...] | None) -> list[Message]:
    clock = MonotonicClock()
    deadline_s = clock.now_s() + 60.0
    job = PreflightJob(plan, (64,), 0.0, deadline_s, None, layers=layers)
    return list(run_preflight_checks(job, clock))


def _give(monkeypatch: pytest.MonkeyPatch, available_bytes: int) -> None:
    for module in ("bench.measure.worker.preflight_checks", "bench.arms.model.memory"):
        monkeypatch.setattr(f"{module}.available_bytes", lambda device: available_bytes)


def test_layers_are_chosen_for_the_longest_length_and_not_for_the_first(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = resolve_plan(plan)
    assert setup.layout.bytes_at(1024) == 8 * 2**20
    _give(
        monkeypatch, 2 * 6_000_000
    )  # 2.9 MB of weights fit in half of it, and 8.4 MB of KV do not beside them
    assert decide_layers(setup, (64,)) == tuple(range(8))
    assert decide_layers(setup, LENGTHS) == (0, 1, 2, 3)


def test_tokens_after_the_prefix_need_room_too(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    _give(monkeypatch, 2 * 6_000_000)
    asked = plan.model_copy(update={"suffix_tokens": 1024})
    assert decide_layers(resolve_plan(asked), (64,)) == (0, 1, 2, 3)


def test_a_length_that_the_device_cannot_hold_does_not_decide(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    _give(monkeypatch, 1_200_000)  # one layer with 1 MB of KV has no room, with 0.13 MB it has
    assert decide_layers(resolve_plan(plan), LENGTHS) == (0,)
    with pytest.raises(MemoryShortError, match="one layer of each of 1 kinds"):
        decide_layers(resolve_plan(plan), LENGTHS[2:])


def test_the_preflight_tells_which_layers_it_chose_and_builds_those_of_a_resumed_sweep(plan: Plan) -> None:
    chosen = [message for message in _preflight(plan, None) if isinstance(message, LayersChosen)]
    assert chosen == [LayersChosen(BuiltLayers(indices=tuple(range(8)), total=8))]
    assert LayersChosen(SOME) in _preflight(plan, SOME.indices)


def test_a_round_builds_the_layers_that_it_is_told(plan: Plan) -> None:
    clock = MonotonicClock()
    case = Case("recompute", "recompute", 64)
    job = RoundJob(plan, 0, (Pass(((case,),)),), 0.0, clock.now_s() + 60.0, seed=0, layers=SOME.indices)
    taken, _ = worker._measure(job, clock)
    outcome = taken.sample.outcome  # type: ignore[union-attr]
    assert (outcome.measured_layers, outcome.total_layers) == (2, 8)
    with pytest.raises(ValueError, match="layers"):
        list(worker._measure(replace(job, layers=None), clock))


def test_every_round_has_weights_and_tokens_of_its_own(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def open_nothing(setup: ResolvedPlan, *, seed: int, **settings: object) -> None:
        seeds.append(seed)
        raise MemoryShortError("enough is known")

    monkeypatch.setattr(worker, "open_model_session", open_nothing)
    passes = (Pass(((Case("recompute", "recompute", 64),),)),)
    for plan_seed in (0, 1):
        for number in range(3):
            job = RoundJob(plan, number, passes, 0.0, 60.0, seed=plan_seed, layers=SOME.indices)
            with pytest.raises(MemoryShortError):
                list(worker._measure(job, VirtualClock()))
    assert len(set(seeds)) == 6


def test_layers_that_no_longer_fit_are_one_clear_line(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    _give(monkeypatch, 2**19)
    with pytest.raises(MemoryShortError) as caught:
        _preflight(plan, SOME.indices)
    assert "the 2 layers" in str(caught.value) and "0.0 GiB are free" in str(caught.value)


class Asked(SlowScriptedSource):
    """A source that remembers the last job."""

    job: Job | None = None

    def run(self, job: Job) -> Iterator[Message]:
        self.job = job
        yield from super().run(job)


def test_a_resumed_sweep_gives_its_preflight_the_recorded_layers(plan: Plan) -> None:
    clock = VirtualClock()
    cost = CaseCost(Case("recompute", "recompute", 64), 1.0, 1.0)
    source = Asked(clock, LayersChosen(SOME), cost, JobDone())
    session = MeasurementSession(clock, source, None, 0.0)
    setup = resolve_plan(plan)
    findings = carry_out(
        setup, session, start_s=0.0, checked=frozenset(), observer=SilentObserver(), layers=SOME
    )
    assert isinstance(source.job, PreflightJob)
    assert source.job.layers == SOME.indices
    assert findings.layers == SOME


def _noted(plan: Plan, layers: BuiltLayers | None, **checks: object) -> RunRecord:
    findings = Findings(CostBook(lambda case: 1.0), checks=dict(checks), layers=layers)
    return note_findings(make_run(plan=plan, checks={}, series={}), findings)


def test_the_header_keeps_the_layers_and_every_round_gets_them(plan: Plan, tmp_path: Path) -> None:
    write_run(tmp_path, _noted(plan, SOME))
    run = read_run(tmp_path)
    assert run.built_layers == SOME
    rounds = Rounds(
        run=run,
        series=(("recompute", "recompute"), ("load", "load")),
        allowed=(64,),
        start_s=0.0,
        deadline_s=100.0,
        costs=CostBook(lambda case: 1.0),
    )
    job = plan_round(rounds, (64,), left_s=100.0)
    assert job is not None
    assert job.layers == SOME.indices


def test_a_scaling_that_was_never_checked_is_said(plan: Plan) -> None:
    def codes(run: RunRecord) -> list[str]:
        return [notice.kind for notice in run.notices]

    assert codes(_noted(plan, SOME)) == ["scaling_unchecked"]
    assert codes(_noted(plan, SOME, scaling={"relative_error": 0.01})) == []
    assert codes(_noted(plan, BuiltLayers(indices=tuple(range(8)), total=8))) == []


def _of_depths(*layers: int) -> list[Sample]:
    """Samples of 36 layers, scaled from so many in one round after the other."""
    return [
        replace(s, outcome=replace(s.outcome, measured_layers=layers[s.round % len(layers)]))
        if s.case.arm == "recompute"
        else s
        for s in make_samples(tokens=(512, 8192))
    ]


def test_pooled_depths_of_older_sweeps_make_the_answer_suspect() -> None:
    samples = _of_depths(4, 3)
    analysis = analyse(make_run(), samples)
    (said,) = (notice for notice in analysis.notices if notice.kind == "mixed_depths")
    assert (said.series, "3 and 4 layers" in said.detail) == ("recompute", True)
    assert "mixed_depths" in suspect_codes(make_run(), samples, analysis, series="load-1")
    one = _of_depths(4)
    assert "mixed_depths" not in suspect_codes(make_run(), one, analyse(make_run(), one), series="load-1")


def test_what_is_said_of_the_depth_is_true_of_all_samples() -> None:
    assert format_depth(_of_depths(36)) is None
    assert format_depth(_of_depths(4)) == "recompute scaled from 4 of 36 layers"
    assert format_depth(_of_depths(4, 3)) == "recompute scaled from 3 or 4 of 36 layers"
    assert format_depth(_of_depths(36, 4)) == (
        "recompute scaled from 4 of 36 layers in some samples, of all layers in others"
    )


@pytest.mark.parametrize("recorded", [SOME, None])
def test_going_on_hands_over_what_is_recorded_and_checks_anew_where_nothing_is(
    recorded: BuiltLayers | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[BuiltLayers | None, frozenset[str]]] = []

    def watch(setup: ResolvedPlan, session: MeasurementSession, **said: Any) -> Findings:  # noqa: ANN401
        seen.append((said["layers"], said["checked"]))
        return carry_out(setup, session, **said)

    monkeypatch.setattr(sweep, "run_preflight", watch)
    plan = Plan(
        model="qwen3-8b",
        tokens=(512, 2048),
        num_rounds=1,
        loads=(LoadSpec(backend="simulated"),),
        simulation=SimulationSpec(),
    )
    hooks = sweep.SweepHooks(policy=choose_lengths, observer=SilentObserver())
    folder = sweep.run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=hooks)
    begun = read_run(folder)
    checks = {"dtype": {"ratio": 1.0}, "scaling": {"relative_error": 0.0}}
    changes = {"state": "interrupted", "built_layers": recorded, "checks": checks}
    write_run(folder, begun.model_copy(update=changes))
    sweep.resume_sweep(folder, data_dir=tmp_path, hooks=hooks)
    made = frozenset(checks) if recorded is not None else frozenset()
    assert seen == [(None, frozenset()), (recorded, made)]
    assert read_run(folder).built_layers == recorded
