"""Going on with a sweep: nobody else writes meanwhile, and what the header says is true afterwards."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.__main__ import main
from bench.cli.report_command import finish
from bench.estimate.next_lengths import choose_lengths
from bench.machine.facts import NoiseFacts
from bench.machine.software import compare_revisions, describe_software
from bench.measure import sweep
from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import describe_machine_of, describe_storage_of, open_record
from bench.measure.processes.source import SimulatedSource
from bench.measure.resume import NewLimits, require_same, require_unfinished
from bench.measure.rounds import MeasureError
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.measure.sweep import SweepHooks, resume_sweep, run_sweep
from bench.record.folder import hold_folder
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.progress import End
from bench.record.run import BuiltLayers, RunRecord, read_run, write_run
from bench.record.sample import RecordError
from bench.record.samples_csv import read_samples
from tests.helpers.scripted_rounds import SilentObserver

PLAN = Plan(
    model="qwen3-8b",
    tokens=(512, 2048),
    num_rounds=2,
    loads=(LoadSpec(backend="simulated"),),
    simulation=SimulationSpec(),
)
HOLD = """
import signal, sys
from pathlib import Path
from bench.record.folder import hold_folder
with hold_folder(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


def _hooks(observer: SilentObserver | None = None) -> SweepHooks:
    return SweepHooks(policy=choose_lengths, observer=observer or SilentObserver())


def _stopped(tmp_path: Path, **changes: Any) -> Path:  # noqa: ANN401 — fields of a header
    """A sweep that was stopped before its second round."""
    plan = PLAN.model_copy(update={"num_rounds": 1})
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=_hooks())
    run = read_run(folder)
    write_run(folder, run.model_copy(update={"state": "interrupted", "plan": PLAN, **changes}))
    return folder


