"""A whole sweep: session, preflight, chunk files, tuning, rounds; its folder is readable however it ends."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.machine.facts import read_noise
from bench.measure.clock import MonotonicClock
from bench.measure.conditions.header import note_findings, notice_other_work, open_record
from bench.measure.conditions.interference import start_monitor
from bench.measure.conditions.storage_check import check_cold_reads
from bench.measure.preflight import prepare_rounds, run_preflight
from bench.measure.resume import AS_BEFORE, NewLimits, read_unfinished, require_same
from bench.measure.rounds import MeasureError, run_rounds
from bench.measure.session import open_session
from bench.measure.setup import drop_unavailable_backends, resolve_plan
from bench.measure.sweep_state import SweepState
from bench.measure.tuning.tuning_search import find_settings, plan_search
from bench.record.folder import hold_folder, remove_folder
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.record.progress import Observer, Policy
from bench.record.run import read_run
from bench.record.samples_csv import SampleWriter
from kvio.errors import FailedError, UserError


@dataclass(frozen=True, slots=True)
class SweepHooks:
    """What chooses the lengths, and what shows progress."""

    policy: Policy
    observer: Observer


def run_sweep(plan: Plan, *, root: Path, data_dir: Path, hooks: SweepHooks) -> Path:
    """Measure a plan; the result folder, `root/<model>/<machine>/<run>`.

    Args:
        data_dir: where the KV files go: the drive that is measured.

    Raises:
        CatalogError, PlanError, KVIOError, LimitRefusedError: the plan cannot be measured here.
        MeasureError: it failed before the first sample; later failures and interrupts are in the header.
        WriteError: the results cannot be written; the sweep can be resumed.
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
        _show(known, hooks.observer)
        state = SweepState(setup, session, folder, run)
        try:
            _carry_out(state, hooks)
        except (UserError, FailedError):
            if not state.has_measured:  # a sweep that could not begin leaves no folder behind
                remove_folder(folder)
            raise
    return folder


def resume_sweep(folder: Path, *, data_dir: Path, hooks: SweepHooks, until: NewLimits = AS_BEFORE) -> Path:
    """Resume a sweep with what is left of its budget, or with new limits.

    Raises:
        RecordError, PlanError: the folder cannot be read, is complete or in use, or is of another machine or software.
    """
    since_s = MonotonicClock().now_s()
    with hold_folder(folder):  # before anything is read: another sweep may be adding to it
        run, samples = read_unfinished(folder, hooks.policy, until)
        setup = resolve_plan(run.plan)
        known = check_cold_reads(setup, data_dir)
        notices = [*run.notices, *require_same(folder, run, setup, data_dir), *known]
        busy_share = (
            0.0 if run.plan.simulation is not None else read_noise().busy_share
        )  # simulated: undisturbed
        with open_session(setup, data_dir, since_s=since_s) as session:
            _show(known, hooks.observer)
            notices += notice_other_work(busy_share, session.other_runs, when="was gone on with")
            begun = run.model_copy(update={"state": "running", "notices": tuple(notices)})
            _carry_out(SweepState(setup, session, folder, begun, tuple(samples), read_run(folder)), hooks)
    return folder


def _show(notices: Sequence[Notice], observer: Observer) -> None:
    for notice in notices:
        observer.on_notice(notice.text)


def _carry_out(state: SweepState, hooks: SweepHooks) -> None:
    """Measure; the header has how it ended."""
    ended = "failed"
    try:
        _measure(state, hooks)
        ended = "complete"
    except KeyboardInterrupt:
        ended = "interrupted"
    except MeasureError as error:
        if not (state.earlier or state.has_measured):
            raise
        failed = Notice(kind="failed", detail=str(error))
        state.run = state.run.model_copy(update={"notices": (*state.run.notices, failed)})
    finally:
        state.finish(ended)


def _measure(state: SweepState, hooks: SweepHooks) -> None:
    """Preflight, lengths and chunk files, tuning, rounds."""
    setup, session, observer = state.setup, state.session, hooks.observer
    start_s, layers = session.start_s - state.spent_s, state.run.built_layers
    with closing(SampleWriter(state.folder)) as writer:
        findings = run_preflight(
            setup, session, start_s=start_s, checked=state.valid_checks, observer=observer, layers=layers
        )
        state.note(note_findings(state.run, findings))
        search = plan_search(state.run, setup, state.earlier)
        rounds = state.rounds = prepare_rounds(
            setup,
            session,
            state.run,
            findings=findings,
            start_s=start_s,
            samples=list(state.earlier),
            search_s=search.limit_s,
            observer=observer,
        )
        state.note(find_settings(search, rounds, session, observer=observer))
        monitor = start_monitor(setup, session)
        run_rounds(
            rounds,
            source=session.source,
            policy=hooks.policy,
            writer=writer,
            observer=observer,
            clock=session.clock,
            between=lambda: state.check_interference(monitor),
        )
