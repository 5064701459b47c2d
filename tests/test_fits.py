import pytest

from bench.estimate.fits import describe_disagreement, extrapolate, fit_crossings, fit_seconds
from bench.estimate.results import Crossing, Estimate, Fit

LENGTHS = (256, 512, 1024, 2048, 4096)
RECOMPUTE = Fit("recompute", "recompute", (0.02, 2e-5, 4e-9), {})
LOAD = Fit("load", "posix", (0.05, 1e-5), {})
CROSSES_AT = 1760.399  # 4e-9 n^2 + 1e-5 n - 0.03 = 0


def test_exact_curves_are_found_again_with_zero_residuals() -> None:
    fit = fit_seconds("recompute", "r", {n: 0.02 + 2e-5 * n + 4e-9 * n * n for n in LENGTHS})
    assert fit is not None
    assert fit.coefficients == (pytest.approx(0.02), pytest.approx(2e-5), pytest.approx(4e-9))
    assert max(map(abs, fit.residuals.values())) < 1e-9


def test_coefficients_are_never_negative() -> None:
    fit = fit_seconds("load", "l", {n: 1e-5 * n - 0.001 for n in LENGTHS})
    assert fit is not None
    assert min(fit.coefficients) >= 0


def test_residuals_are_relative_to_the_fit() -> None:
    seconds = {n: 0.05 + 1e-5 * n for n in LENGTHS}
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
        "fit_disagrees: the fitted curves cross at 1760 tokens, the measured points at 1500 (1450 to 1550)"
    )
    assert "never cross" in str(describe_disagreement(LOAD, LOAD, differ))
