"""Location of a few rounds and its 95 % interval, for one value or for many columns at once.

The unit is the round (one fresh process).  The value is the median.  The interval is

* Hettmansperger and Sheather's interpolated order-statistic interval of the median for 6 rounds and more: it
  needs no normal noise, and one round that was two or three times too slow hardly moves it;
* Student's t around the mean for 2 to 5 rounds, where order statistics cannot reach 95 %: an outlier makes
  this one wide, never narrow;
* none for a single round.

Source: T. P. Hettmansperger, S. J. Sheather, "Confidence intervals based on interpolated order statistics",
Statistics & Probability Letters 4 (1986) 75-79.

Where the noise of a sweep lies: between its rounds or between the samples of one round.

One-way random effects on relative times: sample = case median × (1 + round + repeat).  The round's share does
not shrink with more samples in the same process, which is why a sweep repeats rounds.

Source: S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components", Wiley 1992, chapter 3 (analysis of
variance estimators for the one-way model with unequal group sizes).
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
    """Relative spread of one case: standard deviations as shares of its median.

    Args:
        between: of the rounds' true levels; 0 when the rounds differ no more than their samples do.
        within: of the samples of one round around its level; None with one sample in every round.
    """

    arm: str
    series: str
    prefix_tokens: int
    suffix_tokens: int
    num_rounds: int
    num_samples: int
    median_s: float
    between: float
    within: float | None

    @property
    def between_share(self) -> float | None:
        """Share of the variance that lies between rounds, 0 to 1; None when it cannot be told apart."""
        if self.within is None:
            return None
        total = self.between**2 + self.within**2
        return self.between**2 / total if total > 0 else None


def variance_components(samples: Sequence[Sample]) -> tuple[VarianceComponents, ...]:
    """Components of every case measured in two rounds or more, ordered by arm, series and length."""
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
    """Relative half-width of the 95 % t interval over rounds that such noise gives on average.

    Args:
        num_rounds: fresh processes, 2 or more.
        num_samples: samples of the case in each.

    Raises:
        ValueError: fewer than 2 rounds or fewer than 1 sample.
    """
    if num_rounds < 2 or num_samples < 1:
        raise ValueError(f"{num_rounds} rounds x {num_samples} samples give no interval; take 2 x 1 or more")
    variance = components.between**2 / num_rounds
    variance += (components.within or 0.0) ** 2 / (num_rounds * num_samples)
    return float(stdtrit(num_rounds - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)


def pooled_half_width(components: VarianceComponents, *, num_samples: int) -> float:
    """Relative half-width that pooling `num_samples` samples of ONE process would claim.

    It knows nothing of the spread between rounds, so it is too narrow by about that spread.
    """
    if num_samples < 2:
        raise ValueError(f"{num_samples} samples give no interval; take 2 or more")
    factor = float(stdtrit(num_samples - 1, (1 + CONFIDENCE) / 2))
    return factor * (components.within or 0.0) / math.sqrt(num_samples)


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
