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
    "model_key": "llama-3.1-8b",
    "gpu": "H100",
    "tp": "1",
    "weight_dtype": "bf16",
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
        ("CG128Ki", "Gaudi3"),
        ("F_p1", "tp"),
        ("MP4096", "H800"),
        ("E_reuse8k", "hit ratio"),
        ("T_3090_nvme", "uncertain"),
        ("DS128k", "under load"),
        ("N_7b", "one layer"),
    ],
)
def test_rows_that_no_formula_covers_are_refused_with_the_reason(name: str, says: str) -> None:
    outcomes = {one.row.id: one for one in check_rows(read_rows(PUBLISHED), read_devices())}
    assert says in "; ".join(outcomes[name].refused)
    assert outcomes[name].error is None


LOAD = {**GOOD, "kind": "load_only", "load_s": "0.1", "recompute_s": "", "storage": "memory"}
CROSSOVER = {"kind": "crossover_point", "crossover_tokens": "900", "storage_bytes_per_s": "2e9"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tp": "8"}, "TP8"),
        ({"tokens": ""}, "tokens"),
        ({"recompute_s": ""}, "recompute_s"),
        ({"weight_dtype": ""}, "weight_dtype"),
        ({"weight_dtype": "int4"}, "int4"),
        ({"model_key": "llama-9"}, "llama-9"),
        ({"gpu": "H1000"}, "H1000"),
        ({"not_comparable": "64 clients"}, "64 clients"),
        ({"cached_tokens": "4096"}, "4096 of 8192 tokens"),
        ({"kind": ""}, "kind ''"),
        ({"gpu": "L4", "model_key": "llama-3.1-70b"}, "141 GB"),
        ({"tp": "64"}, "tensor parallelism 64"),
        ({**LOAD, "storage": "ssd"}, "storage_bytes_per_s"),
        ({**LOAD, "storage": "none"}, "storage_bytes_per_s"),
        ({**LOAD, "storage_name": "pm9a4"}, "pm9a4"),
        ({"kv_bytes_per_token": "99999"}, "131072"),
        ({"kv_bytes_per_token": "131072", "kv_dtype": "fp8"}, "65536"),
        ({"gpu": "RTX 4090", "tp": "2"}, "the rate between the GPUs"),
        (CROSSOVER, "crossover_kind"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "-".join(value),
)
def test_a_row_is_refused_with_its_reason(tmp_path: Path, changed: dict[str, str], says: str) -> None:
    assert says in _reasons(tmp_path, **changed)


def test_c_and_p_are_compared_with_the_published_crossover_of_their_kind(tmp_path: Path) -> None:
    both = [{**GOOD, **CROSSOVER, "id": kind, "crossover_kind": kind} for kind in ("whole", "marginal")]
    whole, marginal = (outcome.compared[0] for outcome in _check(tmp_path, *both))
    assert (whole.quantity, marginal.quantity) == ("C* tokens", "P* tokens")
    assert whole.modelled > 1.5 * marginal.modelled


def test_columns_in_another_order_and_among_others_give_the_same_outcomes(tmp_path: Path) -> None:
    with PUBLISHED.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    mixed = [{"my notes": "x", **{name: row[name] for name in reversed(row)}, "more": ""} for row in rows]
    given = outcome_lines(check_rows(read_rows(_write(tmp_path / "mixed.csv", *mixed)), read_devices()))
    assert given == outcome_lines(check_rows(read_rows(PUBLISHED), read_devices()))
    assert given[-1] == "median error: 2.7 % over 17 rows"


def test_fp8_kv_is_half_the_load(tmp_path: Path) -> None:
    both, one = _check(
        tmp_path,
        {**LOAD, "storage_bytes_per_s": "1e9"},
        {**LOAD, "id": "y", "kv_dtype": "fp8", "kv_bytes_per_token": "65536", "storage_bytes_per_s": "1e9"},
    )
    assert [compared.quantity for compared in one.compared] == ["load_s"]
    assert both.compared[0].modelled - one.compared[0].modelled > 0.4 * 8191 * 131_072 / 1e9


def test_calibrating_rows_are_shown_and_not_counted() -> None:
    rows = read_rows(PUBLISHED)
    lines = outcome_lines(check_rows(rows, read_devices(), calibrate_on=("A10k", "A40k", "A100k")))
    assert sum("calibrates, not counted" in line for line in lines) == 3
    assert lines[-1].endswith("% over 14 rows")
    assert lines[-1].startswith("median error: ")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("A10k", "A40k"), "2 lengths"),
        (("A10k", "A40k", "A5_1k"), "2 lengths"),
        (("A10k", "nope", "A40k"), "nope"),
        (("A10k", "GKE2_5k", "A40k"), "GKE2_5k"),
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
        ("id,kind\na,b\n", "column model_key is missing"),
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
    assert row.load_s is None
    assert row.recompute_s == 0.2


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
        ({"tokens": "8k"}, "column tokens: '8k'"),
        ({"tokens": "n/a"}, "tokens is missing"),
        ({"recompute_s": "~30"}, "column recompute_s: '~30'"),
        ({"recompute_s": "268 ms"}, "column recompute_s: '268 ms'"),
        ({"recompute_s": "0"}, "column recompute_s: '0'"),
        ({"recompute_s": "nan"}, "column recompute_s: 'nan'"),
        ({"recompute_s": "1e300"}, "column recompute_s: '1e300'"),
        ({"recompute_s": "-"}, "recompute_s is missing"),
        ({"tp": "1.5"}, "column tp: '1.5'"),
        ({"tokens": "99999999999999999"}, "column tokens: '99999999999999999'"),
        ({"storage": "fast"}, "column storage: 'fast'"),
        ({**LOAD, "storage_bytes_per_s": "7 GB/s"}, "column storage_bytes_per_s: '7 GB/s'"),
        ({**LOAD, "kv_bytes_per_token": "1/2"}, "column kv_bytes_per_token: '1/2'"),
    ],
    ids=lambda value: "-".join(value.values())[-24:] if isinstance(value, dict) else None,
)
def test_a_cell_that_is_no_number_refuses_its_own_row_alone(
    tmp_path: Path, changed: dict[str, str], says: str
) -> None:
    bad, good = _check(tmp_path, {**GOOD, **changed}, {**GOOD, "id": "y"})
    assert says in "; ".join(bad.refused)
    assert good.error is not None


