"""How a sweep ends under the policy that sweeps run with, and what is said of what is left."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from bench.estimate.next_lengths import choose_lengths
from bench.estimate.valid_samples import select_load
from bench.measure import sweep
from bench.measure.budget import CostBook
from bench.measure.clock import VirtualClock
from bench.measure.processes.messages import (
    CaseRefused,
    Job,
    JobDone,
    JobStopped,
    Message,
    RoundJob,
    SampleTaken,
)
from bench.measure.resume import NewLimits, require_unfinished
from bench.measure.rounds import Rounds, run_rounds
from bench.measure.setup import resolve_plan
from bench.measure.sweep import SweepHooks, resume_sweep, run_sweep
from bench.measure.sweep_state import SweepState
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.progress import End
from bench.record.run import RunRecord, SeriesInfo, read_run
from bench.record.sample import ArmName, Case, Outcome, Sample
from bench.record.samples_csv import SampleWriter, read_samples
from kvio.backends.mooncake import mooncake_master as mooncake_server
from kvio.backends.mooncake.mooncake_master import StoreSegment
from kvio.child_process import start_child
from kvio.protocol import KVIOError
from tests.helpers.scripted_rounds import (
    ScriptedSource,
    SilentObserver,
    all_lengths,
    make_rounds,
    measure_rounds,
)
from tests.helpers.sweeps import make_run

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
) -> tuple[Rounds, SilentObserver]:
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
    source = Timed(clock, missing, stopped_s, startup_s)
    return rounds, measure_rounds(rounds, source, tmp_path, clock=clock, policy=choose_lengths)


def _told(rounds: Rounds) -> list[tuple[str, bool, str]]:
    return [(notice.kind, notice.suspect, notice.text) for notice in rounds.notices]


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
            "unmeasured",
            True,
            "800, 1600 tokens were asked for and not measured: the sweep ended before; a longer --budget has room",
        )
    ]
    assert observer.phases[-1] == "done: all 1 rounds of --rounds are measured"


def test_a_second_round_of_one_length_is_measured_where_no_more_fits(tmp_path: Path) -> None:
    rounds, observer = _sweep(tmp_path, budget_s=24.5)
    assert observer.rounds == [(100, 200, 400), (100,)]
    assert _told(rounds) == []  # half a second is left


def test_a_way_to_load_that_a_stopped_round_never_came_to_is_named(tmp_path: Path) -> None:
    rounds, _ = _sweep(tmp_path, budget_s=100.0, missing=("uring",), stopped_s=90.0)
    assert [(code, suspect) for code, suspect, _ in _told(rounds)] == [
        ("round_stopped", True),
        ("unmeasured", True),
    ]
    assert rounds.notices[-1].text == "uring: the budget ended before its first sample"


def test_a_way_to_load_that_the_asked_rounds_never_came_to_is_named(tmp_path: Path) -> None:
    rounds, _ = _sweep(tmp_path, budget_s=1000.0, missing=("uring",), num_rounds=1)
    assert _told(rounds) == [("unmeasured", True, "uring: the last round ended before its first sample")]


PLAN = Plan(
    model="qwen3-8b",
    loads=(LoadSpec(backend="simulated"),),
    simulation=SimulationSpec(),
    precision=0.3,
)


def _hooks(observer: SilentObserver | None = None) -> SweepHooks:
    return SweepHooks(policy=choose_lengths, observer=observer or SilentObserver())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_rounds": 2}, "all 2 rounds of --rounds are measured"),
        ({}, "every crossover is within ±30 % (--precision; a smaller value continues)"),
        ({"tokens": (512, 1024), "precision": 1e-6}, "a simulation ends after 40 rounds"),
    ],
    ids=["rounds", "precision", "simulation"],
)
def test_a_sweep_that_has_all_it_was_asked_for_is_not_gone_on_with(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    plan = PLAN.model_copy(update=changes)
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=_hooks())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for budget_s in (None, 1e5):
        with pytest.raises(PlanError) as refused:
            resume_sweep(folder, data_dir=tmp_path, hooks=_hooks(), until=NewLimits(budget_s=budget_s))
        assert str(refused.value).startswith(f"{folder}: this sweep is complete: {reason}; a longer --budget")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_sweep_whose_other_way_to_load_broke_is_gone_on_with(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"tokens": (512, 4096)})
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=_hooks())
    run = read_run(folder)
    other = SeriesInfo(arm="load", label="other", settings={"skipped": "no answer"})
    broken = Notice(
        kind="series_failed", series="other", detail="its check failed, so it was left out: no answer"
    )
    run = run.model_copy(update={"series": {**run.series, "other": other}})
    _refused(folder, run, "adds nothing")
    _refused(folder, run.model_copy(update={"notices": (broken,)}), "resume it with a longer --budget")


def _refused(folder: Path, run: RunRecord, what: str) -> None:
    samples, _ = read_samples(folder)
    with pytest.raises(PlanError, match=what):
        require_unfinished(folder, run, samples, policy=choose_lengths, until=NewLimits())


@pytest.mark.parametrize(("tokens", "num_bytes", "kept"), [(1, 0, 1), (1, 100, 0), (1, None, 0), (2, 0, 0)])
def test_a_load_of_one_token_counts_though_no_byte_of_it_was_compared(
    tokens: int, num_bytes: int | None, kept: int
) -> None:
    settings = {"backend": "posix", "cache_state": "direct"}
    run = make_run(series={"load": SeriesInfo(arm="load", label="load", settings=settings)})
    outcome = Outcome(seconds=0.1, num_bytes=num_bytes, cache_state="unverified")
    found = select_load(run, "load", {tokens: {0: [outcome]}})
    assert (len(found.table), found.num_left_out) == (kept, 1 - kept)


@pytest.mark.parametrize("load", [{"preset": "sglang-page1"}, {"chunk_tokens": 1}, {"chunk_tokens": 64}])
def test_chosen_lengths_begin_where_something_is_loaded(tmp_path: Path, load: dict[str, object]) -> None:
    plan = Plan(
        model="qwen3-8b",
        loads=(LoadSpec.model_validate({"backend": "simulated", **load}),),
        simulation=SimulationSpec(),
        num_rounds=1,
    )
    hooks = SweepHooks(policy=choose_lengths, observer=SilentObserver())
    samples, _ = read_samples(run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=hooks))
    assert min(sample.case.prefix_tokens for sample in samples) == (
        64 if load.get("chunk_tokens") == 64 else 2
    )


def test_finding_out_what_works_here_is_paid_from_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock(100.0)
    began: list[float] = []

    def probe(plan: Plan, data_dir: Path) -> tuple[Plan, tuple[()]]:
        clock.advance(9.0)
        return plan, ()

    def open_session(setup: object, data_dir: Path, *, since_s: float) -> None:
        began.append(since_s)
        raise PlanError("far enough")

    monkeypatch.setattr(sweep, "MonotonicClock", lambda: clock)
    monkeypatch.setattr(sweep, "drop_unavailable_backends", probe)
    monkeypatch.setattr(sweep, "open_session", open_session)
    with pytest.raises(PlanError, match="far enough"):
        run_sweep(
            Plan(model="qwen3-8b", loads=(LoadSpec(backend="hostmem"),)),
            root=tmp_path,
            data_dir=tmp_path,
            hooks=SweepHooks(policy=all_lengths, observer=SilentObserver()),
        )
    assert (began, clock.now_s()) == ([100.0], 109.0)


SETUP = resolve_plan(
    Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(LoadSpec(chunk_tokens=1),))
)


class SlowDepots:
    """Remembers which header a kill in the middle of the withdrawal would leave."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.left: list[tuple[str, list[str]]] = []

    def withdraw(self) -> tuple[Notice, ...]:
        run = read_run(self._folder)
        self.left.append((run.state, [notice.kind for notice in run.notices]))
        return (Notice(kind="objects_left", detail="no answer"),)


