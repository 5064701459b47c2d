"""Before the rounds: what a case costs here, whether the loaded KV is right, which lengths and files the budget allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.measure.budget import (
    MIN_ROUNDS,
    ROUNDS_PLANNED,
    BudgetTooSmallError,
    CostBook,
    longest_within,
    require_budget,
    walk_lengths,
)
from bench.measure.chunk_files import write_chunk_files
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
from bench.measure.rounds import MeasureError, Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import GEMM, RECOMPUTE, ResolvedPlan
from bench.measure.stores import most_tokens
from bench.record.notices import Notice
from bench.record.plan import PlanError
from bench.record.progress import Observer
from bench.record.run import BuiltLayers, RunRecord
from bench.record.sample import Case, Sample

WALK_SHARE = 0.01  # of the budget: the walk over rising lengths ends with the first case that takes longer
PREFLIGHT_SHARE = 0.6  # of the budget at most
MIN_NEEDED_S = 60  # the smallest budget that is suggested where nothing was measured
GEMM_TOKENS = 2048  # at most, and
GEMM_S = 0.3  # seconds at most that one sample of it may cost
SHORTEST_WARMUP_TOKENS = 16
WARMUP_S = 1.0  # a case that costs more is warmed up at a shorter length
MIN_BYTES_PER_S = 5e8  # assumed of a drive never read from, until the first round knows better


@dataclass(slots=True)
class Findings:
    """What the preflight found out."""

    costs: CostBook
    checks: dict[str, Any] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # by length, why the device cannot hold it
    skipped: dict[str, str] = field(default_factory=dict)  # by series, why it cannot be measured here
    failed: dict[str, str] = field(default_factory=dict)  # by load series, what broke in its check
    walked: list[int] = field(default_factory=list)
    startup_s: float = 0.0
    layers: BuiltLayers | None = None

    def add_cost(self, case: Case, wall_s: float, *, since_s: float) -> None:
        """Add a call of `wall_s` that ended `since_s` after its process began; the first call gives the startup time."""
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


def run_preflight(
    setup: ResolvedPlan,
    session: MeasurementSession,
    *,
    start_s: float,
    checked: frozenset[str],
    observer: Observer,
    layers: BuiltLayers | None = None,
) -> Findings:
    """Measure the cost of rising lengths and run the checks, in a fresh process.

    Args:
        start_s: when the sweep began.
        checked: checks that an earlier part made, with the same layers.
        layers: those of the earlier part; None lets the preflight choose.

    Raises:
        BudgetTooSmallError: the shortest length was not measured in time.
        PlanError: this machine cannot do what was asked.
        MeasureError: the measuring process failed.
    """
    plan, clock = setup.plan, session.clock
    asked_s = clock.now_s()
    spent_s = asked_s - start_s  # of a resumed sweep, by its earlier part too
    if spent_s >= plan.budget_s:
        why = f"{spent_s:.0f} s were spent before the first case could begin"
        raise BudgetTooSmallError(plan, max(MIN_NEEDED_S, 3 * spent_s), why)
    observer.on_phase("preflight: cost of a case, logits check")
    job = PreflightJob(
        plan=plan,
        lengths=setup.lengths or walk_lengths(_shortest(setup), most_tokens(setup, session.scratch)),
        case_limit_s=WALK_SHARE * plan.budget_s,
        deadline_s=asked_s + PREFLIGHT_SHARE * (plan.budget_s - spent_s),
        scratch_dir=session.scratch,
        checked=checked,
        layers=None if layers is None else layers.indices,
    )
    findings = Findings(_make_costs(setup))
    began_s = asked_s
    for message in session.source.run(job):
        match message:
            case JobBegun():
                began_s = clock.now_s()
            case CaseCost(case, wall_s, _):
                findings.add_cost(case, wall_s, since_s=clock.now_s() - began_s)
            case _:
                findings.note(message)
    if findings.walked:
        return findings
    if findings.refused:
        raise MeasureError(f"preflight: {next(iter(findings.refused.values()))}")
    waited_s = clock.now_s() - asked_s
    why = f"the shortest case, {job.lengths[0]} tokens, was not measured within {waited_s:.0f} s, model building included"
    if spent_s >= 1:
        why += f", after {spent_s:.0f} s that were spent before"
    raise BudgetTooSmallError(plan, max(MIN_NEEDED_S, spent_s + ROUNDS_PLANNED * waited_s), why)


def _make_costs(setup: ResolvedPlan) -> CostBook:
    """Costs by case; a load that was never measured is expected to read at the limit, or as a slow drive does."""
    rate = setup.plan.limit_bytes_per_s or MIN_BYTES_PER_S

    def prior_s(case: Case) -> float:
        load_s = setup.load_bytes(case.prefix_tokens, case.suffix_tokens) / rate
        if case.arm != "hybrid":
            return load_s
        return min(load_s, costs.expected_s(replace(case, arm="recompute", series=RECOMPUTE)))

    costs = CostBook(prior_s)
    return costs


def prepare_rounds(
    setup: ResolvedPlan,
    session: MeasurementSession,
    run: RunRecord,
    *,
    findings: Findings,
    start_s: float,
    samples: list[Sample],
    search_s: float,
    observer: Observer,
) -> Rounds:
    """Choose the lengths that the budget, less `search_s`, allows, and write the files.

    Raises:
        PlanError: not even the shortest length, or its files, fits into what is left of the budget.
        StoreError: the files cannot be written.
        KVIOError: they cannot be placed where any series reads them.
    """
    plan = setup.plan
    rounds = Rounds(
        run=run,
        series=tuple(
            (info.arm, name)
            for name, info in run.series.items()
            if info.arm != "gemm" and info.skipped is None
        ),
        allowed=(),
        start_s=start_s,
        deadline_s=start_s + plan.budget_s,
        costs=findings.costs,
        samples=samples,
        next_round=1 + max((sample.round for sample in samples), default=-1),
    )
    left_s = rounds.deadline_s - session.clock.now_s() - search_s
    grid = setup.lengths or walk_lengths(_shortest(setup), most_tokens(setup, session.scratch))
    grid = tuple(length for length in grid if length < min(findings.refused, default=length + 1))
    if setup.lengths is None:
        grid = long_enough(setup, grid)
    costs_s = {length: rounds.cost_s(length) for length in grid}
    require_budget(plan, left_s, grid[0], cost_s=costs_s[grid[0]] + findings.startup_s)
    if setup.lengths is not None:
        rounds.allowed = grid
    else:
        longest = longest_within(
            grid,
            costs_s,
            left_s=left_s,
            startup_s=findings.startup_s,
            num_rounds=plan.num_rounds or MIN_ROUNDS,
        )
        rounds.allowed = tuple(range(grid[0], longest + 1, setup.chunk_tokens))
    if session.scratch is not None:
        left_s = rounds.deadline_s - session.clock.now_s() - search_s
        directories = write_chunk_files(rounds, setup, session, left_s=left_s, observer=observer)
        rounds.store_dirs = {
            name: found for name in run.series if (found := _files_of(name, run, directories))
        }
        rounds.rate_case = Case("gemm", GEMM, _rate_tokens(setup, findings, most=rounds.allowed[-1]))
        rounds.warmup_tokens = _warmup_tokens(rounds)
    return rounds


def _shortest(setup: ResolvedPlan) -> int:
    """Where chosen lengths begin: at a chunk, but not at one token, which the first-token step computes by itself."""
    return max(setup.chunk_tokens, 2)


def long_enough(setup: ResolvedPlan, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Under a read limit, the lengths whose load takes long enough to feel it; where none does, those that take longest."""
    limit = setup.plan.limit
    if limit is None:
        return grid
    read_bytes = {n: setup.load_bytes(n, setup.plan.suffix_tokens) for n in grid}
    enough = min(limit.enough_bytes(), max(read_bytes.values()))
    return tuple(n for n in grid if read_bytes[n] >= enough)


def _files_of(series: str, run: RunRecord, directories: Mapping[str, Path]) -> Path | None:
    """Where the chunk files of a series are; a hybrid series reads those of its load series."""
    info = run.series[series]
    return None if info.skipped is not None else directories.get(info.settings.get("load_series", series))


def _rate_tokens(setup: ResolvedPlan, findings: Findings, *, most: int) -> int:
    """Tokens at which the matrix rate is taken: many, for that is where it is highest, but a second at most."""
    geometry = setup.model.geometry
    flops_per_s = findings.checks["dtype"]["flops_per_s"][setup.plan.dtype]
    per_token_s = geometry.prefill_gemm_flops_per_token / len(geometry.layers) / flops_per_s
    return int(max(setup.chunk_tokens, min(most, GEMM_TOKENS, GEMM_S / per_token_s)))


def _warmup_tokens(rounds: Rounds) -> int:
    """The longest power of two up to which a case is warmed up at its own length."""
    tokens = SHORTEST_WARMUP_TOKENS
    while rounds.cost_s(tokens * 2) <= WARMUP_S:
        tokens *= 2
        if tokens > rounds.allowed[-1]:
            break
    return tokens