def test_an_id_that_is_there_twice_refuses_the_later_row_alone(tmp_path: Path) -> None:
    first, later, other = _check(tmp_path, GOOD, {**GOOD, "tokens": "4096"}, {**GOOD, "id": "y"})
    assert first.error is not None
    assert "'x'" in later.refused[0]
    assert other.error is not None


def test_calibration_on_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    rows = _loads("a", 2e-5)
    with pytest.raises(RowsError, match="a4096"):
        _check(tmp_path, *rows, {**GOOD, "id": "a4096"}, calibrate_on=_ids(rows))
    found = _check(tmp_path, *rows, GOOD, GOOD, calibrate_on=_ids(rows))
    assert [bool(one.refused) for one in found] == [False] * 4 + [True]


def test_the_median_is_printed_once_where_no_calibrated_row_counts(tmp_path: Path) -> None:
    rows, asked = _loads("a", 2e-5), {**LOAD, "id": "asked", "tokens": "12288", "load_s": "0.4"}

    def medians(*given: dict[str, str]) -> int:
        lines = outcome_lines(_check(tmp_path, *given, calibrate_on=_ids(rows)))
        return sum(line.endswith(" rows") for line in lines)

    assert [medians(*rows, GOOD), medians(*rows, asked), medians(*rows, asked, GOOD)] == [1, 1, 3]


def test_the_column_of_the_rate_counts_for_memory_too(tmp_path: Path) -> None:
    plain, slow = _check(tmp_path, LOAD, {**LOAD, "id": "y", "storage_bytes_per_s": "5e9"})
    num_bytes = 8191 * 131_072
    assert slow.compared[0].modelled - plain.compared[0].modelled > 0.5 * num_bytes / 5e9


