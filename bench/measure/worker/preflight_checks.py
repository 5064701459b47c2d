"""The preflight inside the measuring process: layers, costs, logits check, scaling error, overhead of the harness.

The preflight chooses the layers that are built; every round builds the same.
"""

import statistics
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from bench.arms import ranks as group
from bench.arms.gemm import GemmArm
from bench.arms.hybrid import PartOfModelError, require_whole
from bench.arms.load import LoadArm
from bench.arms.model.build import describe_model
from bench.arms.model.depth_scaling import NothingHeldOutError, check_scaling, choose_layers
from bench.arms.model.memory import MemoryShortError, available_bytes
from bench.arms.prefill import draw_tokens, synchronize
from bench.arms.rank_arm import guard
from bench.measure.clock import Clock
from bench.measure.processes.messages import (
    CaseCost,
    CaseRefused,
    CheckDone,
    JobBegun,
    LayersChosen,
    Message,
    PreflightJob,
    SeriesSkipped,
)
from bench.measure.setup import RECOMPUTE, ResolvedPlan, resolve_plan
from bench.measure.worker.logits_checks import check_answers
from bench.measure.worker.model_session import DTYPES, ModelSession, open_model_session, pick_device
from bench.record.notices import Notice
from bench.record.run import BuiltLayers
from bench.record.sample import CannotHoldError, Case
from kvio.store.chunk_store import ChunkStore
from kvio.store.store_files import temporary_directory


def decide_layers(setup: ResolvedPlan, lengths: Sequence[int]) -> tuple[int, ...]:
    """Indices of the layers that all processes of a sweep build, from the memory that is free now.

    There is room beside them for the longest of `lengths` that the device holds at all; longer ones are refused
    when they are measured.

    Raises:
        UnsupportedArchitectureError, MemoryShortError
    """
    plan, itemsize = setup.plan, DTYPES[setup.plan.dtype].itemsize
    device = pick_device(plan.device, group.rank(), group.size())
    kinds, elements, fixed = describe_model(setup.model.config, device.type)

    def choose(tokens: int) -> tuple[int, ...]:
        return choose_layers(
            kinds,
            [count * itemsize for count in elements],
            fixed_bytes=fixed * itemsize,
            available_bytes=available_bytes(device),
            choice=plan.layers,
            kv_bytes=setup.layout.bytes_at(tokens + plan.suffix_tokens) // len(kinds),
        )

    def choose_for_longest() -> tuple[int, ...]:
        for tokens in reversed(lengths[1:]):
            with suppress(MemoryShortError):
                return choose(tokens)
        return choose(lengths[0])

    return group.broadcast(choose_for_longest)


def build_layers(setup: ResolvedPlan, job: PreflightJob, clock: Clock) -> ModelSession:
    """The model with the layers that the sweep was begun with, else with those that fit now.

    Raises:
        MemoryShortError: they do not fit.
    """
    layers = decide_layers(setup, job.lengths) if job.layers is None else job.layers
    try:
        return open_model_session(
            setup, layers=layers, longest=job.lengths[0], now_s=clock.now_s, seed=job.plan.seed
        )
    except MemoryShortError as error:
        if job.layers is None:
            raise
        lack = str(error).partition("; try")[0]
        raise MemoryShortError(
            f"the {len(layers)} layers that this sweep started with do not fit now: {lack}; "
            "stop other work, or start a new sweep"
        ) from None


CHECK_SHARE = 0.03  # of the budget that one check may take; it uses shorter prompts where that is not enough
LARGE_SCALING_ERROR = 0.10  # in every round
SCALING_FORWARDS = 4  # the check of the scaling runs the built layers about so many times
WARMUP_TOKENS = 16  # the walk begins with a forward as short as this
PROBE_SHAPE = (1024, 1024)  # of the matrix whose product compares the dtypes
PROBE_TOKENS = 128
NUM_PROBES = 15  # products of each dtype, some 40 ms for all where bfloat16 has no hardware
NUM_NULL_SAMPLES = 5
NUM_WAITS = 20
SLOW_DTYPE_RATIO = 0.5  # of the float32 rate; below it the dtype has no hardware support here


