import math

import numpy as np
import pytest

from bench.estimate.intervals import (
    half_width,
    order_weights,
    student_factor,
    summarise,
    summarise_columns,
    summarise_positive,
)
from bench.estimate.results import Estimate


def test_eight_rounds_use_the_second_and_the_first_order_statistic_in_known_shares() -> None:
    rank, weight = order_weights(8)
    # Hettmansperger and Sheather: coverages 1 - 2/256 and 1 - 18/256, share (0.9921875 - 0.95) / 0.0625
    share = (254 / 256 - 0.95) / (254 / 256 - 238 / 256)
    assert rank == 0
    assert weight == pytest.approx(7 * share / (1 + 6 * share), abs=1e-12)
    found = summarise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert found == Estimate(4.5, pytest.approx(1 + weight), pytest.approx(8 - weight))


def test_six_rounds_reach_95_percent_between_their_extremes() -> None:
    rank, weight = order_weights(6)
    assert rank == 0
    assert 0 < weight < 1


def test_five_rounds_use_student_t_around_the_mean_and_report_the_median() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 10.0]
    half = 2.7764451051977987 * np.std(values, ddof=1) / math.sqrt(5)
    found = summarise(values)
    assert found is not None
    assert (found.value, found.low, found.high) == (3.0, pytest.approx(4 - half), pytest.approx(4 + half))


def test_two_rounds_have_the_wide_interval_they_deserve() -> None:
    assert student_factor(2) == pytest.approx(12.706204736 / math.sqrt(2))


def test_one_round_has_no_interval_and_no_round_has_no_value() -> None:
    assert summarise([3.0]) == Estimate(3.0, None, None)
    assert summarise([]) is None


def test_an_outlier_round_barely_moves_the_interval_of_eight() -> None:
    calm = [0.97, 0.98, 0.99, 1.00, 1.01, 1.02, 1.03, 1.04]
    wild = [*calm[:-1], 3.0]
    quiet, loud = summarise_positive(calm), summarise_positive(wild)
    assert quiet is not None and loud is not None
    assert quiet.value == loud.value
    assert quiet.low == loud.low
    assert loud.high is not None and loud.high < 1.12


def test_an_outlier_among_four_rounds_makes_the_interval_wide_not_wrong() -> None:
    found = summarise_positive([1.0, 1.01, 0.99, 3.0])
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < 1.0 < found.high
    assert found.high > 3.0


def test_wild_rounds_give_an_infinite_bound_instead_of_an_overflow() -> None:
    found = summarise_positive([1e-250, 1.0, 1e250])
    assert found is not None
    assert found.high == math.inf


def test_seconds_are_summarised_on_the_log_scale() -> None:
    found = summarise_positive([1.0, 4.0])
    assert found is not None
    assert found.value == pytest.approx(2.0)


def test_columns_with_gaps_use_only_the_rounds_that_have_a_value() -> None:
    nan = math.nan
    rounds = np.array([[1.0, 5.0, nan], [2.0, nan, nan], [3.0, nan, nan]])
    median, low, high = summarise_columns(rounds)
    assert median[0] == 2.0
    assert low[0] == pytest.approx(2 - 4.302652729749464 / math.sqrt(3))
    assert median[1] == 5.0
    assert math.isnan(low[1]) and math.isnan(high[1])
    assert math.isnan(median[2])


@pytest.mark.parametrize("num_rounds", [3, 5, 6, 7, 8, 9, 12])
def test_intervals_cover_a_normal_truth_in_95_of_100_trials(num_rounds: int) -> None:
    noise = np.random.default_rng(num_rounds).normal(size=(num_rounds, 20_000))
    _, low, high = summarise_columns(noise)
    covered = float(np.mean((low <= 0) & (high >= 0)))
    assert 0.94 <= covered <= 0.96


@pytest.mark.parametrize("num_rounds", [6, 8])
def test_intervals_of_the_median_cover_under_heavy_tails_too(num_rounds: int) -> None:
    noise = np.random.default_rng(num_rounds).standard_t(1.5, size=(num_rounds, 20_000))
    _, low, high = summarise_columns(noise)
    assert 0.935 <= float(np.mean((low <= 0) & (high >= 0))) <= 0.965


def test_half_width_is_relative_and_missing_without_an_interval() -> None:
    assert half_width(Estimate(100.0, 90.0, 112.0)) == pytest.approx(0.11)
    assert half_width(Estimate(100.0)) is None


def test_two_rounds_give_no_interval() -> None:
    found = summarise_positive([1.0, 4.0])
    assert found is not None
    assert (round(found.value, 9), found.low, found.high) == (2.0, None, None)