def test_a_drive_of_the_catalogue_gives_its_rate_and_what_is_not_certain_of_it(tmp_path: Path) -> None:
    named, stated = _check(
        tmp_path,
        {**LOAD, "gpu": "H100 SXM5", "storage": "ssd", "storage_name": "PM9A3"},
        {**LOAD, "id": "z", "storage": "ssd", "storage_bytes_per_s": "6e9"},
    )
    assert "H100 SXM5" in named.taken[0]
    assert "6 GB/s is measured" in named.taken[1]
    assert named.compared[0].modelled == stated.compared[0].modelled


def test_rows_of_one_tier_and_two_rates_are_two_setups(tmp_path: Path) -> None:
    slow = _loads("s", 131_072 / 3e9, storage="ssd", storage_bytes_per_s="3e9")
    fast = _loads("f", 131_072 / 12e9, storage="ssd", storage_bytes_per_s="12e9")
    found = {one.row.id: one for one in _check(tmp_path, *slow, *fast, calibrate_on=_ids(slow))}
    assert all(found[name].calibrated for name in _ids(slow))
    assert not any(found[name].calibrated for name in _ids(fast))
    with pytest.raises(RowsError, match="2 lengths"):
        _check(tmp_path, *slow, *fast, calibrate_on=[*_ids(slow)[:2], *_ids(fast)[2:]])


def test_rows_of_two_kv_dtypes_are_two_setups(tmp_path: Path) -> None:
    half = _loads("a", 131_072 / 3e9, storage_bytes_per_s="3e9", kv_dtype="fp8")
    full = _loads("b", 131_072 / 3e9, storage_bytes_per_s="3e9")
    found = _check(tmp_path, *half, *full, calibrate_on=_ids(full))
    assert [one.calibrated for one in found] == [False] * 3 + [True] * 3


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
    with pytest.raises(RowsError, match="2 lengths"):
        _check(tmp_path, *rows[:2], again, calibrate_on=_ids([*rows[:2], again]))


def test_a_row_that_fits_nothing_is_refused_by_name_and_not_left_out_of_the_median(tmp_path: Path) -> None:
    rows = _loads("a", 2e-5)
    rate = {**LOAD, "id": "rate", "kind": "required_bandwidth", "load_s": "", "required_bytes_per_s": "9e9"}
    with pytest.raises(RowsError, match="row rate"):
        _check(tmp_path, *rows, rate, calibrate_on=[*_ids(rows), "rate"])
    recompute = {**LOAD, "id": "alone", "kind": "recompute_only", "recompute_s": "0.2", "load_s": ""}
    with pytest.raises(RowsError, match="row alone"):
        _check(tmp_path, *rows, recompute, calibrate_on=[*_ids(rows), "alone"])
    counted = _check(tmp_path, *rows, recompute, calibrate_on=_ids(rows))
    assert (median_error(counted)[1], counted[-1].calibrated) == (1, False)


def test_a_calibrated_setup_needs_no_rate_of_its_tier(tmp_path: Path) -> None:
    rows = _loads("a", 131_072 / 3e9, storage="network")
    asked = {**rows[1], "id": "asked", "tokens": "12288", "load_s": f"{0.01 + 12288 * 131_072 / 3e9}"}
    assert "storage_bytes_per_s" in _check(tmp_path, asked)[0].refused[0]
    found = _check(tmp_path, *rows, asked, calibrate_on=_ids(rows))[-1]
    assert found.calibrated
    assert found.error is not None
    assert found.error < 0.02


def test_a_row_on_a_gpu_of_unknown_memory_has_a_notice(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[gpus.new]\nname = "New"\nbf16_flops_per_s = 1e15\n')
    _check(tmp_path, {**GOOD, "gpu": "new", "model_key": "llama-3.1-70b"})
    (outcome,) = check_rows(read_rows(tmp_path / "rows.csv"), read_devices(file))
    assert len(outcome.taken) == 1 and "New" in outcome.taken[0]
