"""Beyond the lengths that a sweep measured, `size`, `reuse` and `predict` use one calibrated model."""

from pathlib import Path

import numpy as np
import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.estimate.analysis import analyse
from bench.estimate.fits import say_factor
from bench.estimate.results import Analysis
from bench.predict.curve import MeasuredCurve
from bench.predict.sweep_model import SweepModel, fit_beyond
from bench.record.run import RunRecord, read_run
from bench.record.samples_csv import read_samples
from bench.reuse.prices import prices_of_sweep
from bench.sizing.demand import find_demand
from bench.sizing.size_basis import read_basis, read_throughput
from bench.sizing.throughput import recompute_curve
from tests.reference import find_plain

SWEEP = find_plain()


def _fitted() -> tuple[RunRecord, Analysis, SweepModel]:
    run, (samples, _) = read_run(SWEEP), read_samples(SWEEP)
    model, doubt = fit_beyond(run, samples)
    assert model is not None and doubt == ""
    return run, analyse(run, samples), model


def test_beyond_the_measured_lengths_size_and_reuse_say_what_predict_says() -> None:
    run, analysis, model = _fitted()
    far = 40 * model.measured[1]
    assert recompute_curve(analysis.points, "here", model).at(far) == model.recompute_s(far)
    curves = prices_of_sweep(run, analysis, series=None, source="here", beyond=model).curves
    at = np.array([float(far)])
    assert curves.recompute_s(at)[0] == model.recompute_s(far)
    assert curves.load_s(at)[0] == pytest.approx(model.fixed_s(far) + model.move_s(far), rel=1e-12)
    assert curves.first_token_s(at)[0] == pytest.approx(model.step_s(far), rel=1e-12)


def test_inside_the_measured_lengths_the_points_stay_as_measured() -> None:
    _, analysis, model = _fitted()
    curve = recompute_curve(analysis.points, "here", model)
    for point in analysis.points:
        assert point.recompute_s is not None
        assert curve.at(point.prefix_tokens) == pytest.approx(point.recompute_s.value, rel=1e-12)


def test_a_model_off_at_the_last_point_never_makes_a_longer_prompt_cheaper() -> None:
    curve = MeasuredCurve((100, 200), (1.0, 2.0), lambda tokens: tokens * 0.009)
    found = curve(np.array([0.0, 50.0, 100.0, 200.0, 201.0, 1000.0]))
    assert found.tolist() == pytest.approx([0.0, 0.45, 1.0, 2.0, 2.0, 9.0])


def test_an_extrapolated_throughput_has_the_bounds_of_the_model_and_says_the_factor() -> None:
    _, _, model = _fitted()
    far = 40 * model.measured[1]
    basis = read_basis(
        None, Path(SWEEP), throughput=None, machine=None, devices=read_devices(None), kv_dtype=None, tp=None
    )
    demand = find_demand([(far, 0)], basis.cache, basis.work, requests_per_s=1.0)
    found = read_throughput(basis, demand, [(far, 0)], given=None)
    assert found.tokens_per_s == pytest.approx(far / model.recompute_s(far), rel=1e-12)
    assert found.bounds_tokens_per_s == pytest.approx(
        (far / model.recompute_s(far, "high"), far / model.recompute_s(far, "low")), rel=1e-12
    )
    assert f"{far:,} tokens are 40 times the longest length measured" in found.extrapolated
    near = [(model.measured[1], 0)]
    inside = find_demand(near, basis.cache, basis.work, requests_per_s=1.0)
    assert read_throughput(basis, inside, near, given=None).bounds_tokens_per_s is None


def test_the_factor_names_both_ends() -> None:
    said = "2,048 tokens are 2 times the longest length measured; 32 tokens are 1/2 of the shortest length measured"
    assert say_factor([32, 100, 2048], (64, 1024)) == said
    assert say_factor([64, 1024], (64, 1024)) is None
