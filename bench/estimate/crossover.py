"""Find where a band crosses zero, and the verdict: one crossing, none, several, or inconclusive.

The verdict holds for the measured range.  Fitted curves are diagnostics and the only source of extrapolated values.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[attr-defined]

from bench.estimate.intervals import MIN_ROUNDS_FOR_INTERVAL, Floats
from bench.estimate.results import Crossing, Estimate, Fit, Verdict
from bench.estimate.round_curves import AdvantageCurve

Signs = NDArray[np.int_]

DEGREES = {"recompute": 2, "load": 1}  # a + b n + c n^2: attention is quadratic; a + b n: bytes are linear
EXTRAPOLATE = 4.0  # fitted curves are followed this many times beyond the measured lengths, no further
STEPS = 96  # grid between two decided lengths; values between steps are interpolated


@dataclass(frozen=True, slots=True)
class CrossoverReading:
    """Verdict over one band."""

    verdict: Verdict
    crossings: tuple[Crossing, ...] = ()
    reason: str = ""
    signs: tuple[int, ...] = ()  # by measured length: 1 load wins, -1 recompute wins, 0 undecided
    centres: tuple[float, ...] = ()  # by measured length: the median advantage
    doubts: tuple[int, ...] = ()  # lengths where more rounds may change the verdict
    opposite: tuple[int, ...] = ()  # undecided lengths whose median contradicts the nearest decided one


def decide(band: AdvantageCurve) -> CrossoverReading:
    """The verdict over the measured lengths of `band`, with every crossing in order."""
    lengths = band.lengths
    if len(lengths) < 2:
        return CrossoverReading("inconclusive", reason=_describe_too_few(band))
    centre, low, high = band.at(lengths)
    signs = np.where(low > 0, 1, np.where(high < 0, -1, 0))  # NaN bounds compare False: undecided
    decided = np.flatnonzero(signs)
    tell = (tuple(int(sign) for sign in signs), tuple(float(value) for value in centre))
    if len(decided) == 0:
        return CrossoverReading("inconclusive", (), _describe_undecided(lengths, low), *tell)
    changes = [(int(a), int(b)) for a, b in pairwise(decided) if signs[a] != signs[b]]
    if not changes:
        return CrossoverReading(*_always(lengths, signs, low, centre=centre), *tell)
    contrary, opposite = _find_contrary(signs, centre, changes)
    weak = [i for i in contrary if not np.isnan(low[i])]  # too few rounds neither agree nor disagree
    deciding = contrary if len(contrary) >= len(decided) else opposite
    doubts, against = (tuple(int(lengths[i]) for i in places) for places in (deciding, opposite))
    if len(weak) >= len(decided):
        reason = (
            f"rounds disagree at {len(weak)} lengths and agree at {len(decided)}: no more than chance gives"
        )
        return CrossoverReading("inconclusive", (), reason, *tell, doubts, against)
    crossings = tuple(find_crossing(band, float(lengths[a]), float(lengths[b])) for a, b in changes)
    verdict: Verdict = "crossover" if len(crossings) == 1 else "multiple_crossings"
    return CrossoverReading(verdict, crossings, "", *tell, doubts, against)


def _describe_too_few(band: AdvantageCurve) -> str:
    """Of no length or one: why that is no crossover, and which arm was ahead at the one."""
    if not len(band.lengths):
        return "0 lengths measured by both arms; needs at least 2"
    _, (low,), (high,) = band.at(band.lengths)
    ahead = (
        "load was faster" if low > 0 else "recompute was faster" if high < 0 else "no arm was surely faster"
    )
    return (
        f"1 length measured by both arms; needs at least 2 (more --tokens, or a longer --budget); "
        f"at {band.lengths[0]:,.0f} tokens {ahead}"
    )


def _describe_undecided(lengths: Floats, low: Floats) -> str:
    """Why no length is decided: rounds that disagree or lie far apart, or too few of them."""
    few = _list_lengths(lengths[np.isnan(low)])
    if np.all(np.isnan(low)):
        return f"fewer than {MIN_ROUNDS_FOR_INTERVAL} rounds measured both arms at any length: no interval"
    return f"at no length do the rounds tell which arm is faster{f', too few at {few}' if few else ''}"


def _list_lengths(lengths: Floats) -> str:
    return ", ".join(str(int(n)) for n in lengths[:4]) + (" …" if len(lengths) > 4 else "")


def _always(
    lengths: Floats, signs: Signs, low: Floats, *, centre: Floats
) -> tuple[Verdict, tuple[Crossing, ...], str]:
    """Verdict when no decided sign changes: always wins only if every length is decided."""
    open_lengths = lengths[signs == 0]
    winner = "load" if signs[np.flatnonzero(signs)[0]] > 0 else "recompute"
    if not len(open_lengths):
        verdict: Verdict = "load_always_wins" if winner == "load" else "recompute_always_wins"
        return verdict, (), f"{winner} wins at all {len(lengths)} lengths"
    num_decided = len(lengths) - len(open_lengths)
    few, split = lengths[np.isnan(low)], lengths[(signs == 0) & ~np.isnan(low)]
    reason = f"{winner} wins at {num_decided} of {len(lengths)} lengths"
    if len(split):
        reason += f"; rounds disagree at {_list_lengths(split)}"
    if len(few):
        reason += f"; fewer than {MIN_ROUNDS_FOR_INTERVAL} rounds tell of {_list_lengths(few)}"
    return "inconclusive", (), f"{reason}; {_format_where_to_look(signs, low, centre)}"


def _format_where_to_look(signs: Signs, low: Floats, centre: Floats) -> str:
    """Beyond an end of the range where rounds disagree and the advantage shrinks towards it; else the same again."""
    decided = np.flatnonzero(signs)
    for end, nearest, where in (
        (len(signs) - 1, decided[-1], "beyond the longest length: measure longer prefixes"),
        (0, decided[0], "below the shortest length: measure shorter prefixes"),
    ):
        split = signs[end] == 0 and not np.isnan(low[end])
        if split and centre[end] * signs[nearest] < abs(centre[nearest]):
            return f"a crossing may lie {where}"
    return "more rounds would tell (a longer --budget, or a smaller --precision)"


def _find_contrary(
    signs: Signs, centre: Floats, changes: Sequence[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """Undecided lengths outside the changes that speak against the decided length nearest to them.

    Those with a smaller advantage than it has: where curves are alike everywhere, some lengths get decided by
    chance and the others are such.  And of these, those whose advantage has the other sign.
    """
    decided = np.flatnonzero(signs)
    inside = {i for a, b in changes for i in range(a + 1, b)}
    weak, opposite = [], []
    for i in (int(i) for i in np.flatnonzero(signs == 0)):
        nearest = decided[np.argmin(np.abs(decided - i))]
        if i in inside or centre[i] * signs[nearest] >= abs(centre[nearest]):
            continue
        weak.append(i)
        if centre[i] * signs[nearest] < 0:
            opposite.append(i)
    return weak, opposite


def find_crossing(band: AdvantageCurve, below: float, above: float) -> Crossing:
    """The crossing between two lengths at which the sign of the advantage is decided and differs."""
    grid = np.geomspace(below, above, STEPS)
    grid = np.unique(np.concatenate([grid, band.lengths[(band.lengths > below) & (band.lengths < above)]]))
    centre, low, high = band.at(grid)
    rising = bool(centre[-1] > centre[0])
    if not rising:
        centre, low, high = -centre, -high, -low
    roots = _roots(grid, centre)
    value = roots[len(roots) // 2]
    # NaN bounds (a single round covers this place) exclude nothing
    enters = _first_root(grid, np.where(np.isnan(high), 0.0, high), float(grid[0]))
    leaves = _last_root(grid, np.where(np.isnan(low), 0.0, low), float(grid[-1]))
    position = int(np.searchsorted(band.lengths, value, side="left"))
    position = min(max(position, 1), len(band.lengths) - 1)
    bracket = (int(band.lengths[position - 1]), int(band.lengths[position]))
    estimate = Estimate(value, min(enters, value), max(leaves, value))
    return Crossing(estimate, bracket, rising)


def _roots(grid: Floats, values: Floats) -> list[float]:
    """Places where `values` passes 0, by linear interpolation in log length."""
    return [_interpolate(grid, values, int(i)) for i in np.flatnonzero((values[:-1] > 0) != (values[1:] > 0))]


def _first_root(grid: Floats, upper: Floats, default: float) -> float:
    """First place where the upper bound reaches 0."""
    reached = np.flatnonzero(upper >= 0)
    if len(reached) == 0 or reached[0] == 0:
        return default
    return _interpolate(grid, upper, int(reached[0]) - 1)


def _last_root(grid: Floats, lower: Floats, default: float) -> float:
    """Last place where the lower bound is still not above 0."""
    reached = np.flatnonzero(lower <= 0)
    if len(reached) == 0 or reached[-1] == len(grid) - 1:
        return default
    return _interpolate(grid, lower, int(reached[-1]))


def _interpolate(grid: Floats, values: Floats, left: int) -> float:
    """Length between grid[left] and grid[left + 1] where `values` is 0, in log length."""
    share = values[left] / (values[left] - values[left + 1])
    return float(grid[left] * (grid[left + 1] / grid[left]) ** share)


def centre_roots(band: AdvantageCurve) -> tuple[float, ...]:
    """Where the median alone crosses 0, decided or not: what refinement aims at, never an answer."""
    lengths = band.lengths
    if len(lengths) < 2:
        return ()
    centre, _, _ = band.at(lengths)
    roots: list[float] = []
    for i in np.flatnonzero((centre[:-1] > 0) != (centre[1:] > 0)):
        grid = np.geomspace(lengths[i], lengths[i + 1], 32)
        values, _, _ = band.at(grid)
        known = np.isfinite(values)  # where no round measured on both sides, only the ends are
        found = _roots(grid[known], values[known])
        roots.append(found[len(found) // 2] if found else float(np.sqrt(lengths[i] * lengths[i + 1])))
    return tuple(roots)


def fit_seconds(arm: str, series: str, seconds: Mapping[int, float]) -> Fit | None:
    """Non-negative least squares of the relative error; None with fewer lengths than coefficients."""
    degree = DEGREES[arm]
    lengths = sorted(seconds)
    if len(lengths) < degree + 1:
        return None
    n = np.asarray(lengths, dtype=float)
    t = np.asarray([seconds[tokens] for tokens in lengths])
    scale = float(n[-1])  # keeps the columns of similar size
    rows = np.stack([(n / scale) ** power / t for power in range(degree + 1)], axis=1)
    found, _ = nnls(rows, np.ones(len(n)))
    coefficients = tuple(float(value) / scale**power for power, value in enumerate(found))
    residuals = {
        tokens: float(time / evaluate(coefficients, tokens) - 1)
        for tokens, time in zip(lengths, t, strict=True)
    }
    return Fit(arm, series, coefficients, residuals)


def evaluate(coefficients: tuple[float, ...], tokens: float) -> float:
    """Seconds that a fit gives at a length."""
    return sum(value * tokens**power for power, value in enumerate(coefficients))


def fit_crossings(recompute: Fit, load: Fit) -> Floats:
    """Positive lengths where both fitted curves are equal, ascending."""
    gap = np.zeros(3)
    gap[: len(recompute.coefficients)] += recompute.coefficients
    gap[: len(load.coefficients)] -= load.coefficients
    if not np.any(gap[1:]):
        return np.empty(0)
    roots = np.roots(np.trim_zeros(gap, "b")[::-1])
    real = roots[np.abs(roots.imag) <= 1e-9 * np.abs(roots)].real
    return np.sort(real[real > 0])


def extrapolate(recompute: Fit, load: Fit, measured: tuple[int, int]) -> Crossing | None:
    """The fitted crossing nearest to the measured range but outside of it, within EXTRAPOLATE times.

    It has no interval; its `bracket` is the end of the measured range that it lies beyond, twice.
    """
    shortest, longest = measured
    outside = [
        float(n)
        for n in fit_crossings(recompute, load)
        if longest < n <= EXTRAPOLATE * longest or shortest / EXTRAPOLATE <= n < shortest
    ]
    if not outside:
        return None
    tokens = min(outside, key=lambda n: max(n / longest, shortest / n))
    end = longest if tokens > longest else shortest
    step = 1e-3 * tokens
    rising = _gap(recompute, load, tokens + step) > _gap(recompute, load, tokens - step)
    return Crossing(Estimate(tokens), (end, end), rising, extrapolated=True)


def _gap(recompute: Fit, load: Fit, tokens: float) -> float:
    return evaluate(recompute.coefficients, tokens) - evaluate(load.coefficients, tokens)


def describe_disagreement(recompute: Fit, load: Fit, crossing: Crossing) -> str | None:
    """What differs when the fitted curves cross outside the interval of the measured crossing."""
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is None or high is None:
        return None
    roots = fit_crossings(recompute, load)
    if any(low <= n <= high for n in roots):
        return None
    nearest = min(roots, key=lambda n: abs(np.log(n / crossing.tokens.value)), default=None)
    says = "never cross" if nearest is None else f"cross at {nearest:.0f} tokens"
    return (
        f"the fitted curves {says}, the measured points at {crossing.tokens.value:.0f} "
        f"({low:.0f} to {high:.0f})"
    )


def format_factor(lengths: Iterable[int], measured: tuple[int, int]) -> str | None:
    """How far the lengths reach outside of the measured ones; None when they do not."""
    listed = list(lengths)
    shortest, longest = min(listed), max(listed)
    said = []
    if longest > measured[1]:
        said.append(f"{longest:,} tokens are {longest / measured[1]:.3g} times the longest length measured")
    if shortest < measured[0]:
        said.append(
            f"{shortest:,} tokens are 1/{measured[0] / max(shortest, 1):.3g} of the shortest length measured"
        )
    return "; ".join(said) or None
