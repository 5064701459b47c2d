"""Long contexts: chunked layers keep recompute from its square for longer, and load grows with what is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from bench.__main__ import main
from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import resolve_model
from bench.predict.cost_model import CostModel
from bench.predict.longctx import attend_to_all, longctx_tables, series_to
from bench.predict.machine_spec import MachineSpec, build_model
from bench.report.figures.longctx_figure import draw_longctx, write_longctx_figure
from bench.report.text.longctx_text import longctx_text
from bench.report.text.planning_text import records
from tests.helpers.commands import ROOT

MAVERICK = resolve_model("llama-4-maverick")


def _costs(*rates: float, key: str = "llama-4-maverick", num_gpus: int = 8) -> list[CostModel]:
    setting = [MachineSpec("h200-sxm", num_gpus, bytes_per_s=rate) for rate in rates]
    return [build_model(resolve_model(key), one, read_devices()) for one in setting]


def test_lengths_rise_by_one_two_five_to_the_longest() -> None:
    assert series_to(1_000_000)[-3:] == (200_000, 500_000, 1_000_000)
    assert series_to(30_000) == (1000, 2000, 5000, 10_000, 20_000, 30_000)


def test_attending_to_all_gives_the_square_of_every_layer_and_the_bytes_of_every_token() -> None:
    full = attend_to_all(MAVERICK.geometry)
    assert full.layout("bfloat16").bytes_at(1_000_000) == 1_000_000 * 196_608
    pair_flops = full.attention_flops_per_token_pair
    difference = full.prefill_flops(100_000) - MAVERICK.geometry.prefill_flops(100_000)
    chunks = 12 * (8192 * 8193 // 2) + (1696 * 1697 // 2)  # 100,000 = 12 x 8,192 + 1,696
    assert difference == pair_flops * 36 // 48 * (100_000 * 100_001 // 2 - chunks)
    assert pair_flops % 48 == 0


def test_load_reads_what_is_kept_at_the_rate_given() -> None:
    tables = longctx_tables(MAVERICK, _costs(10e9), series_to(1_000_000), kv_dtype="bfloat16")
    last = records(tables["times"])[-1]
    kept = MAVERICK.geometry.layout("bfloat16").bytes_at(999_999)
    assert last["kv_bytes"] == kept == 999_999 * 49_152 + 36 * 8192 * 4096
    assert last["load_s"] == pytest.approx(kept / 10e9, rel=0.01)
    assert last["kv_all_full_bytes"] == 999_999 * 196_608


def test_chunked_layers_make_the_recompute_of_a_million_tokens_several_times_cheaper() -> None:
    rows = records(longctx_tables(MAVERICK, _costs(10e9), (1000, 1_000_000), kv_dtype="bfloat16")["times"])
    factors = [row["recompute_all_full_s"] / row["recompute_s"] for row in rows]
    assert factors[0] == 1
    assert 3 < factors[1] < 4  # at most 48 layers against 12


def test_c_star_lies_where_the_curves_meet_and_falls_with_bandwidth() -> None:
    costs = _costs(5e9, 10e9)
    tables = longctx_tables(MAVERICK, costs, series_to(1_000_000), kv_dtype="bfloat16")
    whole = [
        row for row in records(tables["crossovers"]) if row["crossover"] == "C*" and row["load_wins_beyond"]
    ]
    assert whole[0]["tokens"] > whole[1]["tokens"]
    for cost, row in zip(costs, whole, strict=True):
        tokens = round(row["tokens"])
        assert cost.load_s(tokens) == pytest.approx(cost.recompute_s(tokens), rel=1e-3)


@settings(deadline=None, max_examples=20)
@given(
    key=st.sampled_from(["qwen3-8b", "llama-4-maverick", "deepseek-v2-lite", "gemma-3-12b"]),
    tokens=st.integers(2, 500_000),
    more=st.integers(0, 500_000),
)
def test_neither_arm_gets_faster_with_the_length(key: str, tokens: int, more: int) -> None:
    (cost,) = _costs(10e9, key=key)
    assert cost.load_s(tokens) <= cost.load_s(tokens + more)
    assert cost.recompute_s(tokens) <= cost.recompute_s(tokens + more) * (1 + 1e-9)


def test_what_has_no_room_and_what_the_model_is_not_made_for_is_said() -> None:
    model = resolve_model("llama-3.1-405b")
    costs = _costs(10e9, key="llama-3.1-405b")
    tables = longctx_tables(model, costs, (1_000_000,), kv_dtype="bfloat16", memory_bytes=141e9)
    said = " ".join(row["notice"] for row in records(tables["notices"]))
    assert "made for 131,072 tokens" in said
    assert "65 GB of KV of 1,000,000 tokens" in said  # 516.1 GB over 8 ranks
    assert "do not fit into its 141 GB" in said


def test_every_range_in_which_load_wins_is_said_and_every_crossing_drawn() -> None:
    tables = longctx_tables(MAVERICK, _costs(10e9), series_to(1_000_000), kv_dtype="bfloat16")
    whole = [row for row in records(tables["crossovers"]) if row["crossover"] == "C*"]
    assert [row["load_wins_beyond"] for row in whole] == [False, True]
    first = tables["times"].iloc[0]
    assert first["tokens"] < whole[0]["tokens"]
    assert first["load_s"] < first["recompute_s"]  # at 1,000 tokens load wins, as the sentence says
    said = next(line for line in longctx_text(tables).splitlines() if line.startswith("C*"))
    up_to, beyond = (f"{row['tokens']:,.0f} tokens [" for row in whole)
    assert f"load wins up to {up_to}" in said
    assert f" and beyond {beyond}" in said
    axes = Figure().subplots()
    draw_longctx(axes, tables["times"], tables["crossovers"])
    upright = [line.get_xdata()[0] for line in axes.lines if line.get_xdata()[0] == line.get_xdata()[-1]]
    assert upright == [row["tokens"] for row in whole]


def test_weights_that_do_not_fit_are_refused_with_the_number_of_gpus_that_hold_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "longctx", "llama-4-maverick", "--num-gpus", "4"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "do not fit into its 141 GB: 8 such GPUs hold them" in capsys.readouterr().err


def test_every_table_and_line_says_that_it_is_modelled() -> None:
    tables = longctx_tables(MAVERICK, _costs(10e9, 50e9), (1000, 100_000), kv_dtype="bfloat16")
    assert {origin for frame in tables.values() for origin in frame["origin"]} == {"modelled"}
    text = longctx_text(tables)
    assert text.startswith("modelled: ")
    assert text.count("(modelled)") == 2 + 4


@pytest.mark.parametrize(("asked", "taken"), [((), True), (("--num-gpus", "8"), False)])
def test_a_number_of_gpus_that_nobody_chose_is_said_in_the_second_line(
    asked: tuple[str, ...],
    taken: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["bench", "longctx", "llama-3.1-8b", "--gpu", "H100", "--longest", "2000", *asked]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in {0, None}
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert " on 8x H100 SXM with vLLM" in first
    said = "taken: 8 GPUs together, since --num-gpus names no other number"
    assert second == (said if taken else "")


@pytest.mark.parametrize("key", ["llama-4-maverick", "qwen3-8b"])
def test_the_figure_is_written_and_the_same_every_time(key: str, tmp_path: Path) -> None:
    model, costs = resolve_model(key), _costs(1e9, 10e9, key=key)
    tables = longctx_tables(model, costs, (1000, 10_000, 100_000), kv_dtype="bfloat16")
    for name in ("a.svg", "b.svg"):
        write_longctx_figure(tmp_path / name, tables)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_make_names_the_model_only_where_it_was_given() -> None:
    def lines(*words: str) -> str:
        done = subprocess.run(
            ["make", "-n", "--no-print-directory", *words],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "ARGS"}},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1]

    assert "longctx 'llama-4-scout' --csv" in lines("longctx", "MODEL=llama-4-scout")
    assert "longctx  --csv" in lines("longctx")
    assert lines("capacity").endswith("bench capacity  ")
    assert "capacity --model 'qwen3-8b'" in lines("capacity", "MODEL=qwen3-8b")
