"""Predicting our own sweeps: left-out lengths, other storages."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import resolve_model
from bench.estimate.analysis import analyse
from bench.estimate.crossover import format_factor
from bench.estimate.results import Analysis
from bench.predict.bounded import Bounded
from bench.predict.calibrate import Anchor, CalibrationError, fit_arm
from bench.predict.curve import MeasuredCurve
from bench.predict.prediction import answer
from bench.predict.sweep_model import SweepModel, extrapolating_model, fit_sweep, usable_points
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples
from bench.reuse.prices import prices_of_sweep
from bench.sizing.demand import find_demand
from bench.sizing.size_scenario import SweepSource
from bench.sizing.throughput import read_basis, read_throughput, recompute_curve
from tests.helpers.commands import ROOT
from tests.helpers.scenarios import make_scenario, write_scenario
from tests.helpers.sweeps import find_limited, find_plain, read_crossover
from tests.helpers.tier_sweeps import Way, make_tier_run, make_tier_samples, write_sweep

PLAIN, LIMITED = find_plain(), find_limited()


@cache
def _read(folder: Path) -> tuple[RunRecord, tuple[Sample, ...]]:
    return read_run(folder), tuple(read_samples(folder)[0])


def _fit(folder: Path, *drop_series: int) -> SweepModel:
    run, samples = _read(folder)
    return fit_sweep(run, samples, resolve_model(run.plan.model).geometry, drop_series=drop_series)


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
        assert model.fixed_s(tokens) + model.transfer_s(tokens) == pytest.approx(point.load_s.value, rel=0.10)


def test_of_twenty_intervals_of_left_out_lengths_nineteen_hold_what_was_measured() -> None:
    held: list[bool] = []
    for folder in (PLAIN, LIMITED):
        for point in usable_points(*_read(folder)):
            tokens, model = point.prefix_tokens, _fit(folder, point.prefix_tokens)
            assert point.recompute_s is not None
            assert point.load_s is not None
            low, high = (model.recompute_s(tokens, pick) for pick in ("low", "high"))
            held.append(low <= point.recompute_s.value <= high)
            low, high = (
                model.fixed_s(tokens, pick) + model.transfer_s(tokens, pick) for pick in ("low", "high")
            )
            held.append(low <= point.load_s.value <= high)
    assert len(held) >= 20
    assert sum(held) >= 0.95 * len(held)


def test_the_docs_say_what_the_left_out_lengths_are_off_by() -> None:
    doc = (ROOT / "docs" / "model.md").read_text()
    for folder in (PLAIN, LIMITED):
        for point in usable_points(*_read(folder)):
            tokens, model = point.prefix_tokens, _fit(folder, point.prefix_tokens)
            assert point.recompute_s is not None
            assert point.load_s is not None
            off = (
                model.recompute_s(tokens) / point.recompute_s.value - 1,
                (model.fixed_s(tokens) + model.transfer_s(tokens)) / point.load_s.value - 1,
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
    other = plain.with_storage("one of 28 MB/s", Bounded(28e6))
    assert other.recompute_s(512) == plain.recompute_s(512)
    assert other.fixed_s(512) == plain.fixed_s(512)
    assert other.transfer_s(512) == pytest.approx(511 * 229_376 / 28e6)
    assert any("everything else as measured" in notice for notice in other.notices)


def test_the_load_under_a_limit_is_predicted_from_the_plain_drive_within_5_percent() -> None:
    limit = _read(LIMITED)[0].plan.limit_bytes_per_s
    assert limit is not None
    other = _fit(PLAIN).with_storage("the limited one", Bounded(limit))
    points = [one for one in usable_points(*_read(LIMITED)) if one.load_s is not None]
    assert len(points) >= 4
    for point in points:
        n = point.prefix_tokens
        assert point.load_s is not None
        assert other.fixed_s(n) + other.transfer_s(n) == pytest.approx(point.load_s.value, rel=0.05)


def test_a_crossing_outside_of_what_was_measured_says_that_it_is_extrapolated() -> None:
    slow = _fit(PLAIN).with_storage("one of 25 MB/s", Bounded(25e6))
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


SWEEP = find_plain()


def _fitted() -> tuple[RunRecord, Analysis, SweepModel]:
    run, (samples, _) = read_run(SWEEP), read_samples(SWEEP)
    model, doubt = extrapolating_model(run, samples)
    assert model is not None and doubt == ""
    return run, analyse(run, samples), model


def test_beyond_the_measured_lengths_size_and_reuse_say_what_predict_says() -> None:
    run, analysis, model = _fitted()
    far = 40 * model.measured[1]
    assert recompute_curve(analysis.points, "here", model).at(far) == model.recompute_s(far)
    curves = prices_of_sweep(run, analysis, series=None, source="here", beyond=model).curves
    at = np.array([float(far)])
    assert curves.recompute_s(at)[0] == model.recompute_s(far)
    assert curves.load_s(at)[0] == pytest.approx(model.fixed_s(far) + model.transfer_s(far), rel=1e-12)
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
    basis = read_basis(SweepSource(sweep=Path(SWEEP)), read_devices(None))
    demand = find_demand([(far, 0)], basis.cache, basis.work, requests_per_s=1.0)
    found = read_throughput(basis, demand, [(far, 0)])
    assert found.tokens_per_s == pytest.approx(far / model.recompute_s(far), rel=1e-12)
    assert found.bounds_tokens_per_s == pytest.approx(
        (far / model.recompute_s(far, "high"), far / model.recompute_s(far, "low")), rel=1e-12
    )
    assert f"{far:,} tokens are 40 times the longest length measured" in found.extrapolated
    near = [(model.measured[1], 0)]
    inside = find_demand(near, basis.cache, basis.work, requests_per_s=1.0)
    assert read_throughput(basis, inside, near).bounds_tokens_per_s is None


def test_the_factor_names_both_ends() -> None:
    said = "2,048 tokens are 2 times the longest length measured; 32 tokens are 1/2 of the shortest length measured"
    assert format_factor([32, 100, 2048], (64, 1024)) == said
    assert format_factor([64, 1024], (64, 1024)) is None


WAY = Way("posix", bytes_per_s=2e9, fixed_s=0.02)
GEOMETRY = resolve_model("qwen3-8b").geometry
RANK_TOKEN_BYTES = GEOMETRY.layout("bfloat16", 2).bytes_per_token
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    run = make_tier_run([WAY], tensor_parallel=2)
    return write_sweep(tmp_path / "run", run, make_tier_samples([WAY]))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_verb(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run_verb


def test_the_model_of_a_sweep_moves_the_bytes_of_all_ranks() -> None:
    samples = make_tier_samples([WAY])
    one, two = (fit_sweep(make_tier_run([WAY], tensor_parallel=n), samples, GEOMETRY) for n in (1, 2))
    assert two.num_bytes(1001) == 2 * 1000 * RANK_TOKEN_BYTES == one.num_bytes(1001)
    assert "(bfloat16, 2 ranks)" in two.label
    other = two.with_storage("another", Bounded(2e9))
    assert other.transfer_s(1001) == pytest.approx(2 * 1000 * RANK_TOKEN_BYTES / 2e9)
    assert two.transfer_s(4000) == pytest.approx(
        one.transfer_s(4000)
    )  # as measured, however its bytes are counted


def test_ranks_that_share_a_head_each_move_theirs() -> None:
    samples = make_tier_samples([WAY])
    sixteen = fit_sweep(make_tier_run([WAY], tensor_parallel=16), samples, GEOMETRY)
    assert sixteen.num_bytes(1001) == 2 * 1000 * GEOMETRY.layout("bfloat16").bytes_per_token


def test_predict_prints_the_bytes_of_both_ranks(run: Run, sweep: Path) -> None:
    code, out, _ = run("predict", "sweep", sweep, "--bandwidth", "2GB/s", "--tokens", "1001", "--json")
    (point,) = json.loads(out)["answers"][0]["points"]
    assert (code, point["num_bytes"]) == (0, 2 * 1000 * RANK_TOKEN_BYTES)


ASKED = {"per_s": 20, "input_tokens": 4000, "hit_ratio": 0.5}


def _scenario(folder: Path, **throughput: object) -> Path:
    return write_scenario(folder / "size.toml", make_scenario(requests=ASKED, throughput=throughput))


def test_size_counts_the_gpus_and_the_stores_of_all_ranks(run: Run, sweep: Path, tmp_path: Path) -> None:
    code, out, _ = run("size", _scenario(tmp_path), "--from", sweep, "--json")
    tables = json.loads(out)
    gpus = {row["quantity"]: row["value"] for row in tables["gpus"]}
    storage = {row["quantity"]: row["value"] for row in tables["storage"]}
    assert (code, gpus["GPUs measured"]) == (0, 2)
    assert gpus["GPUs without reuse, unrounded"] == pytest.approx(20 * 0.4 * 2, rel=0.01)
    assert storage["KV of a stored token"] == 2 * RANK_TOKEN_BYTES
    same = _scenario(tmp_path, sweep=str(sweep), tp=2, measured_gpus=2)
    assert run("size", same, "--json")[1] == out


@pytest.mark.parametrize("field", ["tp", "measured_gpus"])
def test_size_refuses_other_ranks_than_those_of_the_sweep(
    run: Run, sweep: Path, tmp_path: Path, field: str
) -> None:
    code, out, err = run("size", _scenario(tmp_path, sweep=str(sweep), **{field: 1}))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"throughput.{field} 1 is not what {sweep} was measured with" in err


def test_size_takes_as_many_measured_gpus_as_ranks(run: Run, tmp_path: Path) -> None:
    path = _scenario(tmp_path, model="llama-3.3-70b", tokens_per_s=12_000, tp=4)
    gpus = {row["quantity"]: row["value"] for row in json.loads(run("size", path, "--json")[1])["gpus"]}
    assert gpus["GPUs measured"] == 4


def test_reuse_counts_the_gpu_seconds_of_all_ranks(run: Run, sweep: Path, tmp_path: Path) -> None:
    made = ("reuse", "--generate", "users=2,rounds=2,history=2000", "--capacity", "1e6", "--from", sweep)
    table = tmp_path / "reuse.csv"
    code, _, err = run(*made, "--csv", table)
    assert code in {0, 3}, err
    names, values = (line.split(",") for line in table.read_text().splitlines()[:2])
    row = dict(zip(names, values, strict=True))
    assert float(row["free_hit_gpu_saved_s"]) == pytest.approx(2 * float(row["free_hit_saved_s"]))
    code, _, err = run(*made, "--gpus", "1")
    assert (code, "--gpus 1 is not what" in err) == (2, True)
