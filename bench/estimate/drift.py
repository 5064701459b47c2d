"""Whether the seconds of a case changed over the rounds: little by little, as heat does it, or all at once.

    little by little   Kendall's rank correlation with the number of the round, and the Theil-Sen line
    all at once        the split of the rounds with the largest t, corrected for the number of splits tried;
                       its two parts must lie apart in rank too, for one slow round beside a usual one makes a large t

Each asks for a change of more than DRIFT, and is passed by steady rounds once in 200 times at most.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr
from scipy.stats import kendalltau, mannwhitneyu, theilslopes  # type: ignore[attr-defined]

from bench.estimate.intervals import Floats

DRIFT = 0.10  # log change over the rounds from which a case is said to drift
MIN_ROUNDS = 6  # with fewer, rounds are in order by chance too often
CHANCE = 0.005  # of either test to be passed by rounds that are steady
LEAST_PART = 2  # rounds on each side of a change


def drifts(logs: Sequence[float]) -> bool:
    """True when log seconds, one for each round in order, changed by more than DRIFT and than chance does."""
    if len(logs) < MIN_ROUNDS:
        return False
    return _trends(logs) or _jumps(logs)


def _trends(logs: Sequence[float]) -> bool:
    numbers = np.arange(len(logs))
    change = float(theilslopes(logs, numbers).slope) * (len(logs) - 1)
    return abs(change) > DRIFT and float(kendalltau(numbers, logs).pvalue) < CHANCE


def _jumps(logs: Sequence[float]) -> bool:
    values, total = np.asarray(logs), len(logs)
    splits = range(LEAST_PART, total - LEAST_PART + 1)
    scores = [_score(values[:split], values[split:]) for split in splits]
    best = int(np.argmax(scores))
    first, last = values[: splits[best]], values[splits[best] :]
    if abs(float(np.median(last) - np.median(first))) <= DRIFT:
        return False
    if 2 * float(stdtr(total - 2, -scores[best])) * len(splits) >= CHANCE:
        return False
    clearest = 2 / math.comb(total, len(first))  # no order of so few rounds is less likely
    return float(mannwhitneyu(first, last).pvalue) <= max(CHANCE / len(splits), clearest * (1 + 1e-9))


def _score(first: Floats, last: Floats) -> float:
    """Student's t of the difference of two parts, without its sign."""
    inside = float(np.sum((first - first.mean()) ** 2) + np.sum((last - last.mean()) ** 2))
    spread = math.sqrt(inside / (len(first) + len(last) - 2) * (1 / len(first) + 1 / len(last)))
    return abs(float(last.mean() - first.mean())) / max(spread, 1e-12)