def test_a_server_that_hangs_when_its_objects_are_removed_holds_back_no_header(tmp_path: Path) -> None:
    placement = SlowDepots(tmp_path)
    session: Any = SimpleNamespace(placement=placement, scratch=None)
    state = SweepState(SETUP, session, tmp_path, make_run(plan=SETUP.plan, state="running"))
    state.rounds = make_rounds(VirtualClock(), budget_s=60.0)
    state.rounds.notices.append(Notice(kind="files_cut", detail="fewer"))
    state.finish("complete")
    assert placement.left == [("complete", ["files_cut"])]
    ended = read_run(tmp_path)
    assert (ended.state, [notice.kind for notice in ended.notices]) == (
        "complete",
        ["files_cut", "objects_left"],
    )


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ((JobDone(),), []),
        ((CaseRefused(Case("recompute", "recompute", 400), "out of memory"), JobDone()), ["lengths_dropped"]),
    ],
    ids=["nothing to say", "a length is dropped"],
)
def test_what_a_round_has_to_say_is_written_down_when_it_ends(
    messages: tuple[Message, ...], kept: list[str], tmp_path: Path
) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    asked = iter([(100, 200, 400), End("enough")])
    written: list[str] = []
    writer = SampleWriter(tmp_path)
    run_rounds(
        rounds,
        source=ScriptedSource(*messages),
        policy=lambda progress: next(asked),
        writer=writer,
        observer=SilentObserver(),
        clock=clock,
        between=lambda: written.extend(notice.kind for notice in rounds.notices),
    )
    writer.close()
    assert written == kept


def test_a_process_that_gives_no_memory_and_says_nothing_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(
        command: Sequence[str], *, folder: Path, log: IO[bytes], talks: bool
    ) -> subprocess.Popen[bytes]:
        # waits for input that never comes, as a stopped process does
        return start_child(["/bin/cat"], folder=folder, log=log, talks=talks)

    monkeypatch.setattr(mooncake_server, "start_child", start)
    monkeypatch.setattr(mooncake_server, "READY_LIMIT_S", 0.05)
    with pytest.raises(
        KVIOError, match="no memory could be given to the Mooncake store: it says nothing for"
    ):
        StoreSegment("127.0.0.1:1", 1, folder=tmp_path)
