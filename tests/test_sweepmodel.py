"""Predicting our own sweeps: left-out lengths, other storages."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from bench.catalog.models.resolve import resolve_model
from bench.predict.bounded import Spread
from bench.predict.calibrate import Anchor, CalibrationError, fit_arm
from bench.predict.prediction import answer
from bench.predict.sweep_model import SweepModel, fit_sweep, usable_points
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples
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
    """Beyond both ends too."""
    points = usable_points(*_read(folder))
    assert len(points) >= 4
    for point in points:
        tokens = point.prefix_tokens
        model = _fit(folder, tokens)
        assert point.recompute_s is not None
        assert point.load_s is not None
        assert model.recompute_s(tokens) == pytest.approx(point.recompute_s.value, rel=0.10)
        assert model.fixed_s(tokens) + model.move_s(tokens) == pytest.approx(point.load_s.value, rel=0.10)


def test_of_twenty_intervals_of_left_out_lengths_nineteen_hold_what_was_measured() -> None:
    held: list[bool] = []
    for folder in (PLAIN, LIMITED):
        for point in usable_points(*_read(folder)):
            tokens, model = point.prefix_tokens, _fit(folder, point.prefix_tokens)
            assert point.recompute_s is not None
            assert point.load_s is not None
            low, high = (model.recompute_s(tokens, pick) for pick in ("low", "high"))
            held.append(low <= point.recompute_s.value <= high)
            low, high = (model.fixed_s(tokens, pick) + model.move_s(tokens, pick) for pick in ("low", "high"))
            held.append(low <= point.load_s.value <= high)
    assert len(held) >= 20
    assert sum(held) >= 0.95 * len(held)


def test_the_docs_say_what_the_left_out_lengths_are_off_by() -> None:
    doc = (Path(__file__).parent.parent / "docs" / "model.md").read_text()
    for folder in (PLAIN, LIMITED):
        for point in usable_points(*_read(folder)):
            tokens, model = point.prefix_tokens, _fit(folder, point.prefix_tokens)
            assert point.recompute_s is not None
            assert point.load_s is not None
            off = (
                model.recompute_s(tokens) / point.recompute_s.value - 1,
                (model.fixed_s(tokens) + model.move_s(tokens)) / point.load_s.value - 1,
            )
            inside = model.measured[0] <= tokens <= model.measured[1]
            how = "between" if inside else "**extrapolated**"
            row = f"| {tokens:,} | {how} | {100 * off[0]:+.1f} % | {100 * off[1]:+.1f} % |"
            assert row in doc


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
    with pytest.raises(CalibrationError, match="2 lengths measured by both arms; predicting needs 3: sweep"):
        _fit(PLAIN, *(point.prefix_tokens for point in usable_points(*_read(PLAIN))[2:]))


def test_a_fit_without_residuals_has_no_interval_and_one_with_them_has() -> None:
    exact = fit_arm({1: 6.0, 2: 11.0, 3: 18.0}, lambda n: (1.0, float(n), float(n * n)))
    assert exact.width is None
    noisy = fit_arm({1: 1.01, 2: 2.0, 3: 2.97, 4: 4.02}, lambda n: (float(n),))
    assert noisy.coefficients == pytest.approx((1.0,), rel=0.01)
    # residuals of about 1 %, three degrees of freedom: t = 3.18
    assert noisy.width == pytest.approx(3.18 * 0.0088, rel=0.05)
    # one coefficient over four times: the leverage of each is a quarter
    assert noisy.bound(2.0, "low", (2.0,)) == pytest.approx(2.0 * (1 - (noisy.width or 0.0) * 1.25**0.5))


def test_an_interval_widens_away_from_the_lengths_that_were_fitted() -> None:
    fit = fit_arm({10: 1.01, 20: 2.0, 30: 2.97, 40: 4.02}, lambda n: (1.0, float(n)))
    amid, short, far = (fit.width_at((1.0, n)) for n in (25.0, 2.0, 4000.0))
    assert 0 < amid < short
    assert amid < far


def test_an_anchor_moves_a_fixed_cost_that_the_times_hardly_tell() -> None:
    times = {100: 10.6, 200: 20.3, 400: 40.1}
    free = fit_arm(times, lambda n: (1.0, float(n)))
    held = fit_arm(times, lambda n: (1.0, float(n)), anchored=Anchor(0, 0.2, noise=0.05, prior=0.1))
    assert free.coefficients[0] > 0.7
    assert 0.2 < held.coefficients[0] < 0.3


def test_below_the_fitted_lengths_the_bounds_hold_no_fixed_cost_and_twice_of_it() -> None:
    fit = fit_arm({100: 11.0, 200: 21.0, 400: 41.0, 800: 81.0}, lambda n: (1.0, n / 10))
    assert fit.width == pytest.approx(0.0, abs=1e-9)
    low, high = (fit.prefill_s(50, (1.0, 5.0), pick) for pick in ("low", "high"))
    assert (low, high) == pytest.approx((5.0, 7.0))
    assert fit.prefill_s(200, (1.0, 20.0), "high") == pytest.approx(21.0)


def test_lengths_without_a_first_token_step_are_not_said_to_be_unmeasured() -> None:
    run, samples = _read(PLAIN)
    none = [replace(sample, outcome=replace(sample.outcome, first_token_s=0.0)) for sample in samples]
    count = len(usable_points(run, samples))
    with pytest.raises(
        CalibrationError,
        match=rf"{count} lengths measured by both arms, but 0 of them with a first-token step, and predicting needs 3: "
        "a simulated load has no such step; sweep a backend that reads",
    ):
        fit_sweep(run, none, resolve_model(run.plan.model).geometry)
