"""Trials against a known truth: intervals cover, verdicts are reached, refinement pays."""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from bench.estimate.crossover import CrossoverReading, decide
from bench.estimate.intervals import (
    half_width,
    order_weights,
    student_factor,
    summarise,
    summarise_columns,
    summarise_positive,
)
from bench.estimate.results import Crossing, Estimate
from bench.estimate.round_curves import RoundCurves
from tests.helpers.simulated_sweeps import Noise, Setting, Swept, Truth, sweep_adaptively, sweep_grid


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


NUM_TRIALS = 500
POWERS = tuple(256 * 2**k for k in range(8))  # 256 … 32768
EVEN = tuple(range(2048, 32769, 2048))  # 16 evenly spaced lengths of the same range
TRUTH = Truth()  # crosses at 1760.4
TRUE_TOKENS = 1760.4
NOISES = {
    "independent 2 %": Noise(case=0.02),
    "independent 5 %": Noise(case=0.05),
    "common per round 2 %": Noise(case=0.0, common=0.02),
    "common per round 5 %": Noise(case=0.0, common=0.05),
}


MAX_ROUNDS = 24  # a sweep goes on until it is precise, where the budget allows


def sweep(how: str, truth: Truth, noise: Noise, seed: int, *, num_rounds: int = MAX_ROUNDS) -> Swept:
    rng = np.random.default_rng([seed, 20])
    if how == "adaptive":
        return sweep_adaptively(truth, noise, setting=Setting(num_rounds=num_rounds), rng=rng)
    return sweep_grid(POWERS, truth, noise, setting=Setting(), rng=rng)


@cache
def trials(how: str, name: str) -> tuple[tuple[CrossoverReading, float], ...]:
    """Reading and measuring seconds of each trial."""
    swept = [sweep(how, TRUTH, NOISES[name], seed) for seed in range(NUM_TRIALS)]
    return tuple((decide(RoundCurves(found.curves)), found.cost_s) for found in swept)


def covers(crossing: Crossing, tokens: float) -> bool:
    low, high = crossing.tokens.low, crossing.tokens.high
    return low is not None and high is not None and low <= tokens <= high


@pytest.mark.parametrize("how", ["grid", "adaptive"])
@pytest.mark.parametrize("name", NOISES)
def test_the_interval_covers_the_true_crossover_in_92_to_98_of_100_trials(how: str, name: str) -> None:
    readings = [reading for reading, _ in trials(how, name)]
    assert Counter(reading.verdict for reading in readings)["crossover"] >= 0.995 * NUM_TRIALS
    crossings = [reading.crossings[0] for reading in readings if reading.verdict == "crossover"]
    covered = sum(covers(crossing, TRUE_TOKENS) for crossing in crossings) / len(crossings)
    assert 0.92 <= covered <= 0.98


@pytest.mark.parametrize("name", NOISES)
def test_the_value_is_unbiased_whatever_lengths_were_chosen(name: str) -> None:
    values = [r.crossings[0].tokens.value for r, _ in trials("adaptive", name) if r.crossings]
    assert float(np.median(values)) == pytest.approx(TRUE_TOKENS, rel=0.012)


@pytest.mark.parametrize("name", NOISES)
def test_refinement_reaches_ten_percent_in_a_fifth_of_the_time_of_an_even_grid_of_eight_rounds(
    name: str,
) -> None:
    rng = np.random.default_rng(0)
    even_s = sweep_grid(EVEN, TRUTH, NOISES[name], setting=Setting(num_rounds=8), rng=rng).cost_s
    found = trials("adaptive", name)
    widths = [half_width(reading.crossings[0].tokens) for reading, _ in found if reading.crossings]
    assert sum(width is not None and width <= 0.1 for width in widths) >= 0.97 * NUM_TRIALS
    assert max(cost for _, cost in found) <= even_s / 5


# the verdict that is true over 256 … 32768 tokens
VERDICTS = {
    "load_always_wins": Truth((0.1, 5e-5, 4e-9), (0.03, 1e-5)),
    "recompute_always_wins": Truth((0.01, 1e-5, 1e-10), (0.1, 2e-5)),
    "crossover": Truth((0.01, 1e-5, 5e-10), (0.2, 1.5e-5)),  # at 25124
    "multiple_crossings": Truth((0.2, 1e-5, 4e-9), (0.02, 1e-4)),  # at 2219 and 20281
    "inconclusive": Truth((0.02, 2e-5, 0.0), (0.02, 2e-5)),  # the same curve twice
}


