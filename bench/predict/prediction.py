"""From modelled seconds to answers, in the types of a measured answer, each marked as modelled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from bench.estimate.bandwidth import SCALES, break_even_bytes_per_s
from bench.estimate.crossover import format_factor
from bench.estimate.results import Crossing, Estimate, Kind, Point, SweetSpot, Verdict
from bench.estimate.sweet_spots import round_up
from bench.predict.bounded import Pick
from bench.predict.cost_model import CostModel, TimeModel
from bench.record.notices import Notice

STEPS_PER_DOUBLING = 8  # of the grid that is searched for sign changes; windows and kernels change slower
SHORTEST = 64
MODELLED = Notice(kind="modelled", detail="nothing was measured")
UNDECIDED = "undecided"
TINY = 1e-15  # a tie counts as recompute
Gap = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class ModelledAnswer:
    """Times by length, C* and P* of one modelled setting."""

    label: str
    points: tuple[Point, ...]
    spots: tuple[SweetSpot, ...]
    searched: tuple[int, int]  # lengths between which crossings were looked for
    notices: tuple[str, ...]
    chunk_tokens: int  # of the next chunk, for P*
    full_attention: tuple[Point, ...] = ()  # as if no layer had a window or chunk; empty where none has


def answer(
    model: TimeModel,
    lengths: Sequence[int],
    *,
    chunk_tokens: int = 256,
    longest: int | None = None,
    measured: tuple[int, int] | None = None,
) -> ModelledAnswer:
    """Both arms at each of `lengths`, and where they cross between 64 tokens and the longest asked for.

    Args:
        measured: lengths that the model was calibrated on; a crossing outside of them is extrapolated.
    """
    searched = (min(SHORTEST, *lengths), max(longest or 0, 2 * SHORTEST, *lengths))
    points = tuple(point_at(model, n) for n in lengths)
    kinds: tuple[Kind, ...] = ("whole", "marginal")
    spots = (_spot(model, kind, searched, chunk_tokens=chunk_tokens) for kind in kinds)
    marked = tuple(spot if measured is None else _mark_extrapolated(spot, *measured) for spot in spots)
    outside = [n for n in lengths if measured is not None and not measured[0] <= n <= measured[1]]
    notices = model.notices
    if outside and measured is not None:
        factor = format_factor(outside, measured)
        notices += (f"extrapolated at {', '.join(f'{n:,}' for n in outside)} tokens: {factor}",)
    return ModelledAnswer(model.label, points, marked, searched, notices, chunk_tokens)


def full_attention_points(cost: CostModel, lengths: Sequence[int], *, kv_dtype: str) -> tuple[Point, ...]:
    """Both arms as if every layer attended to all tokens; empty where every layer does."""
    geometry = cost.geometry.with_full_attention()
    if geometry == cost.geometry:
        return ()
    full = replace(cost, geometry=geometry, layout=geometry.layout(kv_dtype, cost.num_gpus))
    return tuple(point_at(full, n) for n in lengths)


def _mark_extrapolated(spot: SweetSpot, shortest: int, longest: int) -> SweetSpot:
    crossings = tuple(
        replace(crossing, extrapolated=not shortest <= crossing.tokens.value <= longest)
        for crossing in spot.crossings
    )
    return replace(spot, crossings=crossings)


def gap_whole(model: TimeModel, recompute: Pick = "value", load: Pick = "value", scale: float = 1.0) -> Gap:
    """Advantage of load by length, relative to recompute: above 0 load wins."""

    def gap(tokens: float) -> float:
        n = max(round(tokens), 2)
        recompute_s, load_s = model.both_arms_s(n, recompute, load, scale=scale)
        return 1 - load_s / recompute_s if recompute_s > 0 else -1.0

    return gap


def gap_marginal(
    model: TimeModel, chunk_tokens: int, recompute: Pick = "value", load: Pick = "value", scale: float = 1.0
) -> Gap:
    """Advantage of loading the next chunk by the prefix before it, relative to computing it."""

    def gap(tokens: float) -> float:
        n, after = max(round(tokens), 2), max(round(tokens), 2) + chunk_tokens
        computing = model.recompute_s(after, recompute) - model.recompute_s(n, recompute)
        fixed = model.fixed_s(after, load) - model.fixed_s(n, load)
        moving = model.transfer_s(after, load, scale=scale) - model.transfer_s(n, load, scale=scale)
        return 1 - (fixed + moving) / computing if computing > 0 else -1.0

    return gap


def find_whole(model: TimeModel, shortest: int, longest: int) -> tuple[Crossing, ...]:
    """All C* between two lengths, with bounds where the model has them."""
    return _bounded(lambda *picks: gap_whole(model, *picks), shortest, longest, any(model.has_bounds))


def find_marginal(
    model: TimeModel, shortest: int, longest: int, chunk_tokens: int = 256
) -> tuple[Crossing, ...]:
    """All P* between two lengths, with bounds where the model has them."""
    bounded = any(model.has_bounds)
    return _bounded(lambda *picks: gap_marginal(model, chunk_tokens, *picks), shortest, longest, bounded)


def _bounded(
    make_gap: Callable[..., Gap], shortest: int, longest: int, bounded: bool
) -> tuple[Crossing, ...]:
    """Crossings with the bounds that a slower or faster arm gives; without a partner, a crossing has none."""
    found = crossings_of(make_gap(), shortest, longest)
    if not bounded:
        return found
    early = crossings_of(make_gap("high", "low"), shortest, longest)
    late = crossings_of(make_gap("low", "high"), shortest, longest)
    if not len(found) == len(early) == len(late):
        return _last_bounded(found, early, late)
    return tuple(_with_bounds(*three) for three in zip(found, early, late, strict=True))


def _last_bounded(*three: Sequence[Crossing]) -> tuple[Crossing, ...]:
    """The first of the three, its last crossing with the bounds that the last of the others give it, if they do."""
    found = tuple(three[0])
    ends = [crossings[-1] for crossings in three if crossings]
    if len(ends) < len(three) or len({one.load_wins_beyond for one in ends}) > 1:
        return found
    return (*found[:-1], _with_bounds(*ends))


def _with_bounds(found: Crossing, one: Crossing, other: Crossing) -> Crossing:
    ends = sorted(crossing.tokens.value for crossing in (found, one, other))
    estimate = Estimate(found.tokens.value, ends[0], ends[-1])
    return Crossing(estimate, found.bracket, found.load_wins_beyond)


def crossings_of(gap: Gap, shortest: int, longest: int) -> tuple[Crossing, ...]:
    """Sign changes of a gap between two lengths, ascending; the bracket is a step of the grid, not a measurement."""
    steps = max(int(np.ceil(np.log2(longest / shortest) * STEPS_PER_DOUBLING)), 1)
    grid = np.unique(np.round(np.geomspace(shortest, longest, steps + 1)))
    values = [gap(float(n)) for n in grid]
    found = []
    for left, right, before, after in zip(grid[:-1], grid[1:], values[:-1], values[1:], strict=True):
        if (before > 0) == (after > 0):
            continue
        root = brentq(lambda n: gap(n) or -TINY, left, right, xtol=0.5)  # type: ignore[no-untyped-call]
        found.append(Crossing(Estimate(float(root)), (int(left), int(right)), bool(after > 0)))
    return tuple(found)


def verdict_of(crossings: Sequence[Crossing], gap_at_end: float) -> Verdict:
    """The verdict over the lengths that were searched."""
    if len(crossings) == 1:
        return "crossover"
    if crossings:
        return "multiple_crossings"
    return "load_always_wins" if gap_at_end > 0 else "recompute_always_wins"


def _spot(model: TimeModel, kind: Kind, searched: tuple[int, int], *, chunk_tokens: int) -> SweetSpot:
    def make_gap(recompute: Pick = "value", load: Pick = "value", scale: float = 1.0) -> Gap:
        if kind == "whole":
            return gap_whole(model, recompute, load, scale)
        return gap_marginal(model, chunk_tokens, recompute, load, scale)

    crossings = _bounded(make_gap, *searched, any(model.has_bounds))
    verdict = verdict_of(crossings, make_gap()(searched[1]))
    doubts = find_doubts(make_gap, verdict, searched) if any(model.has_bounds) else ()
    last = crossings[-1] if crossings else None
    exported = round_up(last.tokens.value, chunk_tokens) if last and last.load_wins_beyond else None
    return SweetSpot(
        series="modelled",
        kind=kind,
        statistic="p50",
        verdict=verdict,
        measured_range=None,
        crossings=crossings,
        export_tokens=exported,
        sensitivity={f"{scale:g}x": _single(make_gap(scale=scale), searched) for scale in SCALES},
        reason=f"modelled between {searched[0]:,} and {searched[1]:,} tokens",
        notices=(MODELLED, *(Notice(kind=UNDECIDED, detail=name) for name in doubts)),
    )


def find_doubts(
    make_gap: Callable[[Pick, Pick], Gap], verdict: Verdict, searched: tuple[int, int]
) -> tuple[Verdict, ...]:
    """Other verdicts with one arm at its slow and the other at its fast end, or the reverse."""
    gaps = (make_gap("high", "low"), make_gap("low", "high"))
    found = {verdict_of(crossings_of(gap, *searched), gap(searched[1])) for gap in gaps}
    return tuple(sorted(found - {verdict}))


def _single(gap: Gap, searched: tuple[int, int]) -> Estimate | None:
    found = crossings_of(gap, *searched)
    return found[0].tokens if len(found) == 1 else None


def point_at(model: TimeModel, num_tokens: int) -> Point:
    """Both arms at one length."""
    recompute, fixed_s = (
        _estimate(model.recompute_s, num_tokens, model.has_bounds[0]),
        model.fixed_s(num_tokens),
    )
    move = _estimate(model.transfer_s, num_tokens, model.has_bounds[1])
    load = _estimate(
        lambda n, pick: model.fixed_s(n, pick) + model.transfer_s(n, pick), num_tokens, model.has_bounds[1]
    )
    num_bytes = model.num_bytes(num_tokens)
    return Point(
        series="modelled",
        prefix_tokens=num_tokens,
        num_rounds=0,
        num_samples=0,
        recompute_s=recompute,
        load_s=load,
        ratio=_ratio(model, num_tokens),
        load_p95_s=None,
        load_p99_s=None,
        first_token_s=fixed_s,
        num_bytes=num_bytes,
        bytes_per_s=Estimate(num_bytes / move.value) if move.value > 0 and num_bytes else None,
        break_even_bytes_per_s=break_even_bytes_per_s(num_bytes, recompute.value, fixed_s),
        mfu=None,
        recompute_scaled=False,
        notices=("modelled",),
    )


def _ratio(model: TimeModel, num_tokens: int) -> Estimate:
    """Recompute over load; each bound with one arm at its slow end and the other at its fast one.

    What both share changes no winner but brings the ratio nearer to 1, so the upper bound takes the end of it that
    gives more.
    """

    def ratio(recompute: Pick, load: Pick, shared_s: float = 0.0) -> float:
        recompute_s, load_s = model.both_arms_s(num_tokens, recompute, load)
        return (recompute_s + shared_s) / (load_s + shared_s) if load_s + shared_s > 0 else float("inf")

    value = ratio("value", "value")
    if not any(model.has_bounds):
        return Estimate(value)
    high = max(ratio("high", "low"), ratio("high", "low", model.shared_range_s))
    return Estimate(value, ratio("low", "high"), high)


def faster_arm(point: Point) -> Literal["load", "recompute", "undecided"]:
    """The arm that a modelled point finds faster; undecided where the bounds hold a tie."""
    ratio = point.ratio or Estimate(1.0)
    low, high = (ratio.value if bound is None else bound for bound in (ratio.low, ratio.high))
    if low > 1:
        return "load"
    return "recompute" if high <= 1 else "undecided"


def _estimate(seconds: Callable[[int, Pick], float], num_tokens: int, bounded: bool) -> Estimate:
    value = seconds(num_tokens, "value")
    if not bounded:
        return Estimate(value)
    return Estimate(value, seconds(num_tokens, "low"), seconds(num_tokens, "high"))
