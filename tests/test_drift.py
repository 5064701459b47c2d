"""What counts as drift over the rounds, against simulated rounds whose truth is known."""

import math

import numpy as np
import pytest

from bench.estimate.intervals import Floats
from bench.estimate.per_length import drifts

STEADY_TRIALS = 1000
TRIALS = 200


def _share(shape: Floats, noise: float, *, trials: int, slow: float = 0.0) -> float:
    """Share of simulated cases that are said to drift; `slow` is the share of rounds that are 2-3 times too slow."""
    rng = np.random.default_rng([len(shape), int(1000 * noise)])
    logs = shape + rng.normal(0.0, noise, (trials, len(shape)))
    logs += np.where(rng.random(logs.shape) < slow, np.log(rng.uniform(2, 3, logs.shape)), 0.0)
    return sum(drifts(case.tolist()) for case in logs) / trials


@pytest.mark.parametrize("num_rounds", [6, 8, 12, 30])
@pytest.mark.parametrize(("noise", "slow"), [(0.05, 0.0), (0.2, 0.0), (0.04, 0.06)])
def test_steady_rounds_are_seldom_said_to_drift(num_rounds: int, noise: float, slow: float) -> None:
    assert _share(np.zeros(num_rounds), noise, trials=STEADY_TRIALS, slow=slow) <= 0.01


@pytest.mark.parametrize("noise", [0.03, 0.05])
@pytest.mark.parametrize("change", [0.8, 1.22])
def test_a_fifth_slower_or_faster_little_by_little_is_found(noise: float, change: float) -> None:
    assert _share(np.linspace(0.0, math.log(change), 30), noise, trials=TRIALS) >= 0.9


@pytest.mark.parametrize(("num_rounds", "after"), [(8, 2), (8, 4), (8, 6), (30, 2), (30, 10), (30, 26)])
def test_half_the_speed_all_at_once_is_found(num_rounds: int, after: int) -> None:
    shape = np.where(np.arange(num_rounds) < after, 0.0, math.log(2))
    assert _share(shape, 0.05, trials=TRIALS) >= 0.98


def test_a_change_that_is_sure_but_small_is_none() -> None:
    assert not drifts(np.linspace(0.0, 0.09, 30).tolist())
    assert drifts(np.linspace(0.0, 0.11, 30).tolist())
    assert not drifts([0.0] * 4 + [0.09] * 4)
    assert drifts([0.0] * 4 + [0.11] * 4)


def test_rounds_that_are_all_alike_or_few_do_not_drift() -> None:
    assert not drifts([1.0] * 8)
    assert not drifts([0.0, 0.1, 0.2, 0.3, 0.4])
    assert not drifts([])


@pytest.mark.parametrize("place", range(8))
def test_one_slow_round_is_no_drift(place: int) -> None:
    logs = [0.01 * (number % 3) for number in range(8)]
    logs[place] = 1.0
    assert not drifts(logs)
