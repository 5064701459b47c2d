"""A whole sweep: preflight, files, rounds, header; whatever stops it, the folder stays readable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.machine.facts import read_noise
from bench.measure.clock import MonotonicClock
from bench.measure.conditions.header import (
    found_in_rounds,
    keep_latest,
    note_findings,
    notice_other_work,
    notice_repeats,
    open_record,
)
from bench.measure.conditions.interference import InterferenceMonitor, start_monitor
from bench.measure.conditions.storage_check import check_cold_reads
from bench.measure.preflight import prepare_rounds, run_preflight
from bench.measure.resume import AS_BEFORE, NewLimits, require_same, require_unfinished
from bench.measure.rounds import MeasureError, Rounds, run_rounds
from bench.measure.session import MeasurementSession, open_session
from bench.measure.setup import ResolvedPlan, drop_unavailable_backends, resolve_plan
from bench.measure.tuning.tuning_search import find_settings, plan_search
from bench.record.folder import hold_folder, remove_folder
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.record.progress import Observer, Policy, SearchPolicy
from bench.record.run import RunRecord, read_run, write_run
from bench.record.sample import Sample
from bench.record.samples_csv import SampleWriter, read_samples
from kvio.errors import FailedError, UserError


@dataclass(frozen=True, slots=True)
class SweepHooks:
    """Who decides and who listens."""

    policy: Policy
    search: SearchPolicy
    observer: Observer


def run_sweep(plan: Plan, *, root: Path, data_dir: Path, hooks: SweepHooks) -> Path:
    """Measure a plan from the beginning; the folder with what came of it.

    Args:
        root: results go to `root/<model>/<machine>/<run>`.
        data_dir: KV files go to a scratch directory in here; its drive is what is measured.

    Raises:
        CatalogError, PlanError, KVIOError, LimitRefusedError: what was asked cannot be done.
        MeasureError: it failed before anything was measured.  Later failures and interrupts are told by the
            header's state.
        WriteError: the results cannot be written any more; what was written stands, and can be gone on with.
    """
    since_s = MonotonicClock().now_s()  # finding out what works here is paid from the budget
    resolve_plan(plan)  # what was asked must make sense before anything is tried
    plan, skipped = drop_unavailable_backends(plan, data_dir)
    setup = resolve_plan(plan)
    known = (*skipped, *check_cold_reads(setup, data_dir))
    with (
        open_session(setup, data_dir, since_s=since_s) as session,
        open_record(setup, root, data_dir, other_runs=session.other_runs, known=known) as (run, folder),
    ):
        _tell(known, hooks.observer)
        samples: list[Sample] = []
        try:
            _carry_out(setup, session, folder, held=_SweepState(run), samples=samples, hooks=hooks)
        except (UserError, FailedError):
            if not samples:  # a sweep that could not begin leaves no folder behind
                remove_folder(folder)
            raise
    return folder


def _tell(notices: Sequence[Notice], observer: Observer) -> None:
    for notice in notices:
        observer.on_notice(notice.message)


def resume_sweep(folder: Path, *, data_dir: Path, hooks: SweepHooks, until: NewLimits = AS_BEFORE) -> Path:
    """Go on with a sweep that was stopped, with what is left of its budget, or until something else.

    Raises:
        RecordError, PlanError: the folder cannot be read, is complete or still being written, or is of another
            machine or software.
    """
    since_s = MonotonicClock().now_s()
    with hold_folder(folder):  # before anything is read: another sweep may be adding to it
        run, samples = _read_unfinished(folder, hooks.policy, until)
        setup = resolve_plan(run.plan)
        known = check_cold_reads(setup, data_dir)
        notices = [*run.notices, *require_same(folder, run, setup, data_dir), *known]
        # a simulation is not disturbed
        busy_share = 0.0 if run.plan.simulation is not None else read_noise().busy_share
        with open_session(setup, data_dir, since_s=since_s) as session:
            _tell(known, hooks.observer)
            notices += notice_other_work(busy_share, session.other_runs, when="was gone on with")
            begun = run.model_copy(update={"state": "running", "notices": tuple(notices)})
            held = _SweepState(begun, before=read_run(folder), num_before=len(samples))
            _carry_out(setup, session, folder, held=held, samples=samples, hooks=hooks)
    return folder


def _read_unfinished(folder: Path, policy: Policy, until: NewLimits) -> tuple[RunRecord, list[Sample]]:
    """The header, with what is to end it, and the samples of a sweep that can be gone on with."""
    run = read_run(folder)
    begun = (folder / "samples.csv").exists()
    samples, notices = read_samples(folder, may_be_empty=True) if begun else ([], ())
    require_unfinished(folder, run, samples, policy=policy, until=until)
    plan = until.change(run.plan)
    return run.model_copy(update={"plan": plan, "notices": (*run.notices, *notices)}), samples


@dataclass(slots=True)
class _SweepState:
    """What a sweep has come to so far, for the header that it leaves however it ends.

    Args:
        before: of one that is gone on with, the header that its earlier part left.
        num_before: samples of that part.
    """

    run: RunRecord
    before: RunRecord | None = None
    num_before: int = 0
    rounds: Rounds | None = None
    writer: SampleWriter | None = None

    @property
    def has_measured(self) -> bool:
        """Whether this part has added a sample."""
        return self.rounds is not None and len(self.rounds.samples) > self.num_before


def _carry_out(
    setup: ResolvedPlan,
    session: MeasurementSession,
    folder: Path,
    *,
    held: _SweepState,
    samples: list[Sample],
    hooks: SweepHooks,
) -> None:
    """Preflight, files, rounds; the header says how it ended."""
    state = "failed"
    try:
        _measure(setup, session, folder, held=held, samples=samples, hooks=hooks)
        state = "complete"
    except KeyboardInterrupt:
        state = "interrupted"
    except MeasureError as error:
        if not samples:
            raise
        failed = Notice(code="failed", message=str(error))
        held.run = held.run.model_copy(update={"notices": (*held.run.notices, failed)})
    finally:
        _finish(setup, session, folder, held=held, state=state)


def _measure(
    setup: ResolvedPlan,
    session: MeasurementSession,
    folder: Path,
    *,
    held: _SweepState,
    samples: list[Sample],
    hooks: SweepHooks,
) -> None:
    """Look ahead, write the files, search, measure; `held` knows each step as soon as it is done."""
    held.writer = SampleWriter(folder)
    spent_s = max((sample.started_s for sample in samples), default=0.0)
    start_s = session.start_s - spent_s
    layers = held.run.built_layers
    findings = run_preflight(
        setup,
        session,
        start_s=start_s,
        checked=frozenset() if layers is None else frozenset(held.run.checks),
        observer=hooks.observer,
        layers=layers,
    )
    held.run = note_findings(held.run, findings)
    _write_header(folder, held)
    search = plan_search(held.run, setup, samples)
    rounds = held.rounds = prepare_rounds(
        setup,
        session,
        held.run,
        findings=findings,
        start_s=start_s,
        samples=samples,
        search_s=search.limit_s,
        observer=hooks.observer,
    )
    settled = find_settings(search, rounds, session, decide=hooks.search, observer=hooks.observer)
    held.run = rounds.run = settled
    _write_header(folder, held)
    monitor = start_monitor(setup, session)
    run_rounds(
        rounds,
        source=session.source,
        policy=hooks.policy,
        writer=held.writer,
        observer=hooks.observer,
        clock=session.clock,
        between=lambda: _look_around(session, rounds, monitor, write=lambda: _write_header(folder, held)),
    )


def _look_around(
    session: MeasurementSession,
    rounds: Rounds,
    monitor: InterferenceMonitor | None,
    *,
    write: Callable[[], None],
) -> None:
    """After a round: note who else is at work by now, and write what was noticed before a kill takes it."""
    found = notice_other_work(0.0, session.count_others(), when="measured")
    if monitor is not None:
        found += monitor.look(rounds.next_round + 1)
    rounds.notices[:] = keep_latest((*rounds.notices, *found))
    if rounds.notices:
        write()


def _finish(
    setup: ResolvedPlan, session: MeasurementSession, folder: Path, *, held: _SweepState, state: str
) -> None:
    """Close the file of samples, write the last header, then take back what lies elsewhere, which may take long.

    Where going on with it came to nothing, the header of the earlier part is put back.
    """
    if held.writer is not None:
        held.writer.close()
    repeats = notice_repeats(setup, session, held.rounds.taken) if held.rounds else ()
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    held.run = held.run.model_copy(update={"state": state, "finished_utc": finished})
    before = held.before
    if before is not None and before.state != "running" and state != "complete" and not held.has_measured:
        held.run, held.rounds, repeats = before, None, ()
    _write_header(folder, held, repeats)
    left = () if session.placement is None else session.placement.withdraw()
    if left:
        _write_header(folder, held, (*repeats, *left))


def _write_header(folder: Path, held: _SweepState, more: Sequence[Notice] = ()) -> None:
    """The header as far as the sweep has come; of each thing that is said again, the latest."""
    rounds = held.rounds.notices if held.rounds else ()
    before = None if held.has_measured or held.run is held.before else held.before
    earlier = () if before is None else found_in_rounds(before)
    notices = (*earlier, *held.run.notices, *rounds, *more)
    write_run(folder, held.run.model_copy(update={"notices": keep_latest(notices)}))
