"""The throughput that `size` starts from, measured or modelled, and the GPUs that a target needs of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Literal

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.kv_capacity import Cache
from bench.catalog.models.resolve import AUTO, resolve_model
from bench.estimate.analysis import analyse
from bench.estimate.crossover import format_factor
from bench.estimate.results import Point, fullest_series
from bench.predict.bounded import Pick
from bench.predict.cost_model import CostModel, TimeModel
from bench.predict.curve import MeasuredCurve
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.sweep_model import SweepModel, curve_of, extrapolating_model
from bench.record.run import find_ranks, read_run
from bench.record.samples_csv import read_samples
from bench.record.validate import InputError, exact, require_positive, require_share
from bench.sizing.demand import Demand, Request, Work, work_in_flops, work_in_seconds
from bench.sizing.size_scenario import GivenSource, MachineSource, Source, SweepSource

NO_STEP = "no first-token step was measured: a prompt found whole costs nothing"
HOW_BEYOND = {True: "by the model calibrated on the sweep", False: "by the slope of its last lengths"}


@dataclass(frozen=True, slots=True)
class Throughput:
    """What so many GPUs prefill together, measured.

    Args:
        tokens_per_s: prompt tokens per second at the prompts' length, nothing reused.
        num_gpus: that measured it; also the smallest number that runs the model.
        source: who says so.
        extrapolated: how far the lengths asked for lie outside of the measured ones; empty when they do not.
        origin: `modelled` where nobody measured it at all, which every table then says.
        supposed: what had to be, for a modelled one.
        bounds_tokens_per_s: of a modelled or extrapolated one, None where they are not known.
    """

    tokens_per_s: float
    num_gpus: int
    source: str
    extrapolated: str = ""
    origin: Literal["measured", "modelled"] = "measured"
    bounds_tokens_per_s: tuple[float, float] | None = None
    supposed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive(f"{self.origin} throughput", self.tokens_per_s, unit="tokens/s")
        require_positive("measured GPUs", self.num_gpus)


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs needed: `unrounded`, and in whole groups of `group_gpus` that run the model together."""

    unrounded: Fraction
    group_gpus: int

    @property
    def whole(self) -> int:
        """Rounded up to whole GPUs."""
        return ceil(self.unrounded)

    @property
    def in_groups(self) -> int:
        """Rounded up to whole groups."""
        return ceil(self.unrounded / self.group_gpus) * self.group_gpus


def count_gpus(
    target_tokens_per_s: float, measured: Throughput, *, utilisation: float = 1.0, work_share: float = 1.0
) -> GpuCount:
    """GPUs that prefill `target_tokens_per_s` prompt tokens per second.

        GPUs = target / (measured x utilisation) x GPUs measured x share of the work still done

    Throughput is taken to grow in proportion to the number of groups: each serves requests of its own.

    Args:
        target_tokens_per_s: prompt tokens that arrive, found or not.
        measured: of the whole prefill.
        utilisation: share of the measured throughput to plan with, above 0 and at most 1.
        work_share: 1 without reuse; with it `Demand.marginal_share`: only the tokens not found are computed.

    Raises:
        InputError: a figure out of its range.
    """
    require_positive("target", target_tokens_per_s, unit="tokens/s")
    require_share("utilisation", utilisation, zero=False)
    require_share("share of the work", work_share)
    planned = exact(measured.tokens_per_s) * exact(utilisation)
    groups = exact(target_tokens_per_s) / planned * exact(work_share)
    return GpuCount(groups * measured.num_gpus, measured.num_gpus)


def gpu_seconds_per_request(demand: Demand, measured: Throughput, utilisation: float = 1.0) -> float:
    """GPU-seconds of one whole prefill, idle time included: GPUs x tokens / (measured x utilisation)."""
    return measured.num_gpus * demand.input_tokens / (measured.tokens_per_s * utilisation)


