"""Published rows: which are predicted, which are refused and why, and what a broken file says."""

import csv
from pathlib import Path

import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.predict.published import PUBLISHED, Row, RowsError, read_rows
from bench.predict.published_check import check_rows
from bench.report.text.prediction_text import outcome_lines

GOOD = {
    "id": "x",
    "kind": "recompute_only",
    "model": "Llama-3.1-8B",
    "gpu": "H100",
    "n_gpu": "1",
    "precision": "bf16",
    "tokens": "8192",
    "recompute_s": "0.2",
    "load_s": "",
}


def _write(path: Path, *rows: dict[str, str]) -> Path:
    names = dict.fromkeys(name for row in rows for name in row)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(names), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def _reasons(path: Path, **changed: str) -> str:
    rows = read_rows(_write(path / "rows.csv", {**GOOD, **changed}))
    (outcome,) = check_rows(rows, read_devices())
    return "; ".join(outcome.refused)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CG128Ki", "GPU 'Gaudi3' is in no catalogue"),
        ("E_reuse8k", "kind break_even_reuse_pct"),
        ("F_p1", "n_gpu is missing"),
        ("MP4096", "GPU 'H800' is in no catalogue"),
        ("T_3090_nvme", "uncertain reading"),
        ("T_3090_sata", "not the same software path"),
        ("DS128k", "model 'DeepSeek (production)' is not in the catalogue"),
        ("N_7b", "kind per_layer_pair_ms"),
        ("P_64k", "kind sign_only"),
        ("GKE2_5k", "under load"),
    ],
)
def test_rows_that_no_formula_covers_are_refused_with_the_reason(name: str, says: str) -> None:
    outcomes = {one.row.id: one for one in check_rows(read_rows(PUBLISHED), read_devices())}
    assert says in "; ".join(outcomes[name].refused)
    assert outcomes[name].error is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"n_gpu": "8"}, "TP8 leaves"),
        ({"tokens": ""}, "tokens is missing"),
        ({"recompute_s": ""}, "recompute_s is missing"),
        ({"precision": ""}, "precision is missing"),
        ({"precision": "int4"}, "precision 'int4' is not one of"),
        ({"model": "Llama-9"}, "model 'Llama-9' is not in the catalogue"),
        ({"conditions": "mean of 64 clients, under load"}, "under load"),
        ({"conditions": "concurrency 16"}, "under load (concurrency 16)"),
        ({"conditions": "concurrency: 16"}, "under load (concurrency: 16)"),
        ({"conditions": "16 concurrent requests"}, "under load (16 concurrent)"),
        ({"conditions": "64 users, closed loop"}, "under load (64 users)"),
        ({"conditions": "batch size 32"}, "under load (batch size 32)"),
        (
            {"conditions": "prefix cache hit rate 50 %"},
            "only a part of the prefix was reused (hit rate 50 %)",
        ),
        ({"kind": ""}, "kind is missing"),
        (
            {"gpu": "L4", "model": "Llama-3.1-70B"},
            "the weights, 141 GB on each GPU, do not fit into its 24 GB",
        ),
        ({"n_gpu": "64"}, "tensor parallelism 64"),
        ({"kind": "load_only", "load_s": "0.1"}, "the bandwidth of 'the storage' is not stated"),
        ({"derived_kv_bytes_per_token": "99999"}, "KV bytes per token are 99999 in the row and 131072"),
        ({"gpu": "RTX 4090", "n_gpu": "2"}, "the rate between the GPUs is unknown"),
        (
            {"kind": "crossover_point", "crossover_tokens": "900", "load_bw_gbps_decimal": "2"},
            "whether C* or P* was published is not stated",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "-".join(value),
)
def test_a_row_is_refused_with_its_reason(tmp_path: Path, changed: dict[str, str], says: str) -> None:
    assert says in _reasons(tmp_path, **changed)


@pytest.mark.parametrize(
    "conditions", ["single request, concurrency 1", "1 concurrent request", "batch size 1", "batch 1"]
)
def test_one_client_is_no_load(tmp_path: Path, conditions: str) -> None:
    assert _reasons(tmp_path, conditions=conditions) == ""