@pytest.mark.parametrize("how", ["grid", "adaptive"])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_is_reached_when_it_is_the_truth(how: str, verdict: str) -> None:
    found = Counter(
        decide(RoundCurves(sweep(how, VERDICTS[verdict], Noise(0.03), seed, num_rounds=8).curves)).verdict
        for seed in range(60)
    )
    assert found[verdict] >= 57


@pytest.mark.parametrize(("step_tokens", "num_rounds"), [(64, 12), (16, 24)])
def test_lengths_that_two_rounds_alone_have_measured_do_not_speak_against_a_crossing(
    step_tokens: int, num_rounds: int
) -> None:
    # both arms tend to the same first-token step, so that short lengths tell little; they cross at 25000
    truth = Truth((0.01, 1.5e-5, 2e-10), (0.01, 2e-5))
    setting = Setting(num_rounds=num_rounds, step_tokens=step_tokens, min_tokens=step_tokens)
    found = [
        decide(
            RoundCurves(
                sweep_adaptively(
                    truth, Noise(0.03), setting=setting, rng=np.random.default_rng([seed, 7])
                ).curves
            )
        )
        for seed in range(25)
    ]
    assert Counter(reading.verdict for reading in found)["crossover"] >= 24
    assert sum(bool(reading.crossings) and covers(reading.crossings[0], 25000) for reading in found) >= 21


def test_the_end_of_a_storage_tier_is_found_as_the_second_crossing() -> None:
    # beyond 16384 tokens each token costs 160 times as much: load loses again at 17019
    truth = Truth((0.02, 2e-5, 1e-9), (0.06, 5e-6), 16384, 8e-4)
    (first, second) = truth.crossings(256, 32768)
    found = [decide(RoundCurves(sweep("adaptive", truth, Noise(0.02), seed).curves)) for seed in range(30)]
    assert Counter(reading.verdict for reading in found) == {"multiple_crossings": 30}
    for number, tokens in enumerate((first, second)):
        assert sum(covers(reading.crossings[number], tokens) for reading in found) >= 26


HEAVY = Noise(0.04, common=0.02, slow_rounds=0.06, slow_cases=0.04)  # rounds and cases 2-3 times too slow


def test_two_sweeps_under_heavy_tailed_noise_overlap_nine_times_of_ten() -> None:
    def interval(seed: int) -> tuple[float, float] | None:
        reading = decide(RoundCurves(sweep("adaptive", TRUTH, HEAVY, seed).curves))
        if reading.verdict != "crossover":
            return None
        tokens = reading.crossings[0].tokens
        return None if tokens.low is None or tokens.high is None else (tokens.low, tokens.high)

    pairs = [(interval(2 * k), interval(2 * k + 1)) for k in range(60)]
    clear = [(a, b) for a, b in pairs if a and b]
    assert len(clear) >= 50
    assert sum(a[0] <= b[1] and b[0] <= a[1] for a, b in clear) >= 0.9 * len(clear)


def test_a_budget_is_kept_and_still_answers() -> None:
    setting = Setting(budget_s=20.0, precision=0.001)
    spent = [
        sweep_adaptively(TRUTH, Noise(0.02), setting=setting, rng=np.random.default_rng(seed))
        for seed in range(20)
    ]
    # a round is only begun when its predicted cost fits; noise may overrun that by its own size
    assert max(found.cost_s for found in spent) <= 22.0
    verdicts = Counter(decide(RoundCurves(found.curves)).verdict for found in spent)
    assert verdicts["crossover"] >= 18


@pytest.mark.parametrize("sweeper", [sweep_adaptively])
def test_the_same_seed_gives_the_same_sweep(sweeper: Callable[..., Swept]) -> None:
    first, second = (sweeper(TRUTH, HEAVY, setting=Setting(), rng=np.random.default_rng(4)) for _ in range(2))
    assert first.lengths == second.lengths
    assert first.cost_s == second.cost_s
