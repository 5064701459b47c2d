import math

import numpy as np
import pytest

from bench.estimate.crossover import (
    centre_roots,
    decide,
    describe_disagreement,
    extrapolate,
    find_crossing,
    fit_crossings,
    fit_seconds,
)
from bench.estimate.results import Crossing, Estimate, Fit
from bench.estimate.round_curves import RoundCurves, band_of, curve_of

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)


def rounds_around(level: dict[int, float], shifts: list[float]) -> RoundCurves:
    """A band whose rounds are `level` moved up and down as a whole."""
    return band_of([{float(n): value + shift for n, value in level.items()} for shift in shifts])


SHIFTS = [-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04]


def test_a_straight_line_in_log_log_crosses_exactly_where_it_should() -> None:
    level = {n: math.log(n / 1000) for n in LENGTHS}
    reading = decide(rounds_around(level, SHIFTS))
    assert reading.verdict == "crossover"
    (crossing,) = reading.crossings
    assert crossing.tokens.value == pytest.approx(1000, rel=1e-3)
    assert crossing.bracket == (512, 1024)
    assert crossing.load_wins_beyond
    assert not crossing.extrapolated


def test_the_interval_is_that_of_the_per_round_crossings() -> None:
    # D_r(n) = log(n / 1000) + s_r crosses at 1000 exp(-s_r): the interval is the order-statistic one of these
    level = {n: math.log(n / 1000) for n in LENGTHS}
    (crossing,) = decide(rounds_around(level, SHIFTS)).crossings
    weight = 0.9356435643564358
    reach = math.exp((1 - weight) * 0.04 + weight * 0.03)
    assert crossing.tokens.low == pytest.approx(1000 / reach, rel=1e-3)
    assert crossing.tokens.high == pytest.approx(1000 * reach, rel=1e-3)


def test_rounds_that_measured_different_lengths_are_read_together() -> None:
    line = lambda lengths, shift: {float(n): math.log(n / 1000) + shift for n in lengths}  # noqa: E731
    band = band_of(
        [line(LENGTHS, -0.02), line(LENGTHS, 0.02)]
        + [line((768, 1280), shift) for shift in (-0.03, -0.01, 0.0, 0.01, 0.03, 0.015)]
    )
    (crossing,) = decide(band).crossings
    assert crossing.tokens.value == pytest.approx(1000, rel=0.01)
    assert crossing.bracket == (768, 1024)


def test_a_round_whose_own_crossing_lies_outside_its_lengths_still_counts() -> None:
    rounds = [
        curve_of({768.0: -0.2 + s, 1280.0: 0.2 + s}) for s in (-0.3, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03)
    ]
    with_it, without = RoundCurves(rounds), RoundCurves(rounds[1:])
    crossing = find_crossing(with_it, 768, 1280)
    assert crossing.tokens.value > find_crossing(without, 768, 1280).tokens.value


@pytest.mark.parametrize(
    ("advantage", "verdict"), [(0.5, "load_always_wins"), (-0.5, "recompute_always_wins")]
)
def test_one_sign_everywhere_is_an_always_wins(advantage: float, verdict: str) -> None:
    reading = decide(rounds_around(dict.fromkeys(LENGTHS, advantage), SHIFTS))
    assert reading.verdict == verdict
    assert reading.crossings == ()


def test_an_always_wins_needs_every_length_decided() -> None:
    level = {n: 0.5 for n in LENGTHS} | {8192: 0.01}
    reading = decide(rounds_around(level, SHIFTS))
    assert reading.verdict == "inconclusive"
    assert reading.reason == (
        "load wins at 5 of 6 lengths; rounds disagree at 8192; "
        "a crossing may lie beyond the longest length: measure longer prefixes"
    )


def test_where_load_wins_by_ever_more_a_crossing_lies_below_if_anywhere() -> None:
    below = {n: 0.3 * i + 0.01 for i, n in enumerate(LENGTHS)}
    reading = decide(rounds_around(below, SHIFTS))
    assert reading.reason.endswith(
        "a crossing may lie below the shortest length: measure shorter prefixes"
    ), reading.reason


def test_noise_at_a_length_where_load_wins_by_ever_more_calls_for_rounds_and_not_for_length() -> None:
    rounds = [{256.0: 0.5 + s, 512.0: 1.0 + s, 1024.0: 2.0 + 1000 * s} for s in SHIFTS]
    reading = decide(band_of(rounds))
    assert reading.reason == (
        "load wins at 2 of 3 lengths; rounds disagree at 1024; "
        "more rounds would tell (a longer --budget, or a smaller --precision)"
    )


