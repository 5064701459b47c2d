"""Published rows: which are predicted, which are refused and why, and what a broken file says."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.predict.published import PUBLISHED, PublishedRow, RowsError, read_rows
from bench.predict.published_check import RowOutcome, check_rows, median_error
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
    row: PublishedRow = read_rows(_write(tmp_path / "rows.csv", GOOD))[0]
    assert row.number["load_s"] is None
    assert row.number["recompute_s"] == 0.2


LOAD = {**GOOD, "kind": "load_only", "load_s": "0.1", "recompute_s": "", "load_tier": "CPU DRAM"}
LENGTHS = ("4096", "8192", "16384")


def _check(folder: Path, *rows: dict[str, str], calibrate_on: Sequence[str] = ()) -> list[RowOutcome]:
    path = folder / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return list(check_rows(read_rows(path), read_devices(), calibrate_on=calibrate_on))


def _loads(prefix: str, seconds_per_token: float, **changed: str) -> list[dict[str, str]]:
    """Loads of three lengths that take 10 ms and so much for each token."""
    return [
        {
            **LOAD,
            "id": f"{prefix}{n}",
            "tokens": n,
            "load_s": f"{0.01 + int(n) * seconds_per_token}",
            **changed,
        }
        for n in LENGTHS
    ]


def _ids(rows: Sequence[dict[str, str]]) -> list[str]:
    return [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tokens": "8k"}, "column tokens: '8k' is not a number"),
        ({"tokens": "many"}, "column tokens: 'many' is not a number"),
        ({"tokens": "n/a"}, "tokens is missing"),
        ({"recompute_s": "~30"}, "column recompute_s: '~30' is not a number"),
        ({"recompute_s": "268 ms"}, "column recompute_s: '268 ms' is not a number"),
        ({"recompute_s": "0"}, "column recompute_s: 0 is not a number above 0"),
        ({"recompute_s": "nan"}, "column recompute_s: nan is not a number above 0"),
        ({"recompute_s": "1e300"}, "column recompute_s: 1e300 is more than"),
        ({"recompute_s": "-"}, "recompute_s is missing"),
        ({"n_gpu": "1.5"}, "column n_gpu: 1.5 is not a whole number above 0"),
        ({"tokens": "1e17"}, "column tokens: 1e17 is more than 2,147,483,648"),
        ({**LOAD, "load_bw_gbps_decimal": "~7"}, "column load_bw_gbps_decimal: '~7' is not a number"),
        ({**LOAD, "derived_kv_bytes_per_token": "1/2"}, "column derived_kv_bytes_per_token: '1/2' is not"),
    ],
    ids=lambda value: "-".join(value.values())[-24:] if isinstance(value, dict) else None,
)
def test_a_cell_that_is_no_number_refuses_its_own_row_alone(
    tmp_path: Path, changed: dict[str, str], says: str
) -> None:
    bad, good = _check(tmp_path, {**GOOD, **changed}, {**GOOD, "id": "y"})
    assert says in "; ".join(bad.refused)
    assert good.error is not None


@pytest.mark.parametrize("cell", ["n/a", "-", "~30", "8k", "268 ms", "0"])
def test_a_column_that_the_kind_does_not_need_does_not_matter(tmp_path: Path, cell: str) -> None:
    unneeded = ("load_s", "load_bw_gbps_decimal", "crossover_tokens", "derived_kv_bytes_per_token")
    (outcome,) = _check(tmp_path, {**GOOD, **dict.fromkeys(unneeded, cell)})
    assert outcome.refused == ()
    assert [one.quantity for one in outcome.compared] == ["recompute_s"]


@pytest.mark.parametrize(
    "changed",
    [
        {"conditions": "batch_size=8"},
        {"system": "GKE tiers, 8 req/s"},
        {"engine": "vLLM, concurrency of 16"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_load_is_looked_for_in_every_column_of_words(tmp_path: Path, changed: dict[str, str]) -> None:
    (outcome,) = _check(tmp_path, {**GOOD, **changed})
    assert "measured under load" in outcome.refused[0]


def test_the_column_of_the_rate_counts_for_memory_too(tmp_path: Path) -> None:
    plain, slow = _check(tmp_path, LOAD, {**LOAD, "id": "y", "load_bw_gbps_decimal": "5"})
    num_bytes = 8191 * 131_072
    assert slow.compared[0].modelled - plain.compared[0].modelled > 0.5 * num_bytes / 5e9


def test_a_tier_that_is_not_certain_is_refused_where_something_was_loaded(tmp_path: Path) -> None:
    load, recompute = _check(
        tmp_path, {**LOAD, "load_tier": "DRAM + SSD"}, {**GOOD, "id": "y", "load_tier": "DRAM + SSD"}
    )
    assert "is not the memory of the host alone" in load.refused[0]
    assert recompute.refused == ()


def test_names_are_said_where_they_were_taken_as_others(tmp_path: Path) -> None:
    same, other = _check(
        tmp_path,
        LOAD,
        {
            **LOAD,
            "id": "y",
            "model": "Llama-3.1-8B-Instruct",
            "gpu": "H100 SXM5",
            "load_tier": "NVMe PM9A3",
        },
    )
    assert same.taken == ()
    assert other.taken[:2] == (
        "GPU 'H100 SXM5' taken as H100 SXM",
        "model 'Llama-3.1-8B-Instruct' taken as meta-llama/Llama-3.1-8B",
    )
    assert other.taken[2].startswith("Samsung PM9A3: 6 GB/s is measured")
    (line,) = [line for line in outcome_lines([other]) if line.startswith("y: ")]
    assert "; supposed: GPU 'H100 SXM5' taken as H100 SXM; supposed: " in line
    stated = {**LOAD, "id": "z", "load_bw_gbps_decimal": "6"}
    assert other.compared[0].modelled == _check(tmp_path, stated)[0].compared[0].modelled


def test_rows_of_one_tier_and_two_rates_are_two_setups(tmp_path: Path) -> None:
    slow = _loads("s", 131_072 / 3e9, load_tier="NVMe", load_bw_gbps_decimal="3")
    fast = _loads("f", 131_072 / 12e9, load_tier="NVMe", load_bw_gbps_decimal="12")
    found = {one.row.id: one for one in _check(tmp_path, *slow, *fast, calibrate_on=_ids(slow))}
    assert all(found[name].calibrated for name in _ids(slow))
    assert not any(found[name].calibrated for name in _ids(fast))
    with pytest.raises(RowsError, match="have 2 lengths of one setup"):
        _check(tmp_path, *slow, *fast, calibrate_on=[*_ids(slow)[:2], *_ids(fast)[2:]])


def test_rows_of_two_kv_dtypes_are_two_setups(tmp_path: Path) -> None:
    half = _loads("a", 131_072 / 3e9, load_tier="NVMe 3 GB/s", derived_kv_bytes_per_token="65536")
    full = _loads("b", 131_072 / 3e9, load_tier="NVMe 3 GB/s", derived_kv_bytes_per_token="131072")
    found = _check(tmp_path, *half, *full, calibrate_on=_ids(full))
    assert [one.calibrated for one in found] == [False] * 3 + [True] * 3


def test_tiers_that_differ_in_brackets_are_two_setups(tmp_path: Path) -> None:
    one = _loads("a", 1e-5, load_tier="NVMe (1.65 GB/s)")
    other = _loads("b", 1e-5, load_tier="NVMe (3 GB/s)")
    found = _check(tmp_path, *one, *other, calibrate_on=_ids(one))
    assert [row.calibrated for row in found] == [True] * 3 + [False] * 3


def test_two_rows_of_one_length_both_calibrate(tmp_path: Path) -> None:
    rows = _loads("a", 2e-5)
    again = {**rows[0], "id": "again", "load_s": f"{1.2 * float(rows[0]['load_s'])}"}
    alone, both, reversed_ = (
        _check(tmp_path, *given, calibrate_on=_ids(given))[0].compared[0]
        for given in (rows, [*rows, again], [rows[0], again, *rows[1:]])
    )
    assert both.modelled == pytest.approx(reversed_.modelled)
    assert alone.modelled < both.modelled < float(again["load_s"])
    assert both.high is not None and alone.high is not None
    assert both.high / both.modelled > alone.high / alone.modelled  # they differ by a fifth
    with pytest.raises(RowsError, match="have 2 lengths of one setup"):
        _check(tmp_path, *rows[:2], again, calibrate_on=_ids([*rows[:2], again]))


def test_a_row_that_fits_nothing_is_refused_by_name_and_not_left_out_of_the_median(tmp_path: Path) -> None:
    rows = _loads("a", 2e-5)
    rate = {**LOAD, "id": "rate", "kind": "required_bandwidth", "load_s": "", "required_bw_gbps_decimal": "9"}
    with pytest.raises(RowsError, match="row rate has no time to calibrate on: required_bandwidth is none"):
        _check(tmp_path, *rows, rate, calibrate_on=[*_ids(rows), "rate"])
    recompute = {**LOAD, "id": "alone", "kind": "recompute_only", "recompute_s": "0.2", "load_s": ""}
    with pytest.raises(RowsError, match=r"row alone \(recompute_only\) calibrates nothing"):
        _check(tmp_path, *rows, recompute, calibrate_on=[*_ids(rows), "alone"])
    counted = _check(tmp_path, *rows, recompute, calibrate_on=_ids(rows))
    assert (median_error(counted)[1], counted[-1].calibrated) == (1, False)


def test_a_calibrated_setup_needs_no_rate_of_its_tier(tmp_path: Path) -> None:
    rows = _loads("a", 131_072 / 3e9, load_tier="our array")
    asked = {**rows[1], "id": "asked", "tokens": "12288", "load_s": f"{0.01 + 12288 * 131_072 / 3e9}"}
    assert "the bandwidth of 'our array' is not stated" in _check(tmp_path, asked)[0].refused[0]
    found = _check(tmp_path, *rows, asked, calibrate_on=_ids(rows))[-1]
    assert found.calibrated
    assert found.error is not None
    assert found.error < 0.02


def test_the_published_file_has_no_cell_that_is_no_number() -> None:
    assert [row.faults for row in read_rows(PUBLISHED) if row.faults] == []


def test_a_row_on_a_gpu_of_unknown_memory_says_that_the_fit_was_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[gpus.new]\nname = "New"\nbf16_flops_per_s = 1e15\n')
    _check(tmp_path, {**GOOD, "gpu": "new", "model": "Llama-3.1-70B"})
    (outcome,) = check_rows(read_rows(tmp_path / "rows.csv"), read_devices(file))
    assert outcome.taken == ("the memory of New is unknown: whether the weights fit was not checked",)
