"""Location of a few rounds and its 95 % interval, for one value or for many columns at once.

The unit is the round (one fresh process).  The value is the median.  The interval is

* Hettmansperger and Sheather's interpolated order-statistic interval of the median for 6 rounds and more: it
  needs no normal noise, and one round that was two or three times too slow hardly moves it;
* Student's t around the mean for 2 to 5 rounds, where order statistics cannot reach 95 %: an outlier makes
  this one wide, never narrow;
* none for a single round.

Source: T. P. Hettmansperger, S. J. Sheather, "Confidence intervals based on interpolated order statistics",
Statistics & Probability Letters 4 (1986) 75-79.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, stdtrit

from bench.estimate.results import Estimate
from kvio.errors import FailedError

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
MIN_ROUNDS_FOR_INTERVAL = 3  # the t interval of two spans orders of magnitude and tells nothing
MIN_ROUNDS_FOR_MEDIAN = 6  # below, the extreme rounds cover less than 95 %


class AnalysisError(FailedError):
    """The samples cannot be analysed, or the question makes no sense for them."""


@cache
def order_weights(num_rounds: int) -> tuple[int, float]:
    """Rank k from 0 and weight w: the lower bound is (1 - w) x[k] + w x[k + 1] of the sorted rounds."""
    depth = 1  # x_(depth) .. x_(n + 1 - depth) is the narrowest pair that still covers CONFIDENCE
    while _coverage(num_rounds, depth + 1) >= CONFIDENCE:
        depth += 1
    outer, inner = _coverage(num_rounds, depth), _coverage(num_rounds, depth + 1)
    share = (outer - CONFIDENCE) / (outer - inner)
    weight = (num_rounds - depth) * share / (depth + (num_rounds - 2 * depth) * share)
    return depth - 1, weight


def _coverage(num_rounds: int, depth: int) -> float:
    return 1.0 - 2.0 * float(bdtr(depth - 1, num_rounds, 0.5))


@cache
def student_factor(num_rounds: int) -> float:
    """Half-width of the t interval in standard deviations of the rounds."""
    return float(stdtrit(num_rounds - 1, 0.5 + CONFIDENCE / 2)) / math.sqrt(num_rounds)


def summarise_columns(rounds: Floats) -> tuple[Floats, Floats, Floats]:
    """Median, low and high of each column of (num_rounds, num_columns); NaN where a round has no value.

    Bounds are NaN for a column of fewer than three rounds, all three are NaN for a column of none.
    """
    ordered = np.sort(rounds, axis=0)  # NaN goes last
    counts = np.count_nonzero(~np.isnan(ordered), axis=0)
    median, low, high = (np.full(rounds.shape[1], np.nan) for _ in range(3))
    for count in (int(value) for value in np.unique(counts)):
        if count == 0:
            continue
        here = counts == count
        column = ordered[:count, here]
        median[here] = (column[(count - 1) // 2] + column[count // 2]) / 2
        if count >= MIN_ROUNDS_FOR_INTERVAL:
            low[here], high[here] = _bounds(column)
    return median, low, high


def _bounds(ordered: Floats) -> tuple[Floats, Floats]:
    """Interval bounds of each sorted column without gaps, (num_rounds >= 2, num_columns)."""
    count = ordered.shape[0]
    if count < MIN_ROUNDS_FOR_MEDIAN:
        mean = ordered.mean(axis=0)
        half = student_factor(count) * ordered.std(axis=0, ddof=1)
        return mean - half, mean + half
    rank, weight = order_weights(count)
    low = (1 - weight) * ordered[rank] + weight * ordered[rank + 1]
    high = (1 - weight) * ordered[-1 - rank] + weight * ordered[-2 - rank]
    return low, high


def summarise(values: Sequence[float]) -> Estimate | None:
    """Median over rounds with its 95 % interval; None when there is no value."""
    if not values:
        return None
    median, low, high = summarise_columns(np.asarray(values, dtype=float)[:, None])
    if math.isnan(low[0]):
        return Estimate(float(median[0]))
    return Estimate(float(median[0]), float(low[0]), float(high[0]))


def summarise_positive(values: Sequence[float]) -> Estimate | None:
    """As `summarise`, on the log scale: for seconds, rates and ratios, whose noise multiplies."""
    found = summarise([math.log(value) for value in values])
    if found is None:
        return None
    if found.low is None or found.high is None:
        return Estimate(math.exp(found.value))
    return Estimate(math.exp(found.value), _exp(found.low), _exp(found.high))


def _exp(value: float) -> float:
    """exp that gives inf instead of raising: two wild rounds have a t interval of hundreds of logs."""
    return math.exp(value) if value < 700 else math.inf


def half_width(estimate: Estimate) -> float | None:
    """Half the interval, relative to the value; None when there are too few rounds for one."""
    if estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / (2 * estimate.value)