def test_two_sign_changes_are_both_reported_in_order() -> None:
    level = {256: 0.5, 512: 0.3, 1024: -0.3, 2048: -0.3, 4096: 0.3, 8192: 0.6}
    reading = decide(rounds_around(level, SHIFTS))
    assert reading.verdict == "multiple_crossings"
    first, second = reading.crossings
    assert (first.bracket, first.load_wins_beyond) == ((512, 1024), False)
    assert (second.bracket, second.load_wins_beyond) == ((2048, 4096), True)
    assert first.tokens.low is not None and first.tokens.high is not None
    assert first.tokens.low < first.tokens.value < first.tokens.high


def test_identical_curves_are_inconclusive() -> None:
    reading = decide(rounds_around(dict.fromkeys(LENGTHS, 0.0), SHIFTS))
    assert (reading.verdict, reading.reason) == (
        "inconclusive",
        "at no length do the rounds tell which arm is faster",
    )


def test_exactly_equal_arms_without_noise_are_inconclusive() -> None:
    assert decide(rounds_around(dict.fromkeys(LENGTHS, 0.0), [0.0] * 8)).verdict == "inconclusive"


def test_signs_decided_by_chance_among_undecided_ones_are_no_crossing() -> None:
    level = {256: 0.0, 512: 0.05, 1024: 0.0, 2048: -0.05, 4096: 0.001, 8192: -0.001}
    reading = decide(rounds_around(level, SHIFTS))
    assert reading.verdict == "inconclusive"
    assert "no more than chance" in reading.reason


def test_one_length_or_none_is_inconclusive() -> None:
    assert decide(band_of([])).reason == "0 lengths measured by both arms; needs at least 2"
    one = decide(band_of([{256.0: 1.0}] * 8))
    assert one.verdict == "inconclusive"
    assert one.reason == (
        "1 length measured by both arms; needs at least 2 (more --tokens, or a longer --budget); "
        "at 256 tokens load was faster"
    )
    assert decide(band_of([{256.0: -1.0}] * 8)).reason.endswith("at 256 tokens recompute was faster")
    mixed = band_of([{256.0: -1.0}, {256.0: 1.0}] * 4)
    assert decide(mixed).reason.endswith("at 256 tokens no arm was surely faster")
    assert decide(band_of([{256.0: 1.0}])).reason.endswith("at 256 tokens no arm was surely faster")


def test_one_round_is_inconclusive_however_clear() -> None:
    reading = decide(band_of([{256.0: -1.0, 512.0: 1.0}]))
    assert (reading.verdict, reading.reason) == (
        "inconclusive",
        "fewer than 3 rounds measured both arms at any length: no interval",
    )


def test_lengths_of_too_few_rounds_are_not_said_to_disagree() -> None:
    clear = {512.0: 1.0}
    band = band_of([clear | {256.0: 1.0, 1024.0: 1.0}, clear | {256.0: 1.1, 1024.0: 1.1}, clear])
    assert decide(band).reason == (
        "load wins at 1 of 3 lengths; fewer than 3 rounds tell of 256, 1024; "
        "more rounds would tell (a longer --budget, or a smaller --precision)"
    )
    split = band_of([{256.0: 1.0, 512.0: value} for value in (1.0, -1.0)] + [{512.0: 0.1}])
    assert decide(split).reason == "at no length do the rounds tell which arm is faster, too few at 256"


def test_the_median_crosses_zero_where_refinement_should_aim() -> None:
    band = band_of([{256.0: -1.0, 1024.0: 1.0}])
    assert centre_roots(band) == (pytest.approx(512, rel=1e-6),)


def test_a_root_between_lengths_that_no_round_measured_together_is_a_number() -> None:
    band = RoundCurves((curve_of({512.0: -0.1}), curve_of({512.0: -0.1}), curve_of({1024.0: 0.1})))
    assert centre_roots(band) == (pytest.approx(512 * math.sqrt(2), rel=1e-6),)


def test_a_dense_grid_averages_its_noise_instead_of_crossing_many_times() -> None:
    rng = np.random.default_rng(3)
    lengths = np.arange(256, 4097, 64)
    rounds = [
        {
            float(n): math.log(n / 1000) + e
            for n, e in zip(lengths, rng.normal(0, 0.05, len(lengths)), strict=True)
        }
        for _ in range(8)
    ]
    (crossing,) = decide(band_of(rounds)).crossings
    assert crossing.tokens.low is not None and crossing.tokens.high is not None
    assert 960 < crossing.tokens.low < 1000 < crossing.tokens.high < 1040