class Intruder(SilentObserver):
    """Hears that the second round begins, and then goes on with the same sweep and reports on it."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self.refusals: list[str] = []
        self.reports: list[int] = []

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        super().on_round(number, lengths)
        if number != 1:
            return
        (header,) = self._root.glob("*/*/*/run.json")
        with pytest.raises(PlanError) as refused:
            resume_sweep(header.parent, data_dir=self._root, hooks=_hooks())
        self.refusals.append(str(refused.value))
        with pytest.raises(typer.Exit) as ended:
            finish(header.parent)
        self.reports.append(ended.value.exit_code)


@pytest.mark.parametrize("resumed", [False, True], ids=["begun", "resumed"])
def test_a_sweep_under_way_can_be_reported_on_and_not_gone_on_with(tmp_path: Path, *, resumed: bool) -> None:
    root = tmp_path / "results"
    intruder = Intruder(root)
    if resumed:
        folder = resume_sweep(_stopped(tmp_path), data_dir=tmp_path, hooks=_hooks(intruder))
    else:
        folder = run_sweep(PLAN, root=root, data_dir=tmp_path, hooks=_hooks(intruder))
    assert intruder.refusals == [f"{folder}: a sweep is writing here. Resume when it has ended."]
    assert intruder.reports == [1]  # it has not come to its end
    assert (folder / "report.html").exists()
    assert read_run(folder).state == "complete"
    assert {sample.round for sample in read_samples(folder)[0]} == {0, 1}


def test_the_lock_leaves_nothing_behind_and_kill_9_opens_it(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        with pytest.raises(PlanError, match="a sweep is writing here"), hold_folder(tmp_path):
            pass
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with hold_folder(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_cannot_be_held(tmp_path: Path) -> None:
    with (
        pytest.raises(RecordError, match="gone: cannot be opened: No such file"),
        hold_folder(tmp_path / "gone"),
    ):
        pass


def test_going_on_with_a_sweep_under_way_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _stopped(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "sweep", "--resume", str(folder)])
    monkeypatch.setattr(signal, "signal", lambda number, action: None)  # Ctrl-C stays the tests' own
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with hold_folder(folder), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"kvcross: {folder}: a sweep is writing here. Resume when it has ended."
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_a_failed_part_left_out_is_measured_again_and_no_longer_said(tmp_path: Path) -> None:
    stale = [
        Notice(kind="failed", detail="round 2: no more disk"),
        Notice(
            kind="series_failed", series="simulated/best", detail="was left out from then on: round 2: gone"
        ),
        Notice(kind="lengths_dropped", detail="lengths from 2048 tokens on are not measured: no memory"),
    ]
    kept = Notice(kind="half_line", detail="the last row was half written and dropped")
    folder = _stopped(tmp_path, state="failed", notices=(*stale, kept))
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks())
    run = read_run(folder)
    assert run.state == "complete"
    assert [notice for notice in run.notices if notice.kind != "other_revision"] == [kept]
    assert {s.case.prefix_tokens for s in read_samples(folder)[0] if s.round == 1} == {512, 2048}


def test_time_that_an_earlier_part_took_is_not_given_again(tmp_path: Path) -> None:
    folder = _stopped(tmp_path)
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks())
    samples, _ = read_samples(folder)
    spent_s = max(sample.started_s for sample in samples if sample.round == 0)
    assert min(sample.started_s for sample in samples if sample.round == 1) >= spent_s > 0


def test_a_complete_sweep_is_gone_on_with_where_it_gets_a_longer_budget(tmp_path: Path) -> None:
    nothing = Notice(kind="nothing_measured", detail="the budget of 180 s ended before the first sample")
    folder = _stopped(tmp_path, state="complete", notices=(nothing,))
    for budget_s in (None, PLAN.budget_s):
        with pytest.raises(PlanError, match="complete, with a budget of 180 s"):
            resume_sweep(folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(budget_s=budget_s))
    assert {sample.round for sample in read_samples(folder)[0]} == {0}
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(budget_s=600))
    run = read_run(folder)
    assert (run.state, run.plan.budget_s) == ("complete", 600)
    assert "nothing_measured" not in {notice.kind for notice in run.notices}
    assert {sample.round for sample in read_samples(folder)[0]} == {0, 1}


def test_checks_that_an_earlier_part_made_are_named_to_the_preflight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[frozenset[str]] = []
    real = sweep.run_preflight

    def watch(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 — passes on what it is given
        checked.append(named["checked"])
        return real(*arguments, **named)

    folder = _stopped(
        tmp_path, checks={"dtype": {"ratio": 1.0}}, built_layers=BuiltLayers(indices=(0,), total=1)
    )
    monkeypatch.setattr(sweep, "run_preflight", watch)
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks())
    assert checked == [frozenset({"dtype"})]


def test_who_else_is_at_work_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = resolve_plan(Plan(model="qwen3-8b", tokens=(512,), loads=(LoadSpec(backend="hostmem"),)))
    with open_record(setup, tmp_path, tmp_path, other_runs=0) as (_, folder):
        pass
    run = read_run(folder).model_copy(update={"state": "interrupted", "notices": ()})
    write_run(folder, run)
    resumed: list[RunRecord] = []

    @contextmanager
    def open_session(setup: object, data_dir: Path, *, since_s: float) -> Iterator[MeasurementSession]:
        clock = VirtualClock()
        yield MeasurementSession(
            clock,
            SimulatedSource(SimulationSpec(), clock=clock, num_bytes=lambda n, suffix: suffix or n),
            None,
            0.0,
            other_runs=2,
        )

    noise = NoiseFacts(busy_share=0.5, steal_share=None, load_average=1.0)
    monkeypatch.setattr(sweep, "require_same", lambda *arguments: ())
    monkeypatch.setattr(sweep, "read_noise", lambda: noise)
    monkeypatch.setattr(sweep, "open_session", open_session)
    monkeypatch.setattr(sweep, "_carry_out", lambda state, hooks: resumed.append(state.run))
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks())
    assert [(notice.kind, notice.text) for notice in resumed[0].notices] == [
        (
            "busy_machine",
            "other work took 50% of the processor when the sweep was gone on with: expect wide intervals",
        ),
        (
            "another_run",
            "2 other sweeps used the same folder when this one was gone on with: each disturbs the other",
        ),
    ]


@pytest.fixture(scope="module")
def setup() -> ResolvedPlan:
    return resolve_plan(Plan(model="qwen3-8b", device="cpu", tokens=(512,)))


@pytest.fixture
def run(setup: ResolvedPlan, tmp_path: Path) -> RunRecord:
    """The header of a sweep that was begun here a moment ago, by a clean checkout."""
    software = {**describe_software().model_dump(mode="json"), "git": {"commit": "a" * 40, "dirty": False}}
    return RunRecord(
        run_id="r",
        started_utc="2026-01-01T00:00:00Z",
        plan=setup.plan,
        model_name="M",
        kv_bytes_per_token=setup.bytes_per_token,
        chunk_tokens=setup.chunk_tokens,
        machine=describe_machine_of(setup)[1],
        storage=describe_storage_of(setup, tmp_path),
        software=software,
    )


Change = Callable[[RunRecord], dict[str, Any]]


def _package(name: str, version: str) -> Change:
    return lambda run: {"software": {**run.software, "packages": {**run.software["packages"], name: version}}}


CHANGES: dict[str, tuple[Change, str]] = {
    "torch": (_package("torch", "1.0.0"), r"torch: 1\.0\.0, 2\."),
    "transformers": (_package("transformers", "4.0"), r"transformers: 4\.0, 5\."),
    "a reader that is gone": (_package("kvikio-cu12", "26.2"), r"kvikio-cu12: 26\.2, none"),
    "python": (lambda run: {"software": {**run.software, "python": "3.9.1"}}, r"python: 3\.9\.1, 3\."),
    "threads": (
        lambda run: {"software": {**run.software, "environment": {"OMP_NUM_THREADS": "77"}}},
        r"OMP_NUM_THREADS: 77, ",
    ),
    "kernel": (lambda run: {"machine": {**run.machine, "kernel_release": "2.4.1"}}, r"kernel: 2\.4\.1, "),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rounds_of_other_software_are_not_pooled(
    name: str, run: RunRecord, setup: ResolvedPlan, tmp_path: Path
) -> None:
    change, says = CHANGES[name]
    with pytest.raises(PlanError, match=f"other software .then, now.: .*{says}") as caught:
        require_same(tmp_path, run.model_copy(update=change(run)), setup, tmp_path)
    assert "\n" not in str(caught.value)


def test_another_revision_of_the_code_goes_on_and_makes_the_answer_suspect(
    run: RunRecord, setup: ResolvedPlan, tmp_path: Path
) -> None:
    (notice,) = require_same(tmp_path, run, setup, tmp_path)
    assert (notice.kind, notice.suspect) == ("other_revision", True)
    assert "at aaaaaaaaaaaa, " in notice.text


def test_the_same_commit_is_the_same_code_unless_something_was_not_committed() -> None:
    def facts(commit: str, *, dirty: bool) -> dict[str, Any]:
        return {"packages": {"kvcross": "0.1"}, "git": {"commit": commit * 40, "dirty": dirty}}

    assert compare_revisions(facts("a", dirty=False), facts("a", dirty=False)) is None
    assert compare_revisions(facts("a", dirty=True), facts("a", dirty=True)) == (
        "0.1 at aaaaaaaaaaaa with uncommitted changes, 0.1 at aaaaaaaaaaaa with uncommitted changes"
    )
    assert compare_revisions(facts("a", dirty=False), facts("b", dirty=False)) == (
        "0.1 at aaaaaaaaaaaa, 0.1 at bbbbbbbbbbbb"
    )


def test_the_header_of_a_resumed_sweep_keeps_that_its_code_changed(tmp_path: Path) -> None:
    plan = Plan(
        model="qwen3-8b",
        tokens=(512, 2048),
        num_rounds=1,
        loads=(LoadSpec(backend="simulated"),),
        simulation=SimulationSpec(),
    )
    hooks = SweepHooks(policy=choose_lengths, observer=SilentObserver())
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=hooks)
    begun = read_run(folder)
    changed = {**begun.software, "git": {"commit": "b" * 40, "dirty": False}}
    write_run(folder, begun.model_copy(update={"state": "interrupted", "software": changed}))
    resume_sweep(folder, data_dir=tmp_path, hooks=hooks)
    assert "other_revision" in {notice.kind for notice in read_run(folder).notices}


LOST = Notice(
    kind="series_failed", series="simulated/best", detail="could not be read any more: round 1: gone"
)
DROPPED = Notice(kind="lengths_dropped", detail="lengths from 4096 tokens on are not measured: no memory")
CHECK = Notice(kind="series_check_failed", series="simulated/best", detail="its check failed: gone")


@pytest.mark.parametrize("state", ["complete", "interrupted"])
@pytest.mark.parametrize("error", [PlanError("no room"), MeasureError("killed"), KeyboardInterrupt()])
def test_a_header_stays_as_it_was_where_going_on_with_its_sweep_comes_to_nothing(
    error: BaseException, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(*arguments: object, **named: object) -> None:
        raise error

    folder = _stopped(tmp_path, state=state, notices=(LOST,))
    before = (folder / "run.json").read_bytes()
    monkeypatch.setattr(sweep, "run_preflight", watch)
    if isinstance(error, PlanError):
        with pytest.raises(PlanError, match="no room"):
            resume_sweep(
                folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(budget_s=PLAN.budget_s + 60)
            )
    else:
        resume_sweep(folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(budget_s=PLAN.budget_s + 60))
    assert (folder / "run.json").read_bytes() == before


@pytest.mark.parametrize("complete", [False, True], ids=["interrupted", "complete"])
def test_what_rounds_had_to_say_stands_until_there_are_new_ones(tmp_path: Path, *, complete: bool) -> None:
    state = "complete" if complete else "interrupted"
    folder = _stopped(tmp_path, state=state, notices=(LOST, DROPPED, CHECK))
    idle = replace(_hooks(), policy=lambda progress: End("nothing fits"))
    resume_sweep(folder, data_dir=tmp_path, hooks=idle, until=NewLimits(budget_s=PLAN.budget_s + 60))
    run = read_run(folder)
    assert (run.state, [n for n in run.notices if n in (LOST, DROPPED, CHECK)]) == (
        "complete",
        [LOST, DROPPED],
    )
    write_run(folder, run.model_copy(update={"state": "interrupted"}))
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks())
    assert not {LOST, DROPPED} & set(read_run(folder).notices)
    assert {sample.round for sample in read_samples(folder)[0]} == {0, 1}


@pytest.mark.parametrize(
    "code", ["answer_unchecked", "scaling_unchecked", "series_failed", "series_check_failed"]
)
def test_a_complete_sweep_is_gone_on_with_for_a_check_that_had_no_time(code: str, tmp_path: Path) -> None:
    folder = run_sweep(PLAN, root=tmp_path / "results", data_dir=tmp_path, hooks=_hooks())
    run, (samples, _) = read_run(folder), read_samples(folder)

    def longer(run: RunRecord, *, by_s: float = 60.0) -> None:
        budget_s = run.plan.budget_s + by_s
        require_unfinished(folder, run, samples, policy=_hooks().policy, until=NewLimits(budget_s=budget_s))

    with pytest.raises(PlanError, match="a longer --budget adds nothing"):
        longer(run)
    open_yet = run.model_copy(
        update={"notices": (Notice(kind=code, series="simulated/best", detail="no time"),)}
    )
    longer(open_yet)
    with pytest.raises(PlanError, match="resume it with a longer --budget"):
        longer(open_yet, by_s=0.0)


def test_a_sweep_that_was_precise_enough_is_gone_on_with_for_a_smaller_precision(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"tokens": None, "num_rounds": None})
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=_hooks())
    before = read_samples(folder)[0]
    with pytest.raises(PlanError, match="a longer --budget adds nothing"):
        resume_sweep(folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(budget_s=plan.budget_s + 60))
    resume_sweep(folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(precision=0.03))
    after = read_samples(folder)[0]
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert read_run(folder).plan.precision == 0.03