def run_preflight_checks(job: PreflightJob, clock: Clock) -> Iterator[Message]:
    """Messages of the preflight: rates of the dtypes, costs by rising length, then the checks."""
    yield JobBegun()
    setup = resolve_plan(job.plan)
    bench = build_layers(setup, job, clock)
    yield LayersChosen(BuiltLayers(indices=bench.built.layers, total=len(bench.built.model_kinds)))
    if group.size() > 1:
        yield CheckDone("group", _price_waiting(bench))
    yield _compare_dtypes(bench)
    hybrid = [name for name, info in setup.series.items() if info.arm == "hybrid" and info.skipped is None]
    skipped = _find_part(bench)
    yield from (SeriesSkipped(name, skipped) for name in hybrid if skipped)
    walk = _Walk(bench, job)
    yield from walk.messages()
    if job.scratch_dir is not None:
        yield from _make_checks(
            bench,
            job,
            tokens=walk.affordable_tokens(),
            scratch=job.scratch_dir,
            hybrids=() if skipped else hybrid,
        )


def _make_checks(
    bench: ModelSession, job: PreflightJob, *, tokens: int, scratch: Path, hybrids: Collection[str]
) -> Iterator[Message]:
    """The checks of this run that no earlier part of it has made; `hybrids` are the series that can be measured."""
    yield from check_answers(bench, tokens, scratch, hybrids=hybrids, checked=job.checked)
    if len(bench.built.layers) < len(bench.built.model_kinds) and "scaling" not in job.checked:
        yield _check_scaling(bench, max(16, tokens // SCALING_FORWARDS))
    if "null" not in job.checked:
        yield CheckDone("null", _price_harness(bench, job.lengths[0], scratch))


def _find_part(bench: ModelSession) -> str:
    """Why no hybrid can be measured with what is built; empty when one can."""
    try:
        require_whole(bench.built)
    except PartOfModelError as error:
        return str(error)
    return ""


class _Walk:
    """Runs the recompute arm at rising lengths, until one takes too long."""

    def __init__(self, bench: ModelSession, job: PreflightJob) -> None:
        self._bench = bench
        self._job = job
        self._per_token_s = 0.0

    def messages(self) -> Iterator[Message]:
        """The cost of each length; a refusal where the device cannot hold one."""
        suffix = self._job.plan.suffix_tokens
        for number, length in enumerate(self._job.lengths):
            case = Case("recompute", RECOMPUTE, length, suffix)
            try:
                cost = self._time(case, warm_up=number == 0)
            except CannotHoldError as error:
                yield CaseRefused(case, str(error))
                return
            self._per_token_s = self._per_token_s or cost.wall_s / (suffix or length)
            yield cost
            if cost.wall_s > self._job.case_limit_s:
                return

    def _time(self, case: Case, *, warm_up: bool) -> CaseCost:
        now_s = self._bench.now_s
        blocks_tokens = case.prefix_tokens + case.suffix_tokens
        arm = guard(self._bench.recompute_arm(self._bench.prefill(blocks_tokens), seed=0))
        if warm_up:
            short = (min(case.prefix_tokens, WARMUP_TOKENS), min(case.suffix_tokens, WARMUP_TOKENS))
            arm.warm_up(Case(case.arm, case.series, *short))
        began_s = now_s()
        arm.prepare(case)
        seconds = arm.run(case).seconds
        return CaseCost(case, wall_s=group.broadcast(lambda: now_s() - began_s), seconds=seconds)

    def affordable_tokens(self) -> int:
        """Tokens whose prefill takes about a check's share of the budget: a power of two from 32 to 1024."""
        affordable = CHECK_SHARE * self._job.plan.budget_s / max(self._per_token_s, 1e-9)
        tokens = 32
        while tokens * 2 <= min(affordable, 1024):
            tokens *= 2
        return tokens


def _price_waiting(bench: ModelSession) -> dict[str, Any]:
    """The ranks, and the seconds of one barrier between them, which every timed part includes."""
    waits_s = []
    for _ in range(NUM_WAITS):
        began_s = bench.now_s()
        group.wait()
        waits_s.append(bench.now_s() - began_s)
    layout = bench.setup.layout
    return {
        "ranks": group.size(),
        "backend": "nccl" if bench.device.type == "cuda" else "gloo",
        "threads_of_rank": torch.get_num_threads(),
        "kv_token_bytes_of_rank": layout.bytes_per_token,
        "wait_s": statistics.median(waits_s),
    }


def compare_rates(bench: ModelSession) -> dict[str, float]:
    """FLOP/s of one matrix product in the run's dtype and in float32, by dtype.

    What the device can do: the best of several, taken in turns, so that other work on the machine, which only makes
    them slower, spoils neither the rates nor their ratio.
    """
    case = Case("gemm", "gemm", PROBE_TOKENS)
    arms = {
        name: guard(GemmArm([PROBE_SHAPE], dtype=DTYPES[name], device=bench.device, now_s=bench.now_s))
        for name in sorted({bench.setup.plan.dtype, "float32"})
    }
    rates: dict[str, float] = dict.fromkeys(arms, 0.0)
    for arm in arms.values():
        arm.warm_up(case)
    for _ in range(NUM_PROBES):
        for name, arm in arms.items():
            rates[name] = max(rates[name], arm.run(case).flops_per_s or 0.0)
    for arm in arms.values():
        arm.close()
    return rates


def _compare_dtypes(bench: ModelSession) -> CheckDone:
    """Whether this device has hardware for the run's dtype."""
    rates = compare_rates(bench)
    ratio = rates[bench.setup.plan.dtype] / rates["float32"]
    result = {"flops_per_s": rates, "ratio": ratio}
    if ratio >= SLOW_DTYPE_RATIO:
        return CheckDone("dtype", result)
    message = (
        f"{bench.setup.plan.dtype} products run at {ratio:.2f} of the float32 rate on this device, as "
        f"without hardware for them: recompute is slower than it need be; compare with --dtype float32"
    )
    # true of this machine, though not of a better choice on it: the measurement itself is sound
    return CheckDone("dtype", result, Notice(kind="slow_dtype", detail=message))


def _check_scaling(bench: ModelSession, tokens: int) -> CheckDone:
    """Error of scaling by depth, on a depth that the fit does not see."""
    prefill = bench.prefill(tokens)
    ids = draw_tokens(bench.built, tokens, seed=0)

    def time_once() -> float:
        synchronize(bench.device)
        began_s = bench.now_s()
        prefill.forward(ids)
        synchronize(bench.device)
        return bench.now_s() - began_s

    try:
        check = check_scaling(bench.built, time_once=time_once, random=Random(0))
    except NothingHeldOutError as error:
        message = f"the error of scaling a few layers was not measured: {error}"
        return CheckDone("scaling", {"message": message}, Notice(kind="scaling_impossible", detail=message))
    result = {
        "held_out_layers": check.layers,
        "tokens": tokens,
        "relative_error": check.relative_error,
        "lowest_error": min(check.errors),
        "highest_error": max(check.errors),
        "predicted_s": check.predicted_s,
        "measured_s": check.measured_s,
    }
    message = f"scaling a few layers missed a deeper stack by {check.relative_error:+.1%} at {tokens} tokens"
    notice = Notice(kind="scaling_error", detail=message) if check.is_beyond(LARGE_SCALING_ERROR) else None
    return CheckDone("scaling", result, notice)


def _price_harness(bench: ModelSession, length: int, scratch: Path) -> dict[str, Any]:
    """Seconds that a load takes when nothing moves: what the harness adds to every load sample."""
    load = bench.setup.loads[0]
    nothing = replace(load, spec=load.spec.model_copy(update={"backend": "null", "options": {}}))
    case = Case("load", "null", length)
    with temporary_directory(scratch) as directory:
        count = len(load.geometry.chunks_between(0, length))
        store = ChunkStore.create(directory, load.geometry, num_chunks=count, seed=0)
        arm = bench.load_arm(store, nothing, first_token=None)
        try:
            arm.warm_up(case)
            return {
                "tokens": length,
                "seconds": statistics.median(_time(arm, case) for _ in range(NUM_NULL_SAMPLES)),
            }
        finally:
            arm.close()


def _time(arm: LoadArm, case: Case) -> float:
    arm.prepare(case)
    return arm.run(case).seconds
