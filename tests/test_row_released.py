"""Published rows as people publish them: converted weights, rates in bits, an id that is there twice, one median."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.predict.published import RowsError, read_rows
from bench.predict.published_check import RowOutcome, check_rows
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
