"""One curve per round, and the band that their median and 95 % interval make at any length."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from scipy.interpolate import PchipInterpolator

from bench.analyse.stats import Floats, summarise_columns

Axis = Literal["log", "linear"]
WINDOW = math.log(2) / 4  # lengths of one round within a factor 2^(1/4) are smoothed together


class Band(Protocol):
    """An advantage of load (above 0 load wins) with its interval, over prefix length."""

    @property
    def lengths(self) -> Floats:
        """Lengths measured, ascending."""

    def at(self, lengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Centre, low and high at these lengths; NaN where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundCurve:
    """What one round says about the advantage of load; above 0 load wins.

    Between its own lengths it is interpolated by a monotone cubic (a line between two); outside it says
    nothing.  Where a round measured three or more lengths within a factor 2^(1/4), each is first replaced by
    the local line through them, so that a dense grid averages its noise instead of crossing zero many times.
    """

    lengths: Floats
    values: Floats
    axis: Axis = "log"
    _curve: PchipInterpolator | None = field(init=False, repr=False)
    _x: Floats = field(init=False, repr=False)
    _y: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        x = np.log(self.lengths) if self.axis == "log" else self.lengths
        y = _smooth(np.log(self.lengths), self.values)
        object.__setattr__(self, "_x", x)
        object.__setattr__(self, "_y", y)
        curve = _interpolate(x, y) if len(x) > 2 else None
        object.__setattr__(self, "_curve", curve)

    def at(self, lengths: Floats) -> Floats:
        """Values at these lengths, NaN outside what the round measured."""
        outside = (lengths < self.lengths[0] * (1 - 1e-9)) | (lengths > self.lengths[-1] * (1 + 1e-9))
        x = np.log(lengths) if self.axis == "log" else lengths
        x = np.minimum(np.maximum(x, self._x[0]), self._x[-1])
        found = np.interp(x, self._x, self._y) if self._curve is None else self._curve(x)
        return np.where(outside, np.nan, found)


def _interpolate(x: Floats, y: Floats) -> PchipInterpolator:
    return PchipInterpolator(x, y)  # type: ignore[no-untyped-call]


def _smooth(x: Floats, y: Floats) -> Floats:
    """Local line over neighbours within WINDOW; unchanged where there are fewer than three."""
    if len(x) < 3 or float(np.min(x[2:] - x[:-2])) > 2 * WINDOW:
        return y
    near = np.abs(x[:, None] - x[None, :]) <= WINDOW + 1e-12  # (n, n)
    count = near.sum(axis=1)
    mean_x = near @ x / count
    mean_y = near @ y / count
    spread = near @ (x * x) / count - mean_x**2
    shared = near @ (x * y) / count - mean_x * mean_y
    slope = np.divide(shared, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return np.where(count > 2, mean_y + slope * (x - mean_x), y)


def curve_of(values: Mapping[float, float], *, axis: Axis = "log") -> RoundCurve:
    """The curve of one round from {length: advantage}."""
    lengths = sorted(values)
    return RoundCurve(
        np.asarray(lengths, dtype=float), np.asarray([values[n] for n in lengths], dtype=float), axis
    )


@dataclass(frozen=True, slots=True, eq=False)
class RoundBand:
    """The band over rounds: at each length the median of the rounds that cover it, and its interval.

    Rounds may have measured different lengths; each is interpolated on its own, both arms paired, before
    anything is averaged.  The interval of a crossing is the set of lengths where this band contains 0.  That
    is the interval of the per-round crossings C_r (D_r(x) > 0 just when C_r < x), except that a round
    whose own crossing falls outside its lengths still counts, instead of being dropped.
    """

    rounds: tuple[RoundCurve, ...]
    lengths: Floats = field(init=False)

    def __post_init__(self) -> None:
        merged = np.unique(np.concatenate([curve.lengths for curve in self.rounds] or [np.empty(0)]))
        object.__setattr__(self, "lengths", merged)

    def at(self, lengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Median, low and high over the rounds that cover each length."""
        return summarise_columns(np.stack([curve.at(lengths) for curve in self.rounds]))


def band_of(rounds: Sequence[Mapping[float, float]], *, axis: Axis = "log") -> RoundBand:
    """The band of several rounds, each {length: advantage}; rounds without any length are left out."""
    return RoundBand(tuple(curve_of(values, axis=axis) for values in rounds if values))
