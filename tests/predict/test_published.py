"""Published rows: the engine's constants are fitted to them again, and the modelled errors are recorded."""

import math
from functools import cache

import numpy as np
import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import read_catalogue
from bench.predict.cost_model import CostModel
from bench.predict.published import PUBLISHED, PublishedRow, read_rows
from bench.predict.published_check import check_rows, count_inside, describe_row, median_error

SHARE_ROWS = ("A10k", "A100k")
LOAD_ROWS = {"A1k": 0.005, "A100k": 0.010, "A5_1k": 0.002, "A5_100k": 0.002}  # seconds, column uncertainty


@cache
def _rows() -> dict[str, PublishedRow]:
    return {row.id: row for row in read_rows(PUBLISHED)}


def _described(name: str) -> tuple[PublishedRow, CostModel]:
    row = _rows()[name]
    return row, describe_row(row, read_devices())


def test_the_compute_share_is_the_geometric_mean_over_its_two_rows() -> None:
    shares = []
    for name in SHARE_ROWS:
        row, model = _described(name)
        seconds = row.recompute_s
        shares.append(sum(model.kernel_s(row.tokens)) / (seconds - model.engine.overhead_s))
    assert model.engine.compute_share == pytest.approx(math.sqrt(shares[0] * shares[1]), abs=0.005)


def test_overhead_and_copy_cost_are_the_weighted_least_squares_over_their_four_rows() -> None:
    system, target = [], []
    for name, sigma_s in LOAD_ROWS.items():
        row, model = _described(name)
        assert row.uncertainty == f"+-{sigma_s:.3f} s"
        assert model.link is not None
        copies = math.ceil((row.tokens - 1) / model.engine.block_tokens)
        streamed = model.layout.bytes_at(row.tokens - 1) / model.link.value
        rest = row.load_s - model.step_s(row.tokens) - streamed
        system.append([1 / sigma_s, copies / sigma_s])
        target.append(rest / sigma_s)
    overhead_s, copy_s = np.linalg.lstsq(np.array(system), np.array(target), rcond=None)[0]
    assert model.engine.overhead_s == pytest.approx(overhead_s, abs=0.05e-3)
    assert model.engine.copy_s == pytest.approx(copy_s, abs=0.05e-6)


def test_the_range_of_the_overhead_is_what_either_short_row_alone_would_need() -> None:
    needed = {}
    for name in ("A1k", "A5_1k"):
        row, model = _described(name)
        needed[name] = row.load_s - model.step_s(row.tokens) - model.transfer_s(row.tokens)
    low, high = _described("A1k")[1].engine.overhead_range_s or (0.0, 0.0)
    assert low == pytest.approx(math.floor(needed["A5_1k"] * 1e4) / 1e4)
    assert high == pytest.approx(math.ceil(needed["A1k"] * 1e4) / 1e4)


def test_every_published_number_lies_within_its_modelled_bounds() -> None:
    """Two of them, A1k and A5_1k, by how the range was made; E1Ki, as short, was fitted by nothing."""
    outcomes = check_rows(tuple(_rows().values()), read_devices())
    assert count_inside(outcomes) == (20, 20)
    short = {one.row.id: one.compared[0] for one in outcomes if one.row.id in {"A1k", "A5_1k", "E1Ki"}}
    assert all(one.wide for one in short.values())
    assert short["E1Ki"].high == math.inf


def test_rows_that_no_constant_was_fitted_to_are_predicted_within_15_percent_in_the_median() -> None:
    fitted = {*SHARE_ROWS, *LOAD_ROWS}
    outcomes = [
        one for one in check_rows(tuple(_rows().values()), read_devices()) if one.row.id not in fitted
    ]
    error, count = median_error(outcomes)
    assert count == 12  # A40k, A5_10k to A5_90k, E1Ki and CL_rate
    assert error is not None
    assert error <= 0.15


def test_single_h100_rows_are_within_5_percent_in_the_median_after_calibration_on_three_lengths() -> None:
    rows = tuple(row for row in _rows().values() if row.gpu == "H100" and row.tp == 1)
    outcomes = check_rows(rows, read_devices(), calibrate_on=("A10k", "A40k", "A100k"))
    error, count = median_error(outcomes)
    assert count == 13
    assert error is not None
    assert error <= 0.05


def test_the_published_rows_ship_with_the_package() -> None:
    assert len(_rows()) == 40


def test_published_rows_of_dense_models_are_dense_in_the_catalogue() -> None:
    models = read_catalogue()
    dense = {row.model_key for row in _rows().values() if row.model_key and row.model_kind == "dense"}
    assert all(models[key].geometry.params_active == models[key].geometry.params_total for key in dense)
