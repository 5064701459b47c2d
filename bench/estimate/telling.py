"""Whether two ways to load differ surely, where one table asks that of many pairs."""

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import stdtr

from bench.estimate.intervals import MIN_ROUNDS_FOR_INTERVAL, summarise


def within_noise(one: Mapping[int, float], other: Mapping[int, float], *, level: float) -> bool:
    """Whether seconds by round of two ways are the same as far as the rounds that measured both can tell.

    They differ where the 95 % interval of their ratio over rounds excludes 1, and Student's t test of the paired log
    ratios tells them apart too: order statistics of few rounds reach no smaller level, and t alone supposes normal noise.

    Args:
        level: that the t test's two-sided probability must not be above; of m comparisons, the error of all over m
            (Bonferroni).
    """
    logs = [math.log(other[number] / one[number]) for number in sorted(one.keys() & other.keys())]
    if len(logs) < MIN_ROUNDS_FOR_INTERVAL:
        return True
    found = summarise(logs)
    if found is None or found.low is None or found.high is None or found.low <= 0 <= found.high:
        return True
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return error > 0 and 2 * float(stdtr(len(logs) - 1, -abs(float(np.mean(logs))) / error)) > level
