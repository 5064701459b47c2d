"""The rounds of a sweep: ask the policy, measure in a fresh process, append, until done or out of budget."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.arms.file_cursor import CursorPosition
from bench.measure.budget import (
    ROUNDS_PLANNED,
    CostBook,
    fitting_lengths,
    format_remedies,
    samples_per_length,
    shuffle_round,
)
from bench.measure.clock import Clock
from bench.measure.processes.messages import (
    CaseRefused,
    JobDone,
    JobFailed,
    JobStopped,
    Message,
    RoundJob,
    SampleTaken,
    SeriesFailed,
)
from bench.measure.processes.source import Source
from bench.measure.setup import load_of
from bench.record.notices import NOTHING_MEASURED, SERIES_FAILED, Notice
from bench.record.progress import NO_ROOM, End, Observer, Policy, Progress
from bench.record.read_setting import settle
from bench.record.run import RunRecord
from bench.record.sample import ArmName, Case, Sample
from bench.record.samples_csv import SampleWriter
from kvio.errors import FailedError

REST_SHARE = 0.1  # of the budget that may be left without saying so
RATE_SAMPLES = 3  # of the matrix rate in each round
LOST = "could not be read any more and was left out from then on"


class MeasureError(FailedError):
    """The sweep cannot continue; one line with the reason."""


@dataclass(slots=True)
class Rounds:
    """State of the rounds: what is fixed, and what grows."""

    run: RunRecord
    series: tuple[tuple[ArmName, str], ...]  # measured at every length
    allowed: tuple[int, ...]
    start_s: float
    deadline_s: float
    costs: CostBook
    warmup_tokens: int = 0
    store_dirs: Mapping[str, Path] = field(default_factory=dict)
    taken: dict[Path, CursorPosition] = field(
        default_factory=dict
    )  # of the files of each store, by its directory
    samples: list[Sample] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    rate_case: Case | None = None  # the machine's matrix rate, once in every walk
    next_round: int = 0
    first_left_s: float | None = None  # of the budget, when the first round was planned

    def cases_at(self, length: int) -> tuple[Case, ...]:
        """All arms at one length."""
        suffix = self.run.plan.suffix_tokens
        return tuple(Case(arm, series, length, suffix) for arm, series in self.series)

    def cost_s(self, length: int) -> float:
        """Seconds expected for one sample of every arm at this length."""
        return sum(self.costs.expected_s(case) for case in self.cases_at(length))


def run_rounds(
    rounds: Rounds,
    *,
    source: Source,
    policy: Policy,
    writer: SampleWriter,
    observer: Observer,
    clock: Clock,
    between: Callable[[], None],
) -> None:
    """Measure round after round; every sample is on the disk before the next begins.

    Args:
        between: called after each round: checks interference and writes the notices.
    """
    while True:
        left_s = rounds.deadline_s - clock.now_s()
        rounds.first_left_s = left_s if rounds.first_left_s is None else rounds.first_left_s
        chosen = policy(_progress(rounds, left_s))
        job = None if isinstance(chosen, End) else plan_round(rounds, chosen, left_s=left_s)
        if job is None:
            observer.on_phase(f"done: {chosen.reason if isinstance(chosen, End) else NO_ROOM}")
            wanted = chosen.wanted if isinstance(chosen, End) else chosen
            _notice_rest(rounds, wanted, left_s=left_s)
            return
        observer.on_round(rounds.next_round, _lengths_of(job))
        _measure_round(rounds, job, source=source, writer=writer, observer=observer, clock=clock)
        between()
        rounds.next_round += 1


def _notice_rest(rounds: Rounds, wanted: tuple[int, ...], *, left_s: float) -> None:
    """Say so when an arm was never measured, or a good part of the budget is left because nothing fits into it.

    Args:
        wanted: lengths that did not fit; empty when all rounds that were asked for are measured.
    """
    measured = {sample.case.series for sample in rounds.samples}
    arms = {arm for arm, series in rounds.series if series in measured}
    unmeasured = [series for _, series in rounds.series if series not in measured]
    if wanted and not {"recompute", "load"} <= arms:
        rounds.notices.append(_notice_nothing(rounds, unmeasured))
        return
    if unmeasured:
        ended = "the budget" if wanted else "the last round"
        detail = f"{ended} ended before its first sample"
        rounds.notices += [Notice(kind="unmeasured", series=name, detail=detail) for name in unmeasured]
    if unasked := _asked_in_vain(rounds):
        message = f"{unasked} tokens were asked for and not measured: the sweep ended before; a longer --budget has room"
        rounds.notices.append(Notice(kind="unmeasured", detail=message))
    if wanted and left_s > REST_SHARE * rounds.run.plan.budget_s:
        needed_s = rounds.cost_s(wanted[0]) + rounds.costs.startup_s
        message = f"{left_s:.0f} s of the budget were left; another round takes about {needed_s:.0f} s"
        rounds.notices.append(Notice(kind="budget_left", detail=message))


def _asked_in_vain(rounds: Rounds) -> str:
    """Lengths that were asked for, could be measured, and have no sample; empty when there is none."""
    measured = {sample.case.prefix_tokens for sample in rounds.samples if sample.case.arm != "gemm"}
    asked = rounds.run.plan.tokens or ()
    return ", ".join(str(tokens) for tokens in rounds.allowed if tokens in asked and tokens not in measured)


def _notice_nothing(rounds: Rounds, unmeasured: Sequence[str]) -> Notice:
    """Why an arm has no sample: the budget went into preflight, files and the beginning of a round."""
    plan, shortest = rounds.run.plan, rounds.allowed[0]
    round_s = rounds.cost_s(shortest) + rounds.costs.startup_s
    before_s = plan.budget_s - (rounds.first_left_s or 0.0)
    first = "the first sample"
    if len(unmeasured) < len(rounds.series):
        first += f" of {', '.join(unmeasured)}"
    return Notice(
        kind=NOTHING_MEASURED,
        detail=(
            f"the budget of {plan.budget_s:g} s ended before {first}: {before_s:.0f} s went by before the rounds, "
            f"and {len(rounds.series)} series at {shortest} tokens take about {round_s:.0f} s a round; "
            f"try {format_remedies(plan, math.ceil(before_s + ROUNDS_PLANNED * round_s))}"
        ),
    )


def _progress(rounds: Rounds, left_s: float) -> Progress:
    return Progress(
        run=rounds.run,
        samples=rounds.samples,
        loads=tuple(series for arm, series in rounds.series if arm == "load"),
        allowed=rounds.allowed,
        cost_s={length: rounds.cost_s(length) for length in rounds.allowed},
        rounds_done=rounds.next_round,
        budget_left_s=left_s,
        startup_s=rounds.costs.startup_s,
    )


def plan_round(rounds: Rounds, lengths: tuple[int, ...], *, left_s: float) -> RoundJob | None:
    """The next round within what is left of the budget; None when not even the shortest length may fit."""
    usable_s = left_s - rounds.costs.startup_s
    costs_s = [rounds.cost_s(length) for length in lengths]
    least_s = sum(rounds.costs.least_s(case) for case in rounds.cases_at(lengths[0]))
    if least_s > usable_s:
        return None
    kept = fitting_lengths(lengths, costs_s, allowance_s=usable_s)
    plan = rounds.run.plan
    rounds_left = max(1, (plan.num_rounds or ROUNDS_PLANNED) - rounds.next_round)
    allowance_s = max(costs_s[0], left_s / rounds_left - rounds.costs.startup_s)
    counts = samples_per_length(costs_s[: len(kept)], allowance_s=allowance_s, most=plan.num_samples)
    groups = [rounds.cases_at(length) for length in kept]
    if rounds.rate_case is not None:
        groups.append((rounds.rate_case,))
        counts.append(RATE_SAMPLES)
    passes = shuffle_round(
        groups, num_samples=dict(enumerate(counts)), seed=plan.seed * 1_000_003 + rounds.next_round
    )
    return RoundJob(
        plan=settle(plan, rounds.run.searches),
        number=rounds.next_round,
        passes=passes,
        start_s=rounds.start_s,
        deadline_s=rounds.deadline_s,
        seed=plan.seed,
        expected_s={case: rounds.costs.least_s(case) for group in groups for case in group},
        warmup_tokens=rounds.warmup_tokens,
        store_dirs=dict(rounds.store_dirs),
        taken=dict(rounds.taken),
        layers=None if rounds.run.built_layers is None else rounds.run.built_layers.indices,
    )


def _measure_round(
    rounds: Rounds, job: RoundJob, *, source: Source, writer: SampleWriter, observer: Observer, clock: Clock
) -> None:
    began_s = clock.now_s()
    first = True
    for message in source.run(job):
        match message:
            case SampleTaken(sample, wall_s, taken):
                if first:
                    rounds.costs.add_startup(max(0.0, clock.now_s() - began_s - wall_s))
                    first = False
                rounds.taken.update(taken)
                writer.append(sample)
                rounds.samples.append(sample)
                rounds.costs.add(sample.case, wall_s)
                observer.on_sample(sample)
            case JobFailed(reason):
                raise MeasureError(f"round {job.number + 1}: {reason}")
            case JobDone(taken):
                rounds.taken.update(taken)
            case _:
                _drop_failed(rounds, job, message)


def _drop_failed(rounds: Rounds, job: RoundJob, message: Message) -> None:
    """Drop the length or series that could not be measured, with a notice."""
    match message:
        case CaseRefused(case, reason):
            _drop_from(rounds, case.prefix_tokens, reason)
        case SeriesFailed(series, reason):
            drop_series(rounds, series, f"round {job.number + 1}: {reason}")
        case JobStopped():
            rounds.notices.append(_notice_stopped(rounds, job))


def _notice_stopped(rounds: Rounds, job: RoundJob) -> Notice:
    """A round that was killed: the only sign of a file system or a server that hangs."""
    taken = [sample.case for sample in rounds.samples if sample.round == job.number]
    last = f", the last of {taken[-1].series} at {taken[-1].prefix_tokens} tokens" if taken else ""
    message = (
        f"round {job.number + 1}: its process did not answer any more after the deadline and was ended; samples that it "
        f"had given: {len(taken)}{last}; a call far slower than before does that, as on a "
        f"machine that is busy, or a drive or a server that hangs"
    )
    return Notice(kind="round_stopped", detail=message)


def _lengths_of(job: RoundJob) -> tuple[int, ...]:
    groups = job.passes[0].groups
    return tuple(sorted({group[0].prefix_tokens for group in groups if group[0].arm != "gemm"}))


def _drop_from(rounds: Rounds, length: int, reason: str) -> None:
    """Measure only lengths below one that this machine cannot hold, with a notice."""
    rounds.allowed = tuple(allowed for allowed in rounds.allowed if allowed < length)
    message = f"lengths from {length} tokens on are not measured: {reason}"
    rounds.notices.append(Notice(kind="lengths_dropped", detail=message))
    if not rounds.allowed:
        raise MeasureError(f"not one length can be measured: {reason}")


def drop_series(rounds: Rounds, series: str, reason: str, *, instead: str = LOST) -> None:
    """Drop a load series that could not be read, and its hybrid; the sweep continues with the others.

    Raises:
        MeasureError: no load series is left.
    """
    load = load_of(series)
    rounds.series = tuple((arm, name) for arm, name in rounds.series if load_of(name) != load)
    if not any(arm == "load" for arm, _ in rounds.series):
        raise MeasureError(reason)
    rounds.notices.append(Notice(kind=SERIES_FAILED, series=load, detail=f"{instead}: {reason}"))
