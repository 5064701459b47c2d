"""Going on with a sweep: nobody else writes meanwhile, and what the header says is true afterwards."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.__main__ import main
from bench.cli.report_command import finish
from bench.estimate.next_lengths import choose_lengths
from bench.machine.facts import NoiseFacts
from bench.measure import sweep
from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import open_record
from bench.measure.processes.source import SimulatedSource
from bench.measure.resume import Until
from bench.measure.session import Site
from bench.measure.setup import work_out
from bench.measure.sweep import Hands, resume_sweep, run_sweep
from bench.measure.tuning.tuning_rule import search_settings
from bench.record.folder import hold_folder
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.run import BuiltLayers, RunRecord, read_run, write_run
from bench.record.sample import RecordError
from bench.record.samples_csv import read_samples
from tests.test_runner import Silent

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


def _hands(observer: Silent | None = None) -> Hands:
    return Hands(policy=choose_lengths, search=search_settings, observer=observer or Silent())


def _stopped(tmp_path: Path, **changes: Any) -> Path:  # noqa: ANN401 — fields of a header
    """A sweep that was stopped before its second round."""
    plan = PLAN.model_copy(update={"num_rounds": 1})
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=_hands())
    run = read_run(folder)
    write_run(folder, run.model_copy(update={"state": "interrupted", "plan": PLAN, **changes}))
    return folder


class Intruder(Silent):
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
            resume_sweep(header.parent, data_dir=self._root, hands=_hands())
        self.refusals.append(str(refused.value))
        with pytest.raises(typer.Exit) as ended:
            finish(header.parent)
        self.reports.append(ended.value.exit_code)


@pytest.mark.parametrize("resumed", [False, True], ids=["begun", "resumed"])
def test_a_sweep_under_way_can_be_reported_on_and_not_gone_on_with(tmp_path: Path, *, resumed: bool) -> None:
    root = tmp_path / "results"
    intruder = Intruder(root)
    if resumed:
        folder = resume_sweep(_stopped(tmp_path), data_dir=tmp_path, hands=_hands(intruder))
    else:
        folder = run_sweep(PLAN, root=root, data_dir=tmp_path, hands=_hands(intruder))
    assert intruder.refusals == [f"{folder}: a sweep is writing here; go on with it when that one has ended"]
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
    assert line == f"kvcross: {folder}: a sweep is writing here; go on with it when that one has ended"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_a_failed_part_left_out_is_measured_again_and_no_longer_said(tmp_path: Path) -> None:
    stale = [
        Notice(code="failed", message="round 2: no more disk"),
        Notice(code="series_failed", message="simulated/best: was left out from then on: round 2: gone"),
        Notice(code="lengths_dropped", message="lengths from 2048 tokens on are not measured: no memory"),
    ]
    kept = Notice(code="half_line", message="the last row was half written and dropped", suspect=False)
    folder = _stopped(tmp_path, state="failed", notices=(*stale, kept))
    resume_sweep(folder, data_dir=tmp_path, hands=_hands())
    run = read_run(folder)
    assert run.state == "complete"
    assert [notice for notice in run.notices if notice.code != "other_revision"] == [kept]
    assert {s.case.prefix_tokens for s in read_samples(folder)[0] if s.round == 1} == {512, 2048}


def test_a_complete_sweep_is_gone_on_with_where_it_gets_a_longer_budget(tmp_path: Path) -> None:
    nothing = Notice(code="nothing_measured", message="the budget of 180 s ended before the first sample")
    folder = _stopped(tmp_path, state="complete", notices=(nothing,))
    for budget_s in (None, PLAN.budget_s):
        with pytest.raises(PlanError, match=r"complete, with a budget of 180 s; a longer --budget goes on"):
            resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(budget_s=budget_s))
    assert {sample.round for sample in read_samples(folder)[0]} == {0}
    resume_sweep(folder, data_dir=tmp_path, hands=_hands(), until=Until(budget_s=600))
    run = read_run(folder)
    assert (run.state, run.plan.budget_s) == ("complete", 600)
    assert "nothing_measured" not in {notice.code for notice in run.notices}
    assert {sample.round for sample in read_samples(folder)[0]} == {0, 1}


def test_checks_that_an_earlier_part_made_are_named_to_the_preflight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[frozenset[str]] = []
    real = sweep.look_ahead

    def look_ahead(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 — passes on what it is given
        checked.append(named["checked"])
        return real(*arguments, **named)

    folder = _stopped(
        tmp_path, checks={"dtype": {"ratio": 1.0}}, built_layers=BuiltLayers(indices=(0,), total=1)
    )
    monkeypatch.setattr(sweep, "look_ahead", look_ahead)
    resume_sweep(folder, data_dir=tmp_path, hands=_hands())
    assert checked == [frozenset({"dtype"})]


def test_who_else_is_at_work_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = work_out(Plan(model="qwen3-8b", tokens=(512,), loads=(LoadSpec(backend="hostmem"),)))
    with open_record(setup, tmp_path, tmp_path, other_runs=0) as (_, folder):
        pass
    run = read_run(folder).model_copy(update={"state": "interrupted", "notices": ()})
    write_run(folder, run)
    resumed: list[RunRecord] = []

    @contextmanager
    def open_site(setup: object, data_dir: Path, *, since_s: float) -> Iterator[Site]:
        clock = VirtualClock()
        yield Site(
            clock,
            SimulatedSource(SimulationSpec(), clock=clock, num_bytes=lambda n, suffix: suffix or n),
            None,
            0.0,
            other_runs=2,
        )

    noise = NoiseFacts(busy_share=0.5, steal_share=None, load_average=1.0)
    monkeypatch.setattr(sweep, "require_same", lambda *arguments: ())
    monkeypatch.setattr(sweep, "read_noise", lambda: noise)
    monkeypatch.setattr(sweep, "open_site", open_site)
    monkeypatch.setattr(sweep, "_carry_out", lambda *arguments, held, **named: resumed.append(held.run))
    resume_sweep(folder, data_dir=tmp_path, hands=_hands())
    assert [(notice.code, notice.message) for notice in resumed[0].notices] == [
        (
            "busy_machine",
            "other work took 50% of the processor when the sweep was gone on with: expect wide intervals",
        ),
        (
            "another_run",
            "2 other sweeps used the same folder when this one was gone on with: each disturbs the other",
        ),
    ]
