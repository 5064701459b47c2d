"""Before the rounds: what a case costs here, whether the answer is right, what the harness costs."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.measure.budget import CostBook, format_remedies
from bench.measure.clock import Clock
from bench.measure.processes.messages import (
    CaseCost,
    CaseRefused,
    CheckDone,
    JobBegun,
    JobFailed,
    LayersChosen,
    Message,
    PreflightJob,
    SeriesFailed,
    SeriesSkipped,
)
from bench.measure.processes.source import Source
from bench.measure.rounds import ROUNDS_PLANNED, MeasureError
from bench.record.notices import Notice
from bench.record.plan import Plan, PlanError
from bench.record.progress import Observer
from bench.record.run import BuiltLayers
from bench.record.sample import Case

WALK_SHARE = 0.01  # of the budget: the walk over rising lengths ends with the first case that takes longer
MIN_ROUNDS_OF_TWO = 3  # enough for an interval
PREFLIGHT_SHARE = 0.6  # of the budget at most


@dataclass(slots=True)
class Findings:
    """What the preflight found out.

    Args:
        refused: by length, why the device cannot hold it.
        skipped: by series, why it cannot be measured here.
        failed: by load series, what broke in its check.
    """

    costs: CostBook
    checks: dict[str, Any] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    walked: list[int] = field(default_factory=list)
    startup_s: float = 0.0
    layers: BuiltLayers | None = None

    def add_cost(self, case: Case, wall_s: float, *, since_s: float) -> None:
        """A call that took `wall_s` has ended `since_s` after its process began; the first tells the startup."""
        if not self.walked:
            self.startup_s = max(0.0, since_s - wall_s)
            self.costs.add_startup(self.startup_s)
        self.costs.add(case, wall_s)
        self.walked.append(case.prefix_tokens)

    def note(self, message: Message) -> None:
        """Remember what the process found out beside costs.

        Raises:
            MeasureError: the process failed.
            PlanError: this machine cannot do what was asked.
        """
        match message:
            case LayersChosen(layers):
                self.layers = layers
            case CaseRefused(case, reason):
                self.refused[case.prefix_tokens] = reason
            case SeriesSkipped(series, reason):
                self.skipped[series] = reason
            case SeriesFailed(series, reason):
                self.failed[series] = reason
            case CheckDone(name, result, notice):
                self.checks[name] = result
                self.notices += [notice] if notice else []
            case JobFailed(reason, refused):
                raise PlanError(reason) if refused else MeasureError(f"preflight: {reason}")


def walk_lengths(shortest: int, most: int) -> tuple[int, ...]:
    """Powers of two times the shortest length, up to `most`."""
    lengths = [shortest]
    while lengths[-1] * 2 <= most:
        lengths.append(lengths[-1] * 2)
    return tuple(lengths)


def run_preflight(
    job: PreflightJob,
    *,
    source: Source,
    costs: CostBook,
    clock: Clock,
    observer: Observer,
    left_s: float | None = None,
) -> Findings:
    """Carry the job out; `left_s` of the budget are left, all of it where None is given.

    Raises:
        MeasureError: the measuring process failed.
        PlanError: this machine cannot do what was asked, or not even the shortest length before the deadline.
    """
    observer.on_phase("preflight: what a case costs, and whether the answer is right")
    findings = Findings(costs)
    asked_s = began_s = clock.now_s()
    for message in source.run(job):
        match message:
            case JobBegun():
                began_s = clock.now_s()
            case CaseCost(case, wall_s, _):
                findings.add_cost(case, wall_s, since_s=clock.now_s() - began_s)
            case _:
                findings.note(message)
    budget_s = job.plan.budget_s
    spent_s = 0.0 if left_s is None else budget_s - left_s
    _require_walked(findings, job, waited_s=clock.now_s() - asked_s, spent_s=spent_s)
    return findings


def _require_walked(findings: Findings, job: PreflightJob, *, waited_s: float, spent_s: float) -> None:
    if findings.walked:
        return
    if findings.refused:
        raise MeasureError(f"preflight: {next(iter(findings.refused.values()))}")
    raise _too_small(job.plan, job.lengths[0], waited_s, spent_s=spent_s)


def require_time(plan: Plan, left_s: float) -> None:
    """Stop when the budget was spent before anything could be measured, and before more is.

    Raises:
        PlanError: what it would take.
    """
    if left_s > 0:
        return
    spent_s = plan.budget_s - left_s
    raise PlanError(
        f"a budget of {plan.budget_s:g} s is too small to measure anything: {spent_s:.0f} s were spent before the first "
        f"case could begin; try {format_remedies(plan, max(60, math.ceil(3 * spent_s)))}{_other_work()}"
    )


def _too_small(plan: Plan, shortest: int, needed_s: float, *, spent_s: float) -> PlanError:
    """What it would take; `spent_s` of the budget had gone before (a resumed sweep, or slow probes)."""
    before = f" of which {spent_s:.0f} s were spent before" if spent_s >= 1 else ""
    return PlanError(
        f"a budget of {plan.budget_s:g} s{before} is too small to measure anything: after {needed_s:.0f} s the shortest "
        f"case, {shortest} tokens, was still not measured (building the model included); try "
        f"{format_remedies(plan, max(60, round(spent_s + 8 * needed_s)))}{_other_work()}"
    )


def _other_work() -> str:
    """A remark where more runs than there are cores: that, and not the budget, may be the trouble."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return (
        f"; the machine is busy (load {load:.1f} on {cores} cores): end other work"
        if load > cores + 1
        else ""
    )


def longest_within(
    lengths: Sequence[int], cost_s: Mapping[int, float], *, left_s: float, startup_s: float, num_rounds: int
) -> int:
    """The longest length for which `num_rounds` rounds over all shorter ones fit into what is left.

    At least the first; and the second where three rounds of both fit, for one length alone gives no answer.
    """
    allowance_s = left_s / num_rounds - startup_s
    spent_s = 0.0
    longest = lengths[0]
    for length in lengths:
        spent_s += cost_s[length]
        if spent_s > allowance_s:
            break
        longest = length
    if longest == lengths[0] and len(lengths) > 1:
        both_s = cost_s[lengths[0]] + cost_s[lengths[1]] + startup_s
        longest = lengths[1] if both_s * MIN_ROUNDS_OF_TWO <= left_s else longest
    return longest


def require_budget(plan: Plan, left_s: float, shortest: int, *, cost_s: float) -> None:
    """Stop when not even one round of the shortest length fits.

    Raises:
        PlanError: what it would take.
    """
    if cost_s > left_s:
        needed_s = plan.budget_s - left_s + ROUNDS_PLANNED * cost_s
        raise PlanError(
            f"a budget of {plan.budget_s:g} s is too small to measure anything: {shortest} tokens take about "
            f"{cost_s:.0f} s, {left_s:.0f} s are left; try {format_remedies(plan, math.ceil(needed_s))}{_other_work()}"
        )
