"""Published rows as people publish them: converted weights, rates in bits, an id that is there twice, one median."""

import csv
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.predict.cost_model import CostModel
from bench.predict.published import PUBLISHED, PublishedRow, RowsError, read_rows
from bench.predict.published_check import RowOutcome, check_rows, count_inside, median_error
from bench.predict.rowmachine import describe_row
from bench.report.text.prediction_text import outcome_lines

ROW = {
    "id": "x",
    "kind": "recompute_only",
    "model": "Qwen/Qwen3-8B",
    "gpu": "H100",
    "n_gpu": "1",
    "precision": "bf16",
    "tokens": "8192",
    "recompute_s": "0.2",
    "load_s": "",
    "load_tier": "",
    "load_bw_gbps_decimal": "",
}
LOAD = {**ROW, "kind": "load_only", "load_s": "0.1", "recompute_s": "", "load_tier": "NVMe 6 GB/s"}


def _check(folder: Path, *rows: dict[str, str], calibrate_on: Sequence[str] = ()) -> list[RowOutcome]:
    path = folder / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROW))
        writer.writeheader()
        writer.writerows(rows)
    return list(check_rows(read_rows(path), read_devices(), calibrate_on=calibrate_on))


def _loads(prefix: str) -> list[dict[str, str]]:
    return [
        {**LOAD, "id": f"{prefix}{n}", "tokens": str(n), "load_s": str(0.02 + n * 147_456 / 6e9)}
        for n in (4096, 8192, 16_384)
    ]


def test_a_model_of_converted_weights_is_that_model_in_the_precision_of_its_name(tmp_path: Path) -> None:
    plain, named = _check(
        tmp_path,
        {**ROW, "precision": "fp8"},
        {**ROW, "id": "y", "model": "Qwen/Qwen3-8B-FP8", "precision": "fp8"},
    )
    assert named.compared == plain.compared
    assert named.taken == ("model 'Qwen/Qwen3-8B-FP8' taken as Qwen/Qwen3-8B",)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"model": "Qwen3-8B-FP8"}, "has weights of fp8 by its name, and precision is 'bf16'"),
        (
            {"model": "Qwen3-8B-FP8", "precision": "fp4"},
            "has weights of fp8 by its name, and precision is 'fp4'",
        ),
        ({"model": "Qwen3-8B-AWQ"}, "'Qwen3-8B-AWQ' has weights of 4 bits, which is not modelled"),
        ({"model": "Qwen3-8B-GPTQ-Int8"}, "has weights of 8-bit integers, which is not modelled"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
def test_weights_that_are_not_those_of_the_row_are_refused(
    tmp_path: Path, changed: dict[str, str], says: str
) -> None:
    (outcome,) = _check(tmp_path, {**ROW, **changed})
    assert says in "; ".join(outcome.refused)
    assert "not in the catalogue" not in "; ".join(outcome.refused)


def test_a_rate_in_bits_is_read_and_said(tmp_path: Path) -> None:
    in_bytes, in_bits = _check(tmp_path, LOAD, {**LOAD, "id": "y", "load_tier": "NVMe 48 Gb/s"})
    assert in_bits.compared == in_bytes.compared
    assert in_bytes.taken == ()
    assert in_bits.taken == ("'NVMe 48 Gb/s' taken as 6 GB/s: it is in bits",)


def test_words_that_may_be_bits_are_refused_as_that(tmp_path: Path) -> None:
    (outcome,) = _check(tmp_path, {**LOAD, "load_tier": "NVMe 48 gb/s"})
    assert "'NVMe 48 gb/s' may be in bits or in bytes" in outcome.refused[0]


def test_an_id_that_is_there_twice_refuses_the_later_row_alone(tmp_path: Path) -> None:
    first, later, other = _check(tmp_path, ROW, {**ROW, "tokens": "4096"}, {**ROW, "id": "y"})
    assert first.error is not None
    assert later.refused == ("id 'x' is there twice, and an earlier row has it",)
    assert other.error is not None


def test_calibration_on_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    rows = _loads("a")
    asked = [row["id"] for row in rows]
    with pytest.raises(RowsError, match="calibrate: id 'a4096' is there twice"):
        _check(tmp_path, *rows, {**ROW, "id": "a4096"}, calibrate_on=asked)
    found = _check(tmp_path, *rows, ROW, ROW, calibrate_on=asked)
    assert [bool(one.refused) for one in found] == [False] * 4 + [True]


def test_the_median_is_said_once_where_no_calibrated_row_counts(tmp_path: Path) -> None:
    rows, asked = _loads("a"), {**LOAD, "id": "asked", "tokens": "12288", "load_s": "0.4"}
    names = [row["id"] for row in rows]

    def medians(*given: dict[str, str]) -> list[str]:
        lines = outcome_lines(_check(tmp_path, *given, calibrate_on=names))
        return [line for line in lines if line.endswith(" rows")]

    assert [line.split(":")[0] for line in medians(*rows, ROW)] == ["median error"]
    assert [line.split(":")[0] for line in medians(*rows, asked)] == ["median error"]
    assert [line.split(":")[0] for line in medians(*rows, asked, ROW)] == [
        "rows of calibrated setups",
        "rows of other setups",
        "median error",
    ]


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
        seconds = row.number["recompute_s"] or math.nan
        shares.append(sum(model.kernel_s(row.tokens)) / (seconds - model.engine.overhead_s))
    assert model.engine.compute_share == pytest.approx(math.sqrt(shares[0] * shares[1]), abs=0.005)


def test_overhead_and_copy_cost_are_the_weighted_least_squares_over_their_four_rows() -> None:
    system, target = [], []
    for name, sigma_s in LOAD_ROWS.items():
        row, model = _described(name)
        assert row.text["uncertainty"] == f"+-{sigma_s:.3f} s"
        assert model.link is not None
        copies = math.ceil((row.tokens - 1) / model.engine.block_tokens)
        streamed = model.layout.bytes_at(row.tokens - 1) / model.link.value
        rest = (row.number["load_s"] or math.nan) - model.step_s(row.tokens) - streamed
        system.append([1 / sigma_s, copies / sigma_s])
        target.append(rest / sigma_s)
    overhead_s, copy_s = np.linalg.lstsq(np.array(system), np.array(target), rcond=None)[0]
    assert model.engine.overhead_s == pytest.approx(overhead_s, abs=0.05e-3)
    assert model.engine.copy_s == pytest.approx(copy_s, abs=0.05e-6)


def test_the_range_of_the_overhead_is_what_either_short_row_alone_would_need() -> None:
    needed = {}
    for name in ("A1k", "A5_1k"):
        row, model = _described(name)
        needed[name] = (
            (row.number["load_s"] or math.nan) - model.step_s(row.tokens) - model.move_s(row.tokens)
        )
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
    rows = tuple(row for row in _rows().values() if row.text["gpu"] == "H100" and row.num_gpus == 1)
    outcomes = check_rows(rows, read_devices(), calibrate_on=("A10k", "A40k", "A100k"))
    error, count = median_error(outcomes)
    assert count == 13
    assert error is not None
    assert error <= 0.05


def test_the_published_rows_ship_with_the_package() -> None:
    assert len(_rows()) == 40
