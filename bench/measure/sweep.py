"""A whole sweep: preflight, files, rounds, header; whatever stops it, the folder stays readable."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.arms.case import Case
from bench.measure.costs import CostBook
from bench.measure.folder import create_folder
from bench.measure.jobs import PreflightJob
from bench.measure.machine import MachineFacts, comparable, describe_machine, machine_slug
from bench.measure.plan import Plan, PlanError
from bench.measure.policy import Observer, Policy
from bench.measure.preflight import (
    PREFLIGHT_SHARE,
    WALK_SHARE,
    Findings,
    longest_within,
    require_budget,
    run_preflight,
    walk_lengths,
)
from bench.measure.record import Notice, RunRecord, Sample, SampleWriter, read_run, read_samples, write_run
from bench.measure.runner import FEWEST_ROUNDS, MeasureError, Rounds, run_rounds
from bench.measure.setup import GEMM, Setup, work_out
from bench.measure.site import Site, open_site
from bench.measure.software import describe_software
from bench.measure.stores import create_stores, most_tokens, store_bytes
from kvio.backends.protocol import KVIOError
from kvio.blockdev import describe_storage

GEMM_TOKENS = 2048  # at most, and
GEMM_S = 1.0  # seconds at most that taking the matrix rate may cost in each round
SHORTEST_WARMUP_TOKENS = 16
WARMUP_S = 1.0  # a case that costs more is warmed up at a shorter length
LEAST_BYTES_PER_S = 5e8  # assumed of a drive never read from, until the first round knows better


@dataclass(frozen=True, slots=True)
class Hands:
    """Who decides and who listens."""

    policy: Policy
    observer: Observer


def run_sweep(plan: Plan, *, root: Path, data_dir: Path, hands: Hands) -> Path:
    """Measure a plan from the beginning; the folder with what came of it.

    Args:
        root: results go to `root/<model>/<machine>/<run>`.
        data_dir: KV files go to a scratch directory in here; its drive is what is measured.

    Raises:
        CatalogError, PlanError, KVIOError, LimitRefusedError: what was asked cannot be done.
        MeasureError: it was begun and failed; what was measured is in the folder.
    """
    setup = work_out(plan)
    with open_site(setup, data_dir) as site:
        run, folder = _open_record(setup, root, data_dir)
        try:
            _carry_out(setup, site, folder, run=run, samples=[], hands=hands)
        except (PlanError, KVIOError):
            _remove_empty(folder)
            raise
    return folder


def _remove_empty(folder: Path) -> None:
    """Leave no folder behind for a sweep that could not begin."""
    if not read_samples(folder)[0]:
        shutil.rmtree(folder)


def resume_sweep(folder: Path, *, data_dir: Path, hands: Hands) -> Path:
    """Go on with a sweep that was stopped, with the budget that it had left.

    Raises:
        RecordError, PlanError: the folder cannot be read, is complete, or is of another machine.
    """
    run = read_run(folder)
    samples, notices = read_samples(folder) if (folder / "samples.csv").exists() else ([], ())
    if run.state == "complete":
        raise PlanError(
            f"{folder}: this sweep is complete; start another with: make sweep MODEL={run.plan.model}"
        )
    setup = work_out(run.plan)
    _, machine = _describe_machine(setup)
    storage = _describe_storage(setup, data_dir)
    different = comparable(run.machine, machine)
    if run.storage.get("name") != storage.get("name"):
        different.append(f"storage: {run.storage.get('name')}, {storage.get('name')}")
    if different:
        raise PlanError(f"{folder} is of another machine or storage: {'; '.join(different)}")
    run = run.model_copy(update={"state": "running", "notices": (*run.notices, *notices)})
    with open_site(setup, data_dir) as site:
        _carry_out(setup, site, folder, run=run, samples=samples, hands=hands)
    return folder


def _describe_storage(setup: Setup, data_dir: Path) -> dict[str, Any]:
    plan = setup.plan
    if plan.simulation is not None:
        return {"name": "a simulated drive"}
    limit = {} if plan.limit_bytes_per_s is None else {"limit_bytes_per_s": plan.limit_bytes_per_s}
    return {**describe_storage(data_dir).facts(), **limit}


def _describe_machine(setup: Setup) -> tuple[str, dict[str, Any]]:
    """Name for the folder, and facts; a simulated sweep says nothing of the machine it happens to run on."""
    plan = setup.plan
    if plan.simulation is not None:
        return "simulated", {"device_name": "a simulated device"}
    facts = describe_machine()
    if plan.device == "cpu":
        facts = facts.model_copy(update={"gpus": ()})
    return machine_slug(facts), {"device_name": _device_name(facts), **facts.model_dump(mode="json")}


def _device_name(facts: MachineFacts) -> str:
    return facts.gpus[0].name if facts.gpus else f"{facts.cpu_model} ({facts.usable_cores:g} cores)"


def _open_record(setup: Setup, root: Path, data_dir: Path) -> tuple[RunRecord, Path]:
    started = datetime.now(UTC)
    machine_name, machine = _describe_machine(setup)
    try:
        run_id, folder = create_folder(
            root, model_name=setup.model.key, machine=machine_name, started=started
        )
    except OSError as error:
        raise PlanError(f"{root}: cannot write results here: {error.strerror}") from None
    run = RunRecord(
        run_id=run_id,
        started_utc=started.isoformat(timespec="seconds"),
        plan=setup.plan,
        model_name=setup.model.name,
        kv_bytes_per_token=setup.layout.bytes_per_token,
        kv_bytes_at={
            n: setup.layout.bytes_at(n) for n in walk_lengths(setup.chunk_tokens, setup.most_tokens)
        },
        chunk_tokens=setup.chunk_tokens,
        series=setup.series,
        machine=machine,
        software=describe_software().model_dump(mode="json"),
        storage=_describe_storage(setup, data_dir),
        notices=_first_notices(setup),
    )
    write_run(folder, run)
    return run, folder


def _first_notices(setup: Setup) -> tuple[Notice, ...]:
    return tuple(
        Notice(code=code, message=f"{load.name}: {message}")
        for load in setup.loads
        for code, message in load.geometry.notices.items()
    )


def _carry_out(
    setup: Setup, site: Site, folder: Path, *, run: RunRecord, samples: list[Sample], hands: Hands
) -> None:
    """Preflight, files, rounds; the header says how it ended."""
    state = "failed"
    rounds: Rounds | None = None
    writer = SampleWriter(folder)
    try:
        spent_s = max((sample.started_s for sample in samples), default=0.0)
        start_s = site.start_s - spent_s
        findings = _look_ahead(setup, site, start_s=start_s, checked=bool(run.checks), hands=hands)
        run = _note_findings(run, findings)
        write_run(folder, run)
        rounds = _prepare_rounds(
            setup, site, run, findings=findings, start_s=start_s, samples=samples, hands=hands
        )
        run_rounds(
            rounds,
            source=site.source,
            policy=hands.policy,
            writer=writer,
            observer=hands.observer,
            clock=site.clock,
        )
        state = "complete"
    except KeyboardInterrupt:
        state = "interrupted"
    except MeasureError as error:
        raise MeasureError(f"{error}; what was measured is in {folder}") from None
    finally:
        writer.close()
        notices = (
            run.notices + tuple(rounds.notices if rounds else ()) + _repeat_notices(setup, site, samples)
        )
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        write_run(
            folder, run.model_copy(update={"state": state, "finished_utc": finished, "notices": notices})
        )


def _repeat_notices(setup: Setup, site: Site, samples: Sequence[Sample]) -> tuple[Notice, ...]:
    """Say so when more was loaded than there are files: some were read again."""
    if site.scratch is None:
        return ()
    found = []
    for name, held_bytes in store_bytes(setup, site.scratch).items():
        loaded_bytes = sum(s.outcome.num_bytes or 0 for s in samples if s.case.series == name)
        if loaded_bytes > held_bytes > 0:
            message = (
                f"{name}: {loaded_bytes / 1e9:.2f} GB were loaded from {held_bytes / 1e9:.2f} GB of files; each read is "
                f"proved to have gone past this system's page cache, but a cache below it may have answered; "
                f"--working-set makes the files larger"
            )
            found.append(Notice(code="bytes_read_again", message=message, suspect=False))
    return tuple(found)


def _look_ahead(setup: Setup, site: Site, *, start_s: float, checked: bool, hands: Hands) -> Findings:
    plan = setup.plan
    shortest = setup.chunk_tokens
    lengths = setup.lengths or walk_lengths(shortest, most_tokens(setup, site.scratch))
    job = PreflightJob(
        plan=plan,
        lengths=lengths,
        case_limit_s=WALK_SHARE * plan.budget_s,
        deadline_s=start_s + PREFLIGHT_SHARE * plan.budget_s,
        scratch_dir=site.scratch,
        with_checks=not checked,
    )

    def prior_s(case: Case) -> float:
        rate = plan.limit_bytes_per_s or LEAST_BYTES_PER_S
        return setup.layout.bytes_at(case.prefix_tokens) / rate

    costs = CostBook(prior_s)
    return run_preflight(job, source=site.source, costs=costs, clock=site.clock, observer=hands.observer)


def _note_findings(run: RunRecord, findings: Findings) -> RunRecord:
    harness = {"startup_s": findings.startup_s, **run.harness}
    notices = [
        Notice(code="length_refused", message=f"{length} tokens: {reason}")
        for length, reason in findings.refused.items()
    ]
    notices += findings.notices
    return run.model_copy(
        update={
            "checks": {**run.checks, **findings.checks},
            "harness": harness,
            "notices": (*run.notices, *notices),
        }
    )


def _prepare_rounds(
    setup: Setup,
    site: Site,
    run: RunRecord,
    *,
    findings: Findings,
    start_s: float,
    samples: list[Sample],
    hands: Hands,
) -> Rounds:
    plan = setup.plan
    rounds = Rounds(
        run=run,
        series=tuple((info.arm, name) for name, info in run.series.items() if info.arm != "gemm"),
        allowed=(),
        start_s=start_s,
        deadline_s=start_s + plan.budget_s,
        costs=findings.costs,
        samples=samples,
        next_round=1 + max((sample.round for sample in samples), default=-1),
    )
    left_s = rounds.deadline_s - site.clock.now_s()
    grid = setup.lengths or walk_lengths(setup.chunk_tokens, most_tokens(setup, site.scratch))
    grid = tuple(length for length in grid if length < min(findings.refused, default=length + 1))
    costs_s = {length: rounds.cost_s(length) for length in grid}
    require_budget(plan.budget_s, left_s, grid[0], cost_s=costs_s[grid[0]] + findings.startup_s)
    if setup.lengths is not None:
        rounds.allowed = grid
    else:
        longest = longest_within(
            grid,
            costs_s,
            left_s=left_s,
            startup_s=findings.startup_s,
            num_rounds=plan.num_rounds or FEWEST_ROUNDS,
        )
        rounds.allowed = tuple(range(setup.chunk_tokens, longest + 1, setup.chunk_tokens))
    if site.scratch is not None:
        hands.observer.on_phase("writing KV chunks")
        rounds.store_dirs = create_stores(setup, site.scratch, longest=rounds.allowed[-1])
        rounds.rate_case = Case("gemm", GEMM, _rate_tokens(setup, findings, most=rounds.allowed[-1]))
        rounds.warmup_tokens = _warmup_tokens(rounds)
    return rounds


def _rate_tokens(setup: Setup, findings: Findings, *, most: int) -> int:
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