def recompute_curve(points: Sequence[Point], source: str, model: TimeModel | None = None) -> MeasuredCurve:
    """T(n) of the recompute arm: the points of a sweep, outside of their lengths the model calibrated on it.

    Raises:
        InputError: it measured fewer than two lengths.
    """
    times = {
        point.prefix_tokens: point.recompute_s.value for point in points if point.recompute_s is not None
    }
    if len(times) < 2:
        raise InputError(f"{source}: recompute was measured at {len(times)} lengths; 2 or more are needed")
    lengths = tuple(sorted(times))
    beyond = None if model is None else curve_of(model.recompute_s)
    return MeasuredCurve(lengths, tuple(times[tokens] for tokens in lengths), beyond)


def step_curve(
    points: Sequence[Point], series: str | None, model: SweepModel | None = None
) -> MeasuredCurve | None:
    """F(n), the first-token step of one load series, as `recompute_curve` has T(n); None below two lengths."""
    times = {
        point.prefix_tokens: point.first_token_s
        for point in points
        if point.series == series and point.first_token_s is not None and point.first_token_s > 0
    }
    if len(times) < 2:
        return None
    lengths = tuple(sorted(times))
    beyond = None if model is None else curve_of(model.step_s)
    return MeasuredCurve(lengths, tuple(times[tokens] for tokens in lengths), beyond)


def measured_throughput(
    demand: Demand,
    curve: MeasuredCurve,
    *,
    num_gpus: int,
    source: str,
    lengths: Sequence[int],
    model: TimeModel | None = None,
) -> Throughput:
    """Prompt tokens per second of a sweep: mean tokens / mean T(n), where `demand` counts work in seconds.

    One request at a time: an engine that batches does more, and its own throughput is the better figure.
    """
    said = format_factor(lengths, (curve.tokens[0], curve.tokens[-1])) or ""
    bounds = None
    if said and model is not None and model.has_bounds[0]:
        slow, fast = (_mean_seconds(curve, model, lengths, pick=pick) for pick in ("high", "low"))
        bounds = (demand.input_tokens / slow, demand.input_tokens / fast)
    how = f"extrapolated: {said}, {HOW_BEYOND[model is not None]}" if said else ""
    rate = demand.input_tokens / demand.full_work
    return Throughput(rate, num_gpus, source, extrapolated=how, bounds_tokens_per_s=bounds)


def _mean_seconds(curve: MeasuredCurve, model: TimeModel, lengths: Sequence[int], *, pick: Pick) -> float:
    """Mean T(n): as measured, and a bound of the model at lengths outside."""
    total = 0.0
    for tokens, count in Counter(lengths).items():
        inside = curve.tokens[0] <= tokens <= curve.tokens[-1]
        total += count * (curve.at(tokens) if inside else model.recompute_s(tokens, pick))
    return total / len(lengths)


@dataclass(frozen=True, slots=True)
class Basis:
    """Whose KV is stored, and how the work of a prefill is counted; from one of `curve`, `cost` and `tokens_per_s`.

    Args:
        num_gpus: that measured it together, or are modelled.
        tokens_per_s: prompt tokens as the user measured them.
        beyond: the model of the sweep that `curve` is of, for lengths outside; `doubt` says why there is none.
    """

    cache: Cache
    work: Work
    work_unit: str
    curve: MeasuredCurve | None = None
    cost: CostModel | None = None
    tokens_per_s: float = 0.0
    source: str = ""
    supposed: tuple[str, ...] = ()
    num_gpus: int = 1
    beyond: TimeModel | None = None
    doubt: str = ""


def read_basis(source: Source, devices: Devices) -> Basis:
    """From the user's throughput, from a sweep, or from a described machine.

    Raises:
        InputError: weights that do not fit, fewer GPUs than ranks, or other ranks than those of the sweep.
    """
    if isinstance(source, MachineSource):
        return _describe(source, devices)
    if isinstance(source, SweepSource):
        return _sweep(source)
    return _take_given(source)


def _take_given(source: GivenSource) -> Basis:
    model = resolve_model(source.model)
    kept = Cache(model, model.choose_kv_dtype(source.kv_dtype or AUTO), source.tp)
    num_gpus = kept.tensor_parallel if source.measured_gpus is None else source.measured_gpus
    if 0 < num_gpus < kept.tensor_parallel:
        raise InputError(
            f"throughput.tp {source.tp} needs as many GPUs: throughput.measured_gpus {num_gpus} are fewer"
        )
    work = work_in_flops(model.geometry)
    return Basis(kept, work, "FLOPs", tokens_per_s=source.tokens_per_s, num_gpus=num_gpus)


