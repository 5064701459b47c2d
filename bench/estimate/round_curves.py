"""One curve per round, and the band of their median and 95 % interval at any length.

P*, the prefix length beyond which loading the next chunk is cheaper than computing it, is measured directly with a
suffix, else from slopes between neighbouring measured lengths of one round:

    slope(n_i, n_j) = (T(n_j) - T(n_i)) / (n_j - n_i)

For a + b n + c n^2 this is the cost per token of a chunk centred at (n_i + n_j) / 2.  Neighbours closer than a factor
sqrt(2) are skipped: their slope is mostly noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np
from scipy.interpolate import PchipInterpolator

from bench.estimate.intervals import Floats, summarise_columns
from bench.estimate.valid_samples import Medians, pair_rounds

Axis = Literal["log", "linear"]
WINDOW = math.log(2) / 4  # lengths of one round within a factor 2^(1/4) are smoothed together


class AdvantageCurve(Protocol):
    """Advantage of load (above 0 load wins) with its interval, over prefix length."""

    @property
    def lengths(self) -> Floats:
        """Lengths measured, ascending."""

    def at(self, lengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Centre, low and high at these lengths; NaN where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundCurve:
    """Advantage of load in one round, by ascending length."""

    lengths: Floats
    values: Floats


def curve_of(values: Mapping[float, float]) -> RoundCurve:
    """The curve of one round from {length: advantage}."""
    lengths = sorted(values)
    return RoundCurve(np.asarray(lengths, dtype=float), np.asarray([values[n] for n in lengths], dtype=float))


class RoundCurves:
    """The band over rounds: at each length the median of the rounds that cover it, and its interval.

    Each round is interpolated before averaging, since rounds may have different lengths.  Three or more lengths within
    a factor 2^(1/4) are first smoothed by a local line, so that noise on a dense grid does not cross zero repeatedly.
    The lengths where the band contains 0 are the interval of the per-round crossings C_r (D_r(x) > 0 just when
    C_r < x), but a round whose crossing lies outside its lengths still counts.
    """

    def __init__(self, rounds: Sequence[RoundCurve], *, axis: Axis = "log") -> None:
        self.rounds = tuple(rounds)
        self.axis = axis
        self.lengths: Floats = np.unique(np.concatenate([curve.lengths for curve in rounds] or [np.empty(0)]))
        alike: dict[bytes, list[RoundCurve]] = {}
        for curve in self.rounds:
            alike.setdefault(curve.lengths.tobytes(), []).append(curve)
        self._groups = tuple(_interpolate_alike(tuple(curves), axis) for curves in alike.values())

    def at(self, lengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Median, low and high over the rounds that cover each length."""
        x = np.log(lengths) if self.axis == "log" else lengths
        return summarise_columns(np.concatenate([group.at(x).T for group in self._groups]))


class _SharedGridCurves:
    """Rounds that measured the same lengths, interpolated together."""

    def __init__(self, curves: Sequence[RoundCurve], axis: Axis) -> None:
        logs = np.log(curves[0].lengths)
        values = np.stack([curve.values for curve in curves], axis=1)  # (num_lengths, num_rounds)
        self._x = logs if axis == "log" else curves[0].lengths
        self._y = _smooth(logs, values)
        self._curve: PchipInterpolator | None = None
        if len(logs) > 2:
            self._curve = PchipInterpolator(self._x, self._y)  # type: ignore[no-untyped-call]

    def at(self, x: Floats) -> Floats:
        """Values (len(x), num_rounds), NaN outside what these rounds measured."""
        first, last = self._x[0], self._x[-1]
        outside = (x < first - 1e-9 * abs(first)) | (x > last + 1e-9 * abs(last))
        x = np.minimum(np.maximum(x, first), last)
        found = self._line(x) if self._curve is None else self._curve(x)
        return np.where(outside[:, None], np.nan, found)

    def _line(self, x: Floats) -> Floats:
        if len(self._x) == 1:
            return np.repeat(self._y, len(x), axis=0)
        share = ((x - self._x[0]) / (self._x[1] - self._x[0]))[:, None]
        return np.asarray((1 - share) * self._y[0] + share * self._y[1])


@lru_cache(maxsize=64)
def _interpolate_alike(curves: tuple[RoundCurve, ...], axis: Axis) -> _SharedGridCurves:
    """Cached: refinement reads the same rounds after every new one."""
    return _SharedGridCurves(curves, axis)


def _smooth(x: Floats, y: Floats) -> Floats:
    """Local line over neighbours within WINDOW, for each column of (num_lengths, num_rounds)."""
    if len(x) < 3 or float(np.min(x[2:] - x[:-2])) > 2 * WINDOW:
        return y
    near = np.abs(x[:, None] - x[None, :]) <= WINDOW + 1e-12  # (num_lengths, num_lengths)
    count = near.sum(axis=1)
    mean_x = near @ x / count
    spread = near @ (x * x) / count - mean_x**2
    mean_y = near @ y / count[:, None]
    shared = near @ (x[:, None] * y) / count[:, None] - mean_x[:, None] * mean_y
    slope = shared / np.where(spread > 1e-12, spread, np.inf)[:, None]
    return np.where((count > 2)[:, None], mean_y + slope * (x - mean_x)[:, None], y)


def band_of(rounds: Sequence[Mapping[float, float]], *, axis: Axis = "log") -> RoundCurves:
    """The band of several rounds, each {length: advantage}; empty rounds are skipped."""
    return RoundCurves(tuple(curve_of(values) for values in rounds if values), axis=axis)


MIN_RATIO = math.sqrt(2) * 0.98  # lengths are rounded to chunks


def direct_band(recompute: Medians, load: Medians) -> RoundCurves:
    """Band of log(recompute / load) of the next tokens, by prefix length."""
    return band_of(pair_rounds(recompute, load))


def slope_band(recompute: Medians, load: Medians, *, chunk_tokens: int) -> RoundCurves:
    """Band of recompute's slope minus load's (seconds per token), by the prefix before the chunk."""
    rounds: dict[int, dict[int, tuple[float, float]]] = {}
    for tokens in recompute.keys() & load.keys():
        for number in recompute[tokens].keys() & load[tokens].keys():
            rounds.setdefault(number, {})[tokens] = (recompute[tokens][number], load[tokens][number])
    slopes = [_slopes(rounds[number], chunk_tokens) for number in sorted(rounds)]
    return band_of(slopes, axis="linear")


def _slopes(seconds: Mapping[int, tuple[float, float]], chunk_tokens: int) -> dict[float, float]:
    """Advantage of load in seconds per token, by prefix length, of one round."""
    lengths = sorted(seconds)
    found: dict[float, float] = {}
    left = 0
    for right in range(1, len(lengths)):
        low, high = lengths[left], lengths[right]
        if high < low * MIN_RATIO:
            continue
        prefix = max((low + high - chunk_tokens) / 2, 1.0)
        gap = [(seconds[high][arm] - seconds[low][arm]) / (high - low) for arm in (0, 1)]
        found[prefix] = gap[0] - gap[1]
        left = right
    return found
