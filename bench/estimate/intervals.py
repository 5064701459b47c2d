"""Median of a few rounds with its 95 % interval, and the variance between and within rounds.

6 rounds or more: interpolated order statistics, which assume no distribution and are robust to one slow round.
3 to 5 rounds: Student's t around the mean, which an outlier makes wide, never narrow.

Sources: T. P. Hettmansperger, S. J. Sheather, "Confidence intervals based on interpolated order statistics",
Statistics & Probability Letters 4 (1986) 75-79.  S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components",
Wiley 1992, chapter 3 (one-way random effects with unequal group sizes).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, stdtrit

from bench.estimate.results import Estimate
from bench.record.sample import Sample
from kvio.errors import FailedError


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Standard deviations of one case, relative to its median: sample = median × (1 + round + repeat)."""

    arm: str
    series: str
    prefix_tokens: int
    suffix_tokens: int
    num_rounds: int
    num_samples: int
    median_s: float
    between: float  # between rounds: more samples in the same process do not reduce it
    within: float | None  # within a round; None with one sample per round

    @property
    def between_share(self) -> float | None:
        """Share of the variance between rounds, 0 to 1; None when unknown."""
        if self.within is None:
            return None
        total = self.between**2 + self.within**2
        return self.between**2 / total if total > 0 else None


def variance_components(samples: Sequence[Sample]) -> tuple[VarianceComponents, ...]:
    """Components of every case with two rounds or more, ordered by arm, series and length."""
    cases: dict[tuple[str, str, int, int], dict[int, list[float]]] = {}
    for sample in samples:
        case = sample.case
        key = (case.arm, case.series, case.prefix_tokens, case.suffix_tokens)
        cases.setdefault(key, {}).setdefault(sample.round, []).append(sample.outcome.seconds)
    return tuple(_components(key, list(cases[key].values())) for key in sorted(cases) if len(cases[key]) > 1)


def _components(key: tuple[str, str, int, int], rounds: Sequence[Sequence[float]]) -> VarianceComponents:
    every = np.concatenate([np.asarray(seconds) for seconds in rounds])
    median_s = float(np.median(every))
    groups = [np.asarray(seconds) / median_s for seconds in rounds]
    sizes = np.array([len(group) for group in groups])
    means = np.array([group.mean() for group in groups])
    freedom = int(sizes.sum()) - len(groups)
    grand = float((sizes * means).sum() / sizes.sum())
    mean_square_between = float((sizes * (means - grand) ** 2).sum()) / (len(groups) - 1)
    size = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(groups) - 1)
    within_square = None
    if freedom > 0:
        within_square = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom
    between_square = max(0.0, (mean_square_between - (within_square or 0.0)) / float(size))
    return VarianceComponents(
        *key,
        num_rounds=len(groups),
        num_samples=int(sizes.sum()),
        median_s=median_s,
        between=math.sqrt(between_square),
        within=None if within_square is None else math.sqrt(within_square),
    )


def predict_half_width(components: VarianceComponents, *, num_rounds: int, num_samples: int) -> float:
    """Expected relative half-width of the 95 % t interval over rounds, with `num_samples` per round."""
    if num_rounds < 2 or num_samples < 1:
        raise ValueError(f"{num_rounds} rounds x {num_samples} samples give no interval. Use 2 x 1 or more.")
    variance = components.between**2 / num_rounds
    variance += (components.within or 0.0) ** 2 / (num_rounds * num_samples)
    return float(stdtrit(num_rounds - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)


def pooled_half_width(components: VarianceComponents, *, num_samples: int) -> float:
    """Relative half-width from pooling the samples of ONE process: too narrow, as it omits the spread between rounds."""
    if num_samples < 2:
        raise ValueError(f"{num_samples} samples give no interval. Use 2 or more.")
    factor = float(stdtrit(num_samples - 1, (1 + CONFIDENCE) / 2))
    return factor * (components.within or 0.0) / math.sqrt(num_samples)


Floats = NDArray[np.float64]

CONFIDENCE = 0.95
MIN_ROUNDS_FOR_INTERVAL = 3  # the t interval of two spans orders of magnitude
MIN_ROUNDS_FOR_MEDIAN = 6  # below, the extreme rounds cover less than 95 %


class AnalysisError(FailedError):
    """The samples cannot be analysed."""


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
    """Median, low and high of each column of (num_rounds, num_columns), ignoring NaN; bounds are NaN below 3 rounds."""
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
    """`summarise` on the log scale, for seconds, rates and ratios: their noise is multiplicative."""
    found = summarise([math.log(value) for value in values])
    if found is None:
        return None
    if found.low is None or found.high is None:
        return Estimate(math.exp(found.value))
    return Estimate(math.exp(found.value), _exp(found.low), _exp(found.high))


def _exp(value: float) -> float:
    """exp, or inf on overflow: a t interval of few noisy rounds can span hundreds of logs."""
    return math.exp(value) if value < 700 else math.inf


def half_width(estimate: Estimate) -> float | None:
    """Half the interval, relative to the value; None without an interval."""
    if estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / (2 * estimate.value)