def _sweep(asked: SweepSource) -> Basis:
    sweep = asked.sweep
    run, (samples, _) = read_run(sweep), read_samples(sweep)
    if run.plan.suffix_tokens:
        raise InputError(f"{sweep}: asked the marginal question (--suffix-tokens); whole prompts are needed")
    ranks = find_ranks(sweep, run, "throughput.tp", asked.tp)
    find_ranks(sweep, run, "throughput.measured_gpus", asked.measured_gpus)
    points = analyse(run, samples).points
    series = fullest_series(points)  # recompute alone counts here, which all series share
    model, doubt = extrapolating_model(run, samples, series=series)
    curve, step = recompute_curve(points, str(sweep), model), step_curve(points, series, model)
    kept = Cache(resolve_model(run.plan.model), asked.kv_dtype or run.plan.kv_dtype or run.plan.dtype, ranks)
    return Basis(
        kept,
        work_in_seconds(curve, step),
        "seconds",
        curve,
        source=str(sweep),
        supposed=() if step is not None else (NO_STEP,),
        num_gpus=ranks,
        beyond=model,
        doubt=doubt,
    )


def _describe(asked: MachineSource, devices: Devices) -> Basis:
    model = resolve_model(asked.model)
    machine = MachineSpec(asked.gpu, asked.num_gpus, asked.dtype, asked.kv_dtype or AUTO, asked.engine)
    cost = build_model(model, machine, devices)
    kept = Cache(model, model.choose_kv_dtype(machine.kv_dtype), asked.num_gpus)
    return Basis(
        kept,
        work_modelled(cost),
        "modelled seconds",
        cost=cost,
        supposed=cost.notices,
        num_gpus=asked.num_gpus,
    )


def work_modelled(cost: CostModel) -> Work:
    """Seconds T(n) - T(h) of the cost model, at least the step that every prompt ends with."""
    whole_s = cache(cost.recompute_s)

    def work(tokens: int, past: int) -> float:
        if past == 0:
            return whole_s(tokens)
        step_s = min(cost.fixed_s(tokens), whole_s(tokens))
        return max(whole_s(tokens) - whole_s(past), step_s)

    return work


def read_throughput(basis: Basis, demand: Demand, requests: Sequence[Request]) -> Throughput:
    """The user's number, or what the sweep measured or the model says at the requests' lengths."""
    if basis.cost is not None:
        return _modelled_throughput(basis.cost, requests, basis.supposed)
    if basis.curve is None:
        return Throughput(basis.tokens_per_s, basis.num_gpus, "as given, for prompts of this length")
    lengths = [tokens for tokens, _ in requests]
    source = f"one request at a time: {basis.source}"
    found = measured_throughput(
        demand, basis.curve, num_gpus=basis.num_gpus, source=source, lengths=lengths, model=basis.beyond
    )
    said = (basis.doubt,) if basis.doubt and found.extrapolated else ()
    return replace(found, supposed=(*basis.supposed, *said))


def _modelled_throughput(
    cost: CostModel, requests: Sequence[Request], supposed: tuple[str, ...]
) -> Throughput:
    """Prompt tokens per second of one request after the other, with the bounds of the model."""
    lengths = Counter(tokens for tokens, _ in requests)

    def rate(pick: Pick) -> float:
        seconds = sum(count * cost.recompute_s(tokens, pick) for tokens, count in lengths.items())
        return sum(count * tokens for tokens, count in lengths.items()) / seconds

    machine = cost.label.partition(", loading from ")[0]
    return Throughput(
        rate("value"),
        cost.num_gpus,
        f"nothing was measured; one request at a time: {machine}",
        origin="modelled",
        bounds_tokens_per_s=(rate("high"), rate("low")) if cost.has_bounds[0] else None,
        supposed=supposed,
    )
