"""Capacity is arithmetic over a model's dimensions: known figures to the digit."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.__main__ import main
from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.kv_capacity import (
    Cache,
    StoredBytes,
    divide_gpu_memory,
    format_states,
    gpu_table,
    length_table,
    model_table,
    most_tokens,
    room_table,
    token_table,
    users_table,
)
from bench.catalog.models.resolve import read_catalogue, resolve_model
from bench.record.validate import InputError, parse_counts
from bench.report.figures.sizing_figure import write_capacity_figure
from bench.report.text.capacity_text import capacity_text, format_both
from bench.report.text.planning_text import records, write_tables
from bench.reuse.reuse_prices import Machine, find_fetches, find_prices, find_stored
from bench.reuse.tier_hits import CacheTier
from tests.helpers.commands import ROOT
from tests.helpers.scenarios import make_scenario, write_scenario
from tests.helpers.tier_sweeps import make_tier_run, write_sweep

KEYS = sorted(read_catalogue())
GROUPED = [key for key in KEYS if read_catalogue()[key].geometry.family in {"mha", "gqa", "sliding"}]
LATENT = [key for key in KEYS if read_catalogue()[key].geometry.family == "mla"]


def _cache(key: str, kv_dtype: str = "bfloat16", tensor_parallel: int = 1) -> Cache:
    return Cache(resolve_model(key), kv_dtype, tensor_parallel)


def _tables() -> dict[str, pd.DataFrame]:
    caches, contexts = [_cache("llama-3.3-70b")], (10_000, 100_000)
    return {
        "models": model_table(caches),
        "bytes_per_token": token_table(caches, 100_000),
        "lengths": length_table(caches, (1_000, 10_000)),
        "users": users_table(caches, (1, 10_000), contexts),
        "room": room_table(caches, 10**12, contexts),
        "gpu": gpu_table([_cache("llama-2-13b")], 40 * 10**9, contexts),
    }


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("qwen3-8b", 147_456),
        ("llama-3.3-70b", 327_680),
        ("llama-3.1-405b", 516_096),
        ("llama-2-13b", 819_200),
    ],
)
def test_the_bytes_of_a_token_follow_from_its_dimensions(key: str, expected: int) -> None:
    assert token_table([_cache(key)], 1)["kv_bytes_per_token"].tolist() == [expected]


def test_a_million_tokens_of_the_405b_model_are_516_gb() -> None:
    (row,) = records(length_table([_cache("llama-3.1-405b")], [1_000_000]))
    assert row["kv_bytes"] == 516_096_000_000
    assert format_both(row["kv_bytes"]) == "516.1 GB (480.7 GiB)"


def test_ten_thousand_users_of_the_70b_model_need_32_8_and_327_7_decimal_terabytes() -> None:
    rows = records(users_table([_cache("llama-3.3-70b")], [1, 10_000], [10_000, 100_000]))
    assert [row["kv_bytes"] for row in rows] == [
        3_276_800_000,
        32_768_000_000_000,
        32_768_000_000,
        327_680_000_000_000,
    ]
    shown = [format_both(row["kv_bytes"]) for row in rows]
    assert shown == [
        "3.277 GB (3.052 GiB)",
        "32.77 TB (29.80 TiB)",
        "32.77 GB (30.52 GiB)",
        "327.7 TB (298.0 TiB)",
    ]


def test_a_terabyte_holds_three_million_tokens_of_320_kib() -> None:
    layout = _cache("llama-3.3-70b").whole
    assert (layout.bytes_per_token, most_tokens(layout, 10**12)) == (320 * 1024, 3_051_757)
    assert most_tokens(layout, 2**40) == 3_355_443


def test_a_13b_model_leaves_30_percent_of_an_a100_with_40_gb() -> None:
    gpu = divide_gpu_memory(_cache("llama-2-13b"), 40 * 10**9, reserve_share=0.05)
    assert gpu.weight_bytes == 2 * 13_015_864_320
    assert (round(gpu.weight_share, 4), round(gpu.kv_share, 4)) == (0.6508, 0.2992)
    assert round(1 - gpu.weight_share, 3) == 0.349
    assert gpu.sequence_tokens == gpu.kv_bytes // 819_200 == 14_609


@pytest.mark.parametrize(
    ("key", "factor"),
    [
        ("llama-2-13b", 1),
        ("llama-2-7b", 1),
        ("qwen3-8b", 4),
        ("llama-3.3-70b", 8),
        ("llama-3.1-405b", 16),
        ("deepseek-v3", 2 * 128 * 128 / 576),
    ],
)
def test_the_formula_for_mha_is_wrong_by_the_sharing_of_the_model(key: str, factor: float) -> None:
    for at_tokens in (1, 100_000):
        assert token_table([_cache(key)], at_tokens)["mha_formula_factor"].tolist() == [pytest.approx(factor)]


def test_the_formula_counts_the_sliding_layers_as_if_they_kept_everything() -> None:
    cache = _cache("llama-4-maverick")
    factors = token_table([cache], 8192)["mha_formula_factor"].tolist()
    factors += token_table([cache], 1_000_000)["mha_formula_factor"].tolist()
    window_bytes = 36 * 8192 * 4096
    assert factors == [5, pytest.approx(983_040e6 / (49_152e6 + window_bytes))]


@settings(deadline=None, max_examples=60)
@given(key=st.sampled_from(KEYS), tokens=st.integers(1, 2_000_000), more=st.integers(0, 100_000))
def test_kv_never_shrinks_with_the_length(key: str, tokens: int, more: int) -> None:
    layout = _cache(key).whole
    assert layout.bytes_at(tokens) <= layout.bytes_at(tokens + more)


@settings(deadline=None, max_examples=60)
@given(key=st.sampled_from(GROUPED), tokens=st.integers(1, 300_000), data=st.data())
def test_kv_bytes_add_up_over_ranks_until_heads_are_repeated(
    key: str, tokens: int, data: st.DataObject
) -> None:
    heads = resolve_model(key).geometry.attention.num_kv_heads  # type: ignore[union-attr]
    ranks = data.draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    cache = _cache(key, tensor_parallel=ranks)
    assert cache.bytes_on_ranks(tokens) == cache.whole.bytes_at(tokens)
    assert cache.replication(tokens) == 1


def test_ranks_beyond_the_kv_heads_repeat_them() -> None:
    cache = _cache("llama-3.3-70b", tensor_parallel=32)
    assert (cache.rank.bytes_per_token, cache.replication()) == (327_680 // 8, 4)


@pytest.mark.parametrize("key", LATENT)
def test_every_rank_repeats_a_latent(key: str) -> None:
    cache = _cache(key, tensor_parallel=8)
    assert (cache.rank.bytes_per_token, cache.replication()) == (cache.whole.bytes_per_token, 8)


@settings(deadline=None, max_examples=60)
@given(key=st.sampled_from(KEYS), room=st.integers(0, 2**45))
def test_the_most_tokens_fit_and_one_more_does_not(key: str, room: int) -> None:
    layout = _cache(key).whole
    tokens = most_tokens(layout, room)
    assert tokens is not None
    assert tokens == 0 or layout.bytes_at(tokens) <= room
    assert layout.bytes_at(tokens + 1) > room


def test_no_length_fills_a_room_that_a_full_window_fits_into() -> None:
    planes = tuple(p for p in _cache("gemma-3-12b").whole.planes if p.window_tokens is not None)
    layout = type(_cache("gemma-3-12b").whole)(planes)
    full = layout.bytes_at(1024)
    assert most_tokens(layout, full) is None
    assert most_tokens(layout, full - 1) == 1023


def test_a_dtype_of_half_the_bytes_holds_twice_the_users() -> None:
    counts = [
        room_table([_cache("llama-3.3-70b", dtype)], 10**12, [10_000])["users"].tolist()
        for dtype in ("bfloat16", "fp8")
    ]
    assert counts == [[305], [610]]


def test_weights_that_do_not_fit_leave_nothing_and_say_how_much_is_missing() -> None:
    cache = _cache("llama-3.3-70b")
    gpu = divide_gpu_memory(cache, 80 * 10**9)
    assert (gpu.sequence_tokens, gpu.kv_bytes) == (0, 80 * 10**9 - 2 * 70_553_706_496)
    assert "61.1 GB short" in capacity_text({"gpu": gpu_table([cache], 80 * 10**9, [1000])})


def test_the_users_of_a_gpu_count_what_one_rank_keeps() -> None:
    (row,) = records(gpu_table([_cache("llama-3.3-70b", tensor_parallel=4)], 80 * 10**9, [10_000]))
    assert row["rank_user_bytes"] == 819_200_000
    assert row["users"] == (80 * 10**9 - 2 * 70_553_706_496 // 4) // 819_200_000 == 54


@pytest.mark.parametrize("text", ["", "a", "1,,2", "0", "-5", "1.5"])
def test_counts_that_are_no_whole_numbers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^users .*"):
        parse_counts("users", text)


def test_all_tables_say_that_they_are_arithmetic() -> None:
    tables = _tables()
    assert {origin for frame in tables.values() for origin in frame["origin"]} == {"arithmetic"}
    assert capacity_text(tables).count("(arithmetic") == len(tables)


def test_tables_are_written_as_a_folder_or_as_one_file(tmp_path) -> None:  # noqa: ANN001
    tables = _tables()
    names = {path.name for path in write_tables(tmp_path / "all", tables)}
    assert names == {f"{name}.csv" for name in tables}
    (one,) = write_tables(tmp_path / "one.csv", tables)
    frame = pd.read_csv(one)
    assert frame["table"].unique().tolist() == list(tables)
    users = pd.read_csv(tmp_path / "all" / "users.csv")
    assert users["kv_bytes"].tolist()[-1] == 327_680_000_000_000
    assert json.loads(json.dumps(records(tables["room"])))[0]["users"] == 305


@pytest.mark.parametrize("form", ["png", "svg"])
def test_the_figure_is_written_and_the_same_every_time(form: str, tmp_path) -> None:  # noqa: ANN001
    paths = [tmp_path / f"{name}.{form}" for name in ("a", "b")]
    for path in paths:
        write_capacity_figure(path, _tables())
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes()[:5] in {b"\x89PNG\r", b"<?xml"}


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ([], "--dtype is of a GPU's memory: add --gpu NAME or --gpu-memory 80GB"),
        (["--gpu-memory", "80GB"], "weight dtype 'int3' is unknown; known: float32, bfloat16"),
    ],
    ids=["no-gpu", "gpu"],
)
def test_a_weight_dtype_is_refused_where_it_is_unknown_or_nothing_reads_it(
    gpu: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "capacity", "--model", "qwen3-8b", "--dtype", "int3", *gpu])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


TRACE = ROOT / "tests" / "traces" / "mooncake_synthetic_400.jsonl"
DEEPSEEK = Cache(resolve_model("deepseek-v3"), tensor_parallel=8)
HYBRID = Cache(resolve_model("qwen3-next-80b-a3b"))
STATES = "of linear-attention states too"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_verb(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run_verb


def _stored(model: str, num_gpus: int | None) -> StoredBytes:
    return find_stored(model, None, kv_dtype="bfloat16", sweep=None, num_gpus=num_gpus)


def test_latents_count_for_every_rank_that_keeps_them_in_reuse_as_in_size() -> None:
    assert _stored("deepseek-v3", None) == StoredBytes(70_272)
    assert _stored("deepseek-v3", 8) == StoredBytes(8 * 70_272) == StoredBytes(DEEPSEEK.token_bytes)
    assert _stored("llama-3.3-70b", 8) == _stored("llama-3.3-70b", None)  # 8 heads, one on each rank
    assert _stored("llama-3.3-70b", 16).per_token == 2 * 327_680


def test_a_rate_and_the_load_curve_move_the_same_bytes() -> None:
    machine = Machine("deepseek-v3", "H200", None, 1e9, "fp8", "bfloat16", "vllm")
    prices = find_prices(None, None, machine, read_devices(None), series=None, num_gpus=8)
    tiers = [(CacheTier("gpu", 1), None), (CacheTier("rate", 1), 1e9), (CacheTier("curve", 1), None)]
    fetches = find_fetches(tiers, prices, _stored("deepseek-v3", 8))
    tokens = np.array([100_001.0])
    assert fetches["rate"](tokens)[0] == pytest.approx(fetches["curve"](tokens)[0], rel=1e-4)


def test_states_of_a_hybrid_model_are_fetched_once_and_said(run: Run, tmp_path: Path) -> None:
    stored = _stored("qwen3-next-80b-a3b", None)
    assert stored.states == HYBRID.state_bytes == 75_497_472 + 36 * 3 * 8192 * 2
    tiers = [(CacheTier("gpu", 1), None), (CacheTier("ssd", 1), 1e9)]
    machine = Machine("qwen3-next-80b-a3b", "H200", None, 1e9, "fp8", "bfloat16", "vllm")
    prices = find_prices(None, None, machine, read_devices(None), series=None, num_gpus=2)
    seconds = find_fetches(tiers, prices, stored)["ssd"](np.array([0.0, 1000.0]))
    assert seconds.tolist() == [0.0, (1000 * HYBRID.token_bytes + HYBRID.state_bytes) / 1e9]
    code, said, _ = run("reuse", TRACE, "--capacity", "100GB", "--model", "qwen3-next-80b-a3b")
    assert (code, said.count(STATES)) == (0, 1)
    given = {"model": "qwen3-next-80b-a3b", "tokens_per_s": 9000}
    parts = make_scenario(throughput=given, requests={"trace": TRACE}, store={"capacity": "1TB"})
    said = run("size", write_scenario(tmp_path / "size.toml", parts))[1]
    assert STATES in said
    assert "states of a stored prefix" in said
    assert "capacity / KV of a token, an upper bound: states take room too" in said


def test_a_model_without_states_says_nothing_of_them(run: Run) -> None:
    assert format_states(0) == ()
    assert "state" not in run("reuse", TRACE, "--capacity", "100GB", "--model", "qwen3-8b")[1]


def test_states_are_found_in_what_a_sweep_wrote_down(tmp_path: Path) -> None:
    plain, hybrid, older = (
        make_tier_run([]).model_copy(update={"kv_bytes_at": found})
        for found in ({256: 256 * 147_456}, {256: 256 * 147_456 + 5_000, 512: 0}, {})
    )
    for run, states in ((plain, 0), (hybrid, 5_000), (older, 0)):
        folder = write_sweep(tmp_path / str(states) / str(len(run.kv_bytes_at)), run, [])
        found = find_stored(None, None, kv_dtype="bfloat16", sweep=folder, num_gpus=None)
        assert found == StoredBytes(147_456, states)


def test_gpus_count_for_capacities_in_bytes_without_prices(run: Run) -> None:
    asked = ("reuse", TRACE, "--model", "deepseek-v3", "--capacity", f"{8 * 70_272}MB")
    assert "1,000,000" in run(*asked, "--gpus", "8")[1]
    assert "8,000,000" in run(*asked)[1]
