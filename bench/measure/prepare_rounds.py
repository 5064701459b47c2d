"""From a setup to the state in which rounds can begin: what cases cost, which lengths, which files."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.measure.budget import CostBook
from bench.measure.chunk_files import write_chunk_files
from bench.measure.preflight import (
    PREFLIGHT_SHARE,
    WALK_SHARE,
    Findings,
    longest_within,
    require_budget,
    require_time,
    run_preflight,
    walk_lengths,
)
from bench.measure.processes.messages import PreflightJob
from bench.measure.rounds import MIN_ROUNDS, Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import GEMM, RECOMPUTE, ResolvedPlan
from bench.measure.stores import most_tokens
from bench.record.progress import Observer
from bench.record.run import BuiltLayers, RunRecord
from bench.record.sample import Case, Sample

GEMM_TOKENS = 2048  # at most, and
GEMM_S = 0.3  # seconds at most that one sample of it may cost
SHORTEST_WARMUP_TOKENS = 16
WARMUP_S = 1.0  # a case that costs more is warmed up at a shorter length
SETTLE_S = 0.4  # of reading: the kernel lets up to about 50 ms of it through at once, after a pause
MIN_BYTES_PER_S = 5e8  # assumed of a drive never read from, until the first round knows better


def preflight(
    setup: ResolvedPlan,
    session: MeasurementSession,
    *,
    start_s: float,
    checked: frozenset[str],
    observer: Observer,
    layers: BuiltLayers | None = None,
) -> Findings:
    """Carry the preflight out.

    Args:
        setup: what is measured.
        session: where.
        start_s: when the sweep began.
        checked: names of checks that an earlier part made, with the same layers.
        observer: hears of it.
        layers: that the sweep was begun with; None decides which.

    Raises:
        PlanError, MeasureError: see `run_preflight`.
    """
    plan = setup.plan
    lengths = setup.lengths or walk_lengths(_shortest(setup), most_tokens(setup, session.scratch))
    left_s = start_s + plan.budget_s - session.clock.now_s()  # of a resumed sweep, less than the budget
    require_time(plan, left_s)
    job = PreflightJob(
        plan=plan,
        lengths=lengths,
        case_limit_s=WALK_SHARE * plan.budget_s,
        deadline_s=session.clock.now_s() + PREFLIGHT_SHARE * left_s,
        scratch_dir=session.scratch,
        checked=checked,
        layers=None if layers is None else layers.indices,
    )

    def prior_s(case: Case) -> float:
        rate = plan.limit_bytes_per_s or MIN_BYTES_PER_S
        load_s = setup.load_bytes(case.prefix_tokens, case.suffix_tokens) / rate
        if case.arm != "hybrid":
            return load_s
        return min(load_s, costs.expected_s(replace(case, arm="recompute", series=RECOMPUTE)))

    costs = CostBook(prior_s)
    return run_preflight(
        job, source=session.source, costs=costs, clock=session.clock, observer=observer, left_s=left_s
    )


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
    """Choose the lengths that the budget allows, `search_s` left out, and write the files.

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
    limit = setup.plan.limit_bytes_per_s
    if limit is None:
        return grid
    read_bytes = {n: setup.load_bytes(n, setup.plan.suffix_tokens) for n in grid}
    enough = min(SETTLE_S * limit, max(read_bytes.values()))
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
