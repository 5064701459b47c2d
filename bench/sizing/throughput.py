"""How many GPUs a target throughput needs, with and without reuse; modelled from one measured throughput."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

from bench.estimate.crossover import format_factor
from bench.estimate.results import Point
from bench.predict.bounded import Pick
from bench.predict.cost_model import TimeModel
from bench.predict.curve import MeasuredCurve
from bench.predict.sweep_model import SweepModel, curve_of
from bench.record.validate import InputError, exact, require_positive, require_share
from bench.sizing.demand import Demand

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