def test_columns_in_another_order_and_among_others_give_the_same_outcomes(tmp_path: Path) -> None:
    with PUBLISHED.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    mixed = [{"my notes": "x", **{name: row[name] for name in reversed(row)}, "more": ""} for row in rows]
    given = outcome_lines(check_rows(read_rows(_write(tmp_path / "mixed.csv", *mixed)), read_devices()))
    assert given == outcome_lines(check_rows(read_rows(PUBLISHED), read_devices()))
    assert given[-1] == "median error: 2.7 % over 17 rows"


def test_the_bandwidth_of_a_tier_is_read_from_its_column_or_its_name(tmp_path: Path) -> None:
    tier = {
        **GOOD,
        "kind": "load_only",
        "load_s": "0.1",
        "load_tier": "NVMe 4.8 GB/s",
        "load_bw_gbps_decimal": "",
    }
    column = {**tier, "id": "y", "load_bw_gbps_decimal": "2.5"}
    rows = read_rows(_write(tmp_path / "rows.csv", tier, column))
    assert [row.storage_bytes_per_s for row in rows] == [4.8e9, 2.5e9]


def test_fp8_kv_is_told_by_its_bytes_per_token(tmp_path: Path) -> None:
    half = {**GOOD, "kind": "load_only", "load_s": "0.1", "load_tier": "CPU DRAM", "recompute_s": "9"}
    rows = [
        {**half, "id": name, "derived_kv_bytes_per_token": kv}
        for name, kv in (("a", "131072"), ("b", "65536"))
    ]
    both, one = check_rows(read_rows(_write(tmp_path / "rows.csv", *rows)), read_devices())
    assert [compared.quantity for compared in one.compared] == ["load_s"]
    assert one.compared[0].modelled < both.compared[0].modelled


def test_calibrating_rows_are_shown_and_not_counted() -> None:
    rows = read_rows(PUBLISHED)
    lines = outcome_lines(check_rows(rows, read_devices(), calibrate_on=("A10k", "A40k", "A100k")))
    assert sum("calibrates, not counted" in line for line in lines) == 3
    assert lines[-1].endswith("% over 14 rows")
    assert lines[-1].startswith("median error: ")


def test_rows_that_differ_only_in_a_remark_share_a_setup() -> None:
    rows = {row.id: row for row in read_rows(PUBLISHED)}
    assert rows["A5_1k"].setup == rows["A5_100k"].setup
    assert rows["A5_1k"].setup != rows["A1k"].setup


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("A10k", "A40k"), "A10k, A40k have 2 lengths of one setup"),
        (("A10k", "A40k", "A5_1k"), "have 2 lengths of one setup"),
        (("A10k", "nope", "A40k"), "no row has the id 'nope'"),
        (("A10k", "GKE2_5k", "A40k"), "row GKE2_5k cannot be used"),
    ],
    ids=["two", "two-setups", "unknown", "refused"],
)
def test_calibration_on_too_little_is_refused(names: tuple[str, ...], says: str) -> None:
    with pytest.raises(RowsError, match=says):
        check_rows(read_rows(PUBLISHED), read_devices(), calibrate_on=names)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "column id is missing"),
        ("id,kind\na,b\n", "column model is missing"),
        (",".join(GOOD) + "\n", "no row below the header"),
        (",".join(GOOD) + "\na,b\n", "rows.csv:2: not as many cells as the header has"),
        (",".join(GOOD) + '\n"a', "not a CSV"),
        (",".join([*GOOD, "id"]) + "\n" + ",".join([*GOOD.values(), "y"]), "column id is there twice"),
    ],
    ids=[
        *("empty", "columns", "no-rows", "short-row", "quote", "column-twice"),
    ],
)
def test_a_malformed_file_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(RowsError, match=says.replace("(", r"\(")) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"id,kind\xff\xfe")
    with pytest.raises(RowsError, match="not a text file"):
        read_rows(path)


def test_missing_numbers_stay_missing(tmp_path: Path) -> None:
    row: Row = read_rows(_write(tmp_path / "rows.csv", GOOD))[0]
    assert row.number["load_s"] is None
    assert row.number["recompute_s"] == 0.2
