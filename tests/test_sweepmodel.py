"""Predicting our own sweeps: left-out lengths, other storages."""

from functools import cache
from pathlib import Path

import pytest

from bench.analyse.calibrate import CalibrationError, fit_arm
from bench.analyse.modelled import answer
from bench.analyse.spread import Spread
from bench.analyse.sweepmodel import SweepModel, fit_sweep, usable_points
from bench.catalog.config import resolve_model
from bench.measure.record import RunRecord, Sample, read_run, read_samples
from tests.reference import find_limited, find_plain, read_crossover

PLAIN, LIMITED = find_plain(), find_limited()


@cache
def _read(folder: Path) -> tuple[RunRecord, tuple[Sample, ...]]:
    return read_run(folder), tuple(read_samples(folder)[0])


def _fit(folder: Path, *leave_out: int) -> SweepModel:
    run, samples = _read(folder)
    return fit_sweep(run, samples, resolve_model(run.plan.model).geometry, leave_out=leave_out)


@pytest.mark.parametrize("folder", [PLAIN, LIMITED], ids=["plain", "limited"])
def test_a_length_that_was_left_out_is_predicted_within_10_percent(folder: Path) -> None:
    """All lengths but the shortest: below it the fixed cost decides, which the others hardly see (docs/model.md)."""
    points = usable_points(*_read(folder))
    assert len(points) >= 4
    for point in points[1:]:
        tokens = point.prefix_tokens
        model = _fit(folder, tokens)
        assert point.recompute_s is not None
        assert point.load_s is not None
        assert model.recompute_s(tokens) == pytest.approx(point.recompute_s.value, rel=0.10)
        assert model.fixed_s(tokens) + model.move_s(tokens) == pytest.approx(point.load_s.value, rel=0.10)


def test_the_bounds_of_a_modelled_crossover_hold_the_measured_one() -> None:
    limited = _fit(LIMITED)
    spot = answer(limited, [1024], longest=16_384, measured=limited.measured).spots[0]
    assert spot.verdict == "crossover"
    tokens = spot.crossings[0].tokens
    assert tokens.low is not None
    assert tokens.high is not None
    assert tokens.low < read_crossover(LIMITED).tokens < tokens.high
    assert not spot.crossings[0].extrapolated


def test_another_storage_changes_only_the_time_to_read() -> None:
    plain = _fit(PLAIN)
    other = plain.with_storage("one of 28 MB/s", Spread(28e6))
    assert other.recompute_s(512) == plain.recompute_s(512)
    assert other.fixed_s(512) == plain.fixed_s(512)
    assert other.move_s(512) == pytest.approx(511 * 229_376 / 28e6)
    assert any("everything else as measured" in notice for notice in other.notices)


def test_the_load_under_a_limit_is_predicted_from_the_plain_drive_within_5_percent() -> None:
    limit = _read(LIMITED)[0].plan.limit_bytes_per_s
    assert limit is not None
    other = _fit(PLAIN).with_storage("the limited one", Spread(limit))
    points = [one for one in usable_points(*_read(LIMITED)) if one.load_s is not None]
    assert len(points) >= 4
    for point in points:
        n = point.prefix_tokens
        assert point.load_s is not None
        assert other.fixed_s(n) + other.move_s(n) == pytest.approx(point.load_s.value, rel=0.05)


def test_a_crossing_outside_of_what_was_measured_says_that_it_is_extrapolated() -> None:
    slow = _fit(PLAIN).with_storage("one of 25 MB/s", Spread(25e6))
    shortest, longest = slow.measured
    crossings = answer(slow, [512], longest=8 * longest, measured=slow.measured).spots[0].crossings
    assert crossings
    assert [one.extrapolated for one in crossings] == [
        not shortest <= one.tokens.value <= longest for one in crossings
    ]
    assert any(one.extrapolated for one in crossings)


def test_two_lengths_are_too_few_to_calibrate_on() -> None:
    with pytest.raises(CalibrationError, match="2 lengths measured by both arms; predicting needs 3"):
        _fit(PLAIN, *(point.prefix_tokens for point in usable_points(*_read(PLAIN))[2:]))


def test_a_fit_without_residuals_has_no_interval_and_one_with_them_has() -> None:
    exact = fit_arm({1: 6.0, 2: 11.0, 3: 18.0}, lambda n: (1.0, float(n), float(n * n)))
    assert exact.width is None
    noisy = fit_arm({1: 1.01, 2: 2.0, 3: 2.97, 4: 4.02}, lambda n: (float(n),))
    assert noisy.coefficients == pytest.approx((1.0,), rel=0.01)
    # residuals of about 1 %, three degrees of freedom: t = 3.18
    assert noisy.width == pytest.approx(3.18 * 0.0088, rel=0.05)
    assert noisy.bound(2.0, "low") == pytest.approx(2.0 * (1 - (noisy.width or 0.0)))
