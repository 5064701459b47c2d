"""Predictions: intervals hold their values, memory and context are respected, long contexts with windows."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from typer.testing import CliRunner

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.kv_capacity import RESERVE_SHARE, Cache, divide_gpu_memory
from bench.catalog.models.resolve import resolve_model
from bench.cli.predict_command import predict, spread_lengths
from bench.estimate.results import Estimate
from bench.predict.cost_model import CostModel
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.matrix import choose_ranks
from bench.predict.memory_fit import fitting_tokens, length_notice, memory_notice, memory_of
from bench.predict.prediction import (
    answer,
    faster_arm,
    find_marginal,
    find_whole,
    full_attention_points,
    point_at,
)
from bench.report.figures.matrix_figure import draw_arms
from bench.report.text.prediction_text import answer_tables, answer_text
from tests.helpers.sweeps import find_plain

LENGTHS = (64, 300, 1024, 2048, 20_000, 131_072)
MODELS = (
    "llama-3.1-8b",
    "deepseek-v3",
    "llama-4-maverick",
    "gpt-oss-20b",
    "qwen3-next-80b-a3b",
    "gemma-3-12b",
)
GPUS = ("L4", "A100", "H100", "H200", "B200")
RATES = (0.2e9, 1e9, 2e9, 5e9, 10e9, 20e9, None)


def _costs(key: str, gpu: str) -> Iterator[CostModel]:
    model, devices, dtype = resolve_model(key), read_devices(), "bfloat16" if gpu == "A100" else "fp8"
    ranks = choose_ranks(model, gpu, devices, dtype)
    for rate in RATES if ranks is not None else ():
        yield build_model(model, MachineSpec(gpu, ranks or 1, dtype, bytes_per_s=rate), devices)
    if ranks is not None:
        yield build_model(model, MachineSpec(gpu, ranks, dtype, storage="pm9a3"), devices)


def _require_held(intervals: Iterable[object]) -> int:
    """How many intervals there were; each holds its value."""
    bounded = [one for one in intervals if isinstance(one, Estimate) and one.low is not None]
    for one in bounded:
        assert one.high is not None and one.low is not None
        assert one.low <= one.value <= one.high
    return len(bounded)


@pytest.mark.parametrize("key", MODELS)
def test_every_interval_of_a_length_holds_its_value(key: str) -> None:
    points = [point_at(cost, n) for gpu in GPUS for cost in _costs(key, gpu) for n in LENGTHS]
    intervals = [getattr(point, one.name) for point in points for one in fields(point)]
    assert _require_held(intervals) == 3 * len(points) >= 3 * len(LENGTHS)


@pytest.mark.parametrize("key", MODELS)
def test_every_interval_of_a_crossing_holds_its_value(key: str) -> None:
    costs = [list(_costs(key, gpu))[number] for number, gpu in enumerate(GPUS, 2) if any(_costs(key, gpu))]
    crossings = [find(cost, 64, 131_072) for cost in costs for find in (find_whole, find_marginal)]
    assert _require_held(crossing.tokens for found in crossings for crossing in found) >= 2


@pytest.mark.parametrize(
    ("key", "gpu", "dtype", "rate", "tokens"),
    [
        ("deepseek-v3", "B200", "bfloat16", 14.5e9, 1024),
        ("deepseek-v3", "B200", "bfloat16", 14.5e9, 2048),
        ("deepseek-v3", "H200", "fp8", 20e9, 1024),
        ("llama-4-maverick", "H200", "bfloat16", 10e9, 2048),
    ],
)
def test_where_reading_weights_binds_a_longer_overhead_of_both_arms_brings_the_ratio_nearer_to_one(
    key: str, gpu: str, dtype: str, *, rate: float, tokens: int
) -> None:
    cost = build_model(resolve_model(key), MachineSpec(gpu, 8, dtype, bytes_per_s=rate), read_devices())
    (point,) = answer(cost, [tokens]).points
    slow, fast = cost.both_arms_s(tokens, "high", "low")
    assert point.ratio is not None and point.ratio.high is not None
    assert slow < fast and slow / fast < point.ratio.value <= point.ratio.high < 1
    assert point.ratio.high == (slow + cost.shared_range_s) / (fast + cost.shared_range_s)
    assert cost.shared_range_s == pytest.approx(12.5e-3 - 1.9e-3, rel=0.01)
    assert faster_arm(point) == "recompute"


def test_the_bounds_printed_hold_the_ratio_printed() -> None:
    setting = MachineSpec("B200", 8, storage="d7-ps1010")
    found = answer(build_model(resolve_model("deepseek-v3"), setting, read_devices()), [1024, 2048])
    text = answer_text(found)
    assert "0.687 [0.542–0.740]" in text


LLAMA = resolve_model("llama-3.1-8b")


def _notices(*arguments: str) -> list[str]:
    app = typer.Typer()
    app.add_typer(predict, name="predict")
    found = CliRunner().invoke(app, ["predict", *arguments, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    said: list[str] = json.loads(found.output)["answers"][0]["notices"]
    return said


@pytest.mark.parametrize(
    ("key", "gpu", "ranks", "dtype"),
    [
        ("llama-3.1-8b", "L4", 1, "bfloat16"),
        ("deepseek-v3", "H200", 8, "fp8"),
        ("gemma-3-12b", "H100", 1, "fp8"),
    ],
)
def test_as_many_tokens_fit_as_capacity_says(key: str, gpu: str, ranks: int, dtype: str) -> None:
    model, devices = resolve_model(key), read_devices()
    memory = memory_of(devices, gpu)
    assert memory is not None
    cost = build_model(model, MachineSpec(gpu, ranks, dtype, bytes_per_s=1e9), devices)
    divided = divide_gpu_memory(
        Cache(model, "bfloat16", ranks), int(memory), weight_dtype=dtype, reserve_share=RESERVE_SHARE
    )
    assert fitting_tokens(cost, memory) == divided.sequence_tokens


def test_weights_that_leave_nothing_leave_room_for_no_token() -> None:
    cost = build_model(LLAMA, MachineSpec("L4", bytes_per_s=1e9), read_devices())
    weights = 2 * LLAMA.geometry.params_total
    assert fitting_tokens(cost, weights) == 0
    assert "at most 0 tokens do" in memory_notice(cost, 64, weights)[0]
    assert fitting_tokens(cost, None) is None
    assert memory_notice(cost, 10**9, None) == ()


def test_a_prediction_beyond_the_memory_says_how_many_tokens_fit() -> None:
    said = _notices(
        "machine", "--model", "llama-3.1-8b", "--gpu", "L4", "--bandwidth", "5GB/s", "--tokens", "1024"
    )
    (room,) = [notice for notice in said if "do not fit into its 24 GB" in notice]
    assert "16 GB of weights and 17 GB of KV of 131,072 tokens" in room
    assert "at most 51,418 tokens do" in room
    roomy = _notices(
        "machine", "--model", "llama-3.1-8b", "--gpu", "H200", "--bandwidth", "5GB/s", "--tokens", "1024"
    )
    assert not any("do not fit" in notice for notice in roomy)


def test_a_prediction_beyond_the_context_of_the_model_says_so() -> None:
    asked = ("machine", "--model", "llama-3.1-8b", "--gpu", "H200", "--bandwidth", "5GB/s", "--tokens")
    due = "the model is made for 131,072 tokens; longer prefixes are modelled all the same"
    assert due in _notices(*asked, "131073")
    assert due not in _notices(*asked, "131072")
    assert length_notice(LLAMA.geometry, 131_073) == (due,)


def test_a_prediction_from_a_sweep_beyond_the_context_of_the_model_says_so() -> None:
    folder = find_plain()
    model = json.loads((Path(folder) / "run.json").read_text())["plan"]["model"]
    made_for = resolve_model(model).geometry.max_position_embeddings
    assert made_for is not None
    said = _notices("sweep", str(folder), "--tokens", str(made_for + 1))
    assert f"the model is made for {made_for:,} tokens; longer prefixes are modelled all the same" in said


MAVERICK = resolve_model("llama-4-maverick")


def _cost(bytes_per_s: float, key: str = "llama-4-maverick") -> CostModel:
    return build_model(
        resolve_model(key), MachineSpec("h200-sxm", 8, bytes_per_s=bytes_per_s), read_devices()
    )


def test_lengths_rise_by_one_two_five_to_the_longest() -> None:
    assert spread_lengths(1000, 1_000_000)[-3:] == (200_000, 500_000, 1_000_000)
    assert spread_lengths(1000, 30_000) == (1000, 2000, 5000, 10_000, 20_000, 30_000)


def test_full_attention_gives_the_square_of_every_layer_and_the_bytes_of_every_token() -> None:
    full = MAVERICK.geometry.with_full_attention()
    assert full.layout("bfloat16").bytes_at(1_000_000) == 1_000_000 * 196_608
    pair_flops = full.attention_flops_per_token_pair
    difference = full.prefill_flops(100_000) - MAVERICK.geometry.prefill_flops(100_000)
    chunks = 12 * (8192 * 8193 // 2) + (1696 * 1697 // 2)  # 100,000 = 12 x 8,192 + 1,696
    assert difference == pair_flops * 36 // 48 * (100_000 * 100_001 // 2 - chunks)
    assert pair_flops % 48 == 0


def test_a_load_of_a_million_tokens_reads_what_is_kept_at_the_rate_given() -> None:
    cost = _cost(10e9)
    point = point_at(cost, 1_000_000)
    kept = MAVERICK.geometry.layout("bfloat16").bytes_at(999_999)
    assert point.num_bytes == kept == 999_999 * 49_152 + 36 * 8192 * 4096
    assert point.load_s is not None
    assert point.load_s.value == pytest.approx(kept / 10e9, rel=0.01)
    (full,) = full_attention_points(cost, (1_000_000,), kv_dtype="bfloat16")
    assert full.num_bytes == 999_999 * 196_608


def test_chunked_layers_make_the_recompute_of_a_million_tokens_several_times_cheaper() -> None:
    cost = _cost(10e9)
    full = full_attention_points(cost, (1000, 1_000_000), kv_dtype="bfloat16")
    factors = [point.recompute_s.value / cost.recompute_s(point.prefix_tokens) for point in full]
    assert factors[0] == 1
    assert 3 < factors[1] < 4  # at most 48 layers against 12
    assert full_attention_points(_cost(10e9, "qwen3-8b"), (1000,), kv_dtype="bfloat16") == ()


def test_c_star_of_long_contexts_lies_where_the_curves_meet_and_falls_with_bandwidth() -> None:
    found = []
    for cost in (_cost(5e9), _cost(10e9)):
        below, beyond = answer(cost, (1000, 1_000_000)).spots[0].crossings
        assert (below.load_wins_beyond, beyond.load_wins_beyond) == (False, True)
        found.append(beyond.tokens.value)
        tokens = round(beyond.tokens.value)
        assert cost.load_s(tokens) == pytest.approx(cost.recompute_s(tokens), rel=1e-3)
    assert found[0] > found[1]


def test_every_crossing_is_a_row_and_is_drawn() -> None:
    found = answer(_cost(10e9), (1000, 1_000_000))
    table = answer_tables([found])["crossings"]
    whole = table[table["crossover"] == "C*"]
    assert list(whole["load_wins_beyond"]) == [False, True]
    axes = Figure().subplots()
    draw_arms(axes, [found])
    upright = [line.get_xdata()[0] for line in axes.lines if line.get_xdata()[0] == line.get_xdata()[-1]]
    assert upright == list(whole["tokens"])


@settings(deadline=None, max_examples=20)
@given(
    key=st.sampled_from(["qwen3-8b", "llama-4-maverick", "deepseek-v2-lite", "gemma-3-12b"]),
    tokens=st.integers(2, 500_000),
    more=st.integers(0, 500_000),
)
def test_neither_arm_gets_faster_with_the_length(key: str, tokens: int, more: int) -> None:
    cost = _cost(10e9, key)
    assert cost.load_s(tokens) <= cost.load_s(tokens + more)
    assert cost.recompute_s(tokens) <= cost.recompute_s(tokens + more) * (1 + 1e-9)


def test_kv_without_room_of_a_model_too_large_has_a_notice() -> None:
    cost = _cost(10e9, "llama-3.1-405b")
    (notice,) = memory_notice(cost, 1_000_000, 141e9)
    assert "65 GB of KV of 1,000,000 tokens" in notice  # 516.1 GB over 8 ranks