def _rounds_of(levels: dict[int, float], nums: dict[int, int]) -> RoundCurves:
    """A band whose round r has those lengths of `levels` that more than r rounds measured, with a little noise."""
    return band_of(
        [
            {
                float(n): value + 0.02 * (-1) ** (number + n // 64)
                for n, value in levels.items()
                if number < nums[n]
            }
            for number in range(max(nums.values()))
        ]
    )


def test_lengths_of_too_few_rounds_neither_agree_nor_disagree_but_are_asked_for_where_they_decide() -> None:
    levels = {64: -0.01, 128: -0.01, 256: -0.015, 512: -0.015, 8192: -0.5, 16384: -0.3, 32768: 0.4}
    few = {64: 2, 128: 2, 256: 2, 512: 2, 8192: 8, 16384: 8, 32768: 8}
    reading = decide(_rounds_of(levels, few))
    assert (reading.verdict, reading.doubts) == ("crossover", (64, 128, 256, 512))
    disagree = decide(_rounds_of(levels, dict.fromkeys(levels, 8)))
    assert disagree.reason == "rounds disagree at 4 lengths and agree at 3: no more than chance gives"
    assert disagree.doubts == (64, 128, 256, 512)
    assert disagree.opposite == reading.opposite == ()  # smaller than their neighbour's, and of the same sign
    other = decide(_rounds_of({**levels, 64: 0.01}, dict.fromkeys(levels, 8)))
    assert other.opposite == (64,)
    decided = decide(_rounds_of({**levels, 256: -0.2, 512: -0.2}, dict.fromkeys(levels, 8)))
    assert (decided.verdict, decided.doubts) == ("crossover", ())


LENGTHS_FITS = (256, 512, 1024, 2048, 4096)
RECOMPUTE = Fit("recompute", "recompute", (0.02, 2e-5, 4e-9), {})
LOAD = Fit("load", "posix", (0.05, 1e-5), {})
CROSSES_AT = 1760.399  # 4e-9 n^2 + 1e-5 n - 0.03 = 0


def test_exact_curves_are_found_again_with_zero_residuals() -> None:
    fit = fit_seconds("recompute", "r", {n: 0.02 + 2e-5 * n + 4e-9 * n * n for n in LENGTHS_FITS})
    assert fit is not None
    assert fit.coefficients == (pytest.approx(0.02), pytest.approx(2e-5), pytest.approx(4e-9))
    assert max(map(abs, fit.residuals.values())) < 1e-9


def test_coefficients_are_never_negative() -> None:
    fit = fit_seconds("load", "l", {n: 1e-5 * n - 0.001 for n in LENGTHS_FITS})
    assert fit is not None
    assert min(fit.coefficients) >= 0


def test_residuals_are_relative_to_the_fit() -> None:
    seconds = {n: 0.05 + 1e-5 * n for n in LENGTHS_FITS}
    seconds[4096] *= 1.5
    fit = fit_seconds("load", "l", seconds)
    assert fit is not None
    a, b = fit.coefficients
    assert fit.residuals[4096] == pytest.approx(seconds[4096] / (a + b * 4096) - 1)
    assert fit.residuals[4096] > 0.1


def test_fewer_lengths_than_coefficients_have_no_fit() -> None:
    assert fit_seconds("recompute", "r", {256: 1.0, 512: 2.0}) is None
    assert fit_seconds("load", "l", {256: 1.0}) is None


def test_fitted_curves_cross_at_the_root_of_their_difference() -> None:
    assert fit_crossings(RECOMPUTE, LOAD) == pytest.approx([CROSSES_AT], rel=1e-4)
    assert len(fit_crossings(LOAD, LOAD)) == 0


def test_a_crossing_beyond_the_measured_range_is_marked_as_extrapolated() -> None:
    crossing = extrapolate(RECOMPUTE, LOAD, (128, 1024))
    assert crossing is not None
    assert crossing.extrapolated
    assert crossing.load_wins_beyond
    assert crossing.tokens == Estimate(pytest.approx(CROSSES_AT, rel=1e-4))
    assert crossing.bracket == (1024, 1024)


def test_fits_are_not_followed_more_than_four_times_beyond_the_range() -> None:
    assert extrapolate(RECOMPUTE, LOAD, (64, 256)) is None
    assert extrapolate(RECOMPUTE, LOAD, (256, 4096)) is None


def test_a_fit_that_crosses_outside_the_interval_is_noticed() -> None:
    agree = Crossing(Estimate(1760.0, 1700.0, 1800.0), (1024, 2048), True)
    differ = Crossing(Estimate(1500.0, 1450.0, 1550.0), (1024, 2048), True)
    assert describe_disagreement(RECOMPUTE, LOAD, agree) is None
    assert describe_disagreement(RECOMPUTE, LOAD, differ) == (
        "the fitted curves cross at 1760 tokens, the measured points at 1500 (1450 to 1550)"
    )
    assert "never cross" in str(describe_disagreement(LOAD, LOAD, differ))
