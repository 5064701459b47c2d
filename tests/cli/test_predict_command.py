"""`predict` as a user meets it: output, exit codes, one-line errors."""

import csv
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from bench.cli.predict_command import predict
from bench.estimate.results import Crossing, Estimate, SweetSpot
from bench.predict.published import PUBLISHED
from bench.predict.sweep_model import usable_points
from bench.record.notices import Notice
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.report.text.prediction_text import format_spot
from kvio.errors import UserError
from tests.helpers.commands import ROOT
from tests.helpers.sweeps import find_plain
from tests.helpers.tiny_configs import TINY_CONFIGS

SWEEP = find_plain()
LLAMA = ("machine", "--model", "llama-3.1-8b", "--gpu", "H100")


def _run(*arguments: str) -> str:
    app = typer.Typer()
    app.add_typer(predict, name="predict")
    found = CliRunner().invoke(app, ["predict", *arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def _refused(*arguments: str) -> str:
    app = typer.Typer()
    app.add_typer(predict, name="predict")
    with pytest.raises((UserError, ValidationError)) as caught:
        CliRunner().invoke(app, ["predict", *arguments], catch_exceptions=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_line_of_a_prediction_but_the_table_says_that_it_is_modelled_or_supposed() -> None:
    lines = _run(*LLAMA, "--ssd", "PM9A3", "--tokens", "1024,8192").splitlines()
    said = [line for line in lines if line.startswith(("modelled: ", "supposed: "))]
    assert len(lines) == len(said) + 3  # headings and two lengths
    assert any("C* = " in line for line in said)
    assert any("P* = " in line for line in said)
    assert any("Samsung PM9A3: 6 GB/s is measured" in line for line in said)


def test_json_holds_the_same_answer_and_says_modelled() -> None:
    said = json.loads(_run(*LLAMA, "--bandwidth", "4GB/s", "--tokens", "8192", "--json"))
    assert said["modelled"] is True
    (found,) = said["answers"]
    (point,) = found["points"]
    assert (point["prefix_tokens"], point["num_bytes"]) == (8192, 8191 * 131_072)
    assert [(spot["kind"], spot["verdict"]) for spot in found["spots"]] == [
        ("whole", "crossover"),
        ("marginal", "crossover"),
    ]


def _times(folder: Path, *arguments: str) -> list[dict[str, str]]:
    _run(*arguments, "--csv", str(folder / "tables"))
    return list(csv.DictReader((folder / "tables" / "times.csv").read_text().splitlines()))


def test_csv_has_a_row_for_each_length_with_its_break_even_bandwidth(tmp_path: Path) -> None:
    rows = _times(tmp_path, *LLAMA, "--bandwidth", "4GB/s", "--tokens", "8192,1024")
    assert [(row["origin"], row["prefix_tokens"]) for row in rows] == [
        ("modelled", "1024"),
        ("modelled", "8192"),
    ]
    assert all(float(row["break_even_bytes_per_s"]) > 0 for row in rows)
    assert float(rows[1]["break_even_bytes_per_s"]) > 4e9  # load wins there


def test_every_storage_is_answered_and_the_figure_is_the_same_every_time(tmp_path: Path) -> None:
    asked = (*LLAMA, "--bandwidth", "2GB/s,4GB/s", "--ssd", "pm9a3", "--tokens", "1k..10k", "--json")
    plots = [tmp_path / name for name in ("a.svg", "b.svg")]
    answers = [json.loads(_run(*asked, "--plot", str(plot)))["answers"] for plot in plots]
    assert len(answers[0]) == 3
    assert [point["prefix_tokens"] for point in answers[0][0]["points"]] == [1000, 2000, 5000, 10_000]
    assert plots[0].read_bytes() == plots[1].read_bytes()


def test_a_length_whose_bounds_hold_a_tie_is_undecided(tmp_path: Path) -> None:
    found = _times(tmp_path, *LLAMA, "--bandwidth", "8GB/s", "--tokens", "512,1024,8192")
    rows = {row["prefix_tokens"]: row for row in found}
    assert {tokens: row["faster"] for tokens, row in rows.items()} == {
        "512": "recompute",
        "1024": "undecided",
        "8192": "load",
    }
    assert float(rows["1024"]["recompute_s"]) > float(rows["1024"]["load_s"])
    said = _run(*LLAMA, "--ssd", "dram", "--tokens", "1024")
    assert (
        ", but undecided: within the bounds of the times load may win at every length (load wins beyond; "
        in said
    )


def test_kv_dtype_halves_the_bytes_and_weight_dtype_does_not() -> None:
    plain = json.loads(_run(*LLAMA, "--bandwidth", "4GB/s", "--tokens", "8192", "--dtype", "fp8", "--json"))
    half = json.loads(_run(*LLAMA, "--bandwidth", "4GB/s", "--tokens", "8192", "--kv-dtype", "fp8", "--json"))
    plain, half = (found["answers"][0]["points"][0]["num_bytes"] for found in (plain, half))
    assert plain == 2 * half


def test_a_sweep_predicts_other_storages_and_lengths_and_marks_what_it_extrapolates() -> None:
    longest = usable_points(read_run(SWEEP), read_samples(SWEEP)[0])[-1].prefix_tokens
    text = _run("sweep", str(SWEEP), "--bandwidth", "50MB/s", "--tokens", f"512,{4 * longest}")
    assert f"calibrated on {SWEEP.name}, were the storage one of 0.05 GB/s" in text
    assert f"supposed: extrapolated at {4 * longest:,} tokens" in text


def test_check_ends_with_the_median_error_over_the_rows_that_count() -> None:
    lines = _run("check", str(PUBLISHED), "--calibrate", "A10k,A40k,A100k").splitlines()
    assert re.fullmatch(r"median error: \d+\.\d % over 14 rows", lines[-1])
    assert sum(": refused: " in line for line in lines) == 23
    assert any(line.startswith("A1k: calibrated: load_s ") for line in lines)


def test_a_file_of_refused_rows_alone_fails(tmp_path: Path) -> None:
    rows = (PUBLISHED).read_text().splitlines()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([rows[0], *(row for row in rows if row.startswith("GKE"))]) + "\n")
    app = typer.Typer()
    app.add_typer(predict, name="predict")
    found = CliRunner().invoke(app, ["predict", "check", str(path)])
    assert found.exit_code == 1
    assert found.output.splitlines()[-1] == "median error: — % over 0 rows"


def test_a_device_of_the_user_is_found_in_his_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "[gpus.x1]\nname = 'X1'\nbf16_flops_per_s = 1e15\nmemory_bytes_per_s = 3e12\nlink_bytes_per_s = 5e10\n"
    )
    text = _run(
        "machine", "--model", "llama-3.1-8b", "--gpu", "x1", "--bandwidth", "4GB/s", "--catalogue", str(file)
    )
    assert "on X1 with vLLM" in text
    assert "supposed: no kernel was measured on X1" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (LLAMA, "name the storage"),
        ((*LLAMA, "--ssd", "pm9a4"), "storage 'pm9a4' is in no catalogue; near it: pm9a3"),
        ((*LLAMA, "--ssd", "r6101"), "no read rate is known"),
        (("machine", "--model", "llama-3.1-8b", "--gpu", "H1000", "--ssd", "dram"), "near it: h100"),
        (("machine", "--model", "llama-3.1-8c", "--gpu", "H100", "--ssd", "dram"), "near it: llama-3.1-8b"),
        ((*LLAMA, "--bandwidth", "10"), "'10' is not a rate"),
        ((*LLAMA, "--ssd", "dram", "--tokens", "1,0"), "1 is not between 2"),
        ((*LLAMA, "--ssd", "dram", "--tokens", "many"), "'many'"),
        ((*LLAMA, "--ssd", "dram", "--num-gpus", "0"), "--num-gpus"),
        ((*LLAMA, "--ssd", "dram", "--num-gpus", "64"), "tensor parallelism 64"),
        ((*LLAMA, "--ssd", "dram", "--dtype", "int3"), "dtype 'int3' has no modelled rate"),
        ((*LLAMA, "--ssd", "dram", "--kv-dtype", "int3"), "KV dtype 'int3' is unknown"),
        ((*LLAMA, "--ssd", "dram", "--engine", "vlm"), "engine 'vlm' is in no catalogue; near it: vllm"),
        ((*LLAMA, "--ssd", "dram", "--tokens", "1M..1k"), "1M..1k"),
        (("sweep", "nowhere"), "no run.json here"),
        ((*LLAMA, "--ssd", "99999x pm9a3"), "99999 drives are more than 10,000"),
        ((*LLAMA, "--ssd", "dram", "--chunk-tokens", "9999999999"), "--chunk-tokens"),
        ((*LLAMA, "--bandwidth", "9" * 400 + "GB/s"), "is not a rate"),
        (("machine", "--model", "", "--gpu", "H100", "--ssd", "dram"), "model '' is no catalogue key"),
        (("check", str(PUBLISHED), "--calibrate", ","), "--calibrate names no row"),
        (("check", "nowhere.csv"), "nowhere.csv: No such file"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_a_wrong_question_is_refused_in_one_line(arguments: tuple[str, ...], says: str) -> None:
    assert says in _refused(*arguments)


def test_the_bounds_hold_what_every_source_measured_of_a_drive() -> None:
    asked = (
        "machine",
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "H100",
        "--engine",
        "kernels",
        "--tokens",
        "8192",
        "--json",
    )
    found, slow, fast = (
        json.loads(_run(*asked, *storage))["answers"][0]
        for storage in (("--ssd", "pm9a3"), ("--bandwidth", "6GB/s"), ("--bandwidth", "6.9GB/s"))
    )
    load = found["points"][0]["load_s"]
    assert load["value"] == load["high"] == slow["points"][0]["load_s"]["value"]
    assert load["low"] == fast["points"][0]["load_s"]["value"]
    said = [notice for notice in found["notices"] if "6 GB/s is measured" in notice]
    assert len(said) == 1 and "6.9 GB/s too" in said[0]


def test_weights_that_do_not_fit_are_refused_with_the_number_of_gpus_that_hold_them() -> None:
    said = _refused("machine", "--model", "llama-3.1-70b", "--gpu", "H100", "--ssd", "pm9a3")
    assert "do not fit into its 86 GB: 2 such GPUs hold them" in said


def test_a_doubt_comes_first_and_its_bounds_are_those_of_the_last_crossing_only() -> None:
    said = _run(*LLAMA, "--ssd", "pm9a3", "--tokens", "1024")
    (line,) = [line for line in said.splitlines() if "P* = " in line]
    doubt = line.partition(" tokens, but ")[2]
    assert doubt.startswith(
        "undecided: within the bounds of the times there may be several crossings (load wins beyond, "
    )
    assert " for the last crossing; modelled between" in doubt


def test_the_size_of_a_chunk_is_said_where_chunks_are_counted() -> None:
    said = _run(*LLAMA, "--ssd", "pm9a3", "--tokens", "1024", "--chunk-tokens", "1024")
    whole, marginal = (line for line in said.splitlines() if "* = " in line)
    assert whole.endswith(" in whole chunks of 1,024 tokens)") and marginal.endswith(
        " in whole chunks of 1,024 tokens)"
    )
    assert marginal.startswith(
        "modelled: loading the next KV chunk of 1,024 tokens against computing it: P* = "
    )


def test_no_crossing_claims_that_no_bounds_are_known_where_the_times_have_them() -> None:
    found = Crossing(Estimate(500.0), (400, 600), load_wins_beyond=True)
    spot = SweetSpot("modelled", "whole", "p50", "crossover", None, (found,), reason="searched")
    assert "load wins beyond, no bounds known" in format_spot(spot, 256)
    doubted = format_spot(replace(spot, notices=(Notice(kind="undecided", detail="load_always_wins"),)), 256)
    assert doubted.endswith("load may win at every length (load wins beyond; searched)")
    bounded = Crossing(Estimate(900.0, 800.0, 1000.0), (800, 1000), load_wins_beyond=True)
    first = replace(found, load_wins_beyond=False)
    several = replace(spot, verdict="multiple_crossings", crossings=(first, bounded))
    assert (
        "(load wins only below, its bounds are open; load wins beyond, 800 to 1,000; searched)"
        in format_spot(several, 256)
    )


def test_a_model_of_few_positions_is_asked_about_its_longest_prefix(tmp_path: Path) -> None:
    config = {"model_type": "opt", **TINY_CONFIGS["opt"], "max_position_embeddings": 300}
    (tmp_path / "small.json").write_text(json.dumps(config))
    asked = (
        "machine",
        "--model",
        str(tmp_path / "small.json"),
        "--gpu",
        "H100",
        "--bandwidth",
        "4GB/s",
        "--json",
    )
    assert [point["prefix_tokens"] for point in json.loads(_run(*asked))["answers"][0]["points"]] == [300]


def test_make_names_the_model_only_where_it_was_given() -> None:
    def line(*words: str) -> str:
        left_out = {"MAKEFLAGS", "ARGS", "MODEL"}
        done = subprocess.run(
            ["make", "-n", "--no-print-directory", *words],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in left_out},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1]

    assert "--model 'llama-4-scout'" in line("longctx", "MODEL=llama-4-scout")
    assert "--model 'llama-4-maverick'" in line("longctx")
    assert line("capacity").endswith("bench capacity  ")
    assert "capacity --model 'qwen3-8b'" in line("capacity", "MODEL=qwen3-8b")
