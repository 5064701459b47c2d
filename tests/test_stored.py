"""Bytes of a store are those of all ranks, and say what they leave out."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.kv_capacity import Cache, StoredBytes, say_states
from bench.catalog.models.resolve import resolve_model
from bench.reuse.reuse_prices import Machine, find_fetches, find_prices, find_stored
from bench.reuse.tier_hits import Tier
from tests.tier_sweeps import make_tier_run
from tests.written_sweeps import write_sweep

TRACE = Path(__file__).parent / "traces" / "mooncake_synthetic_400.jsonl"
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
    tiers = [(Tier("gpu", 1), None), (Tier("rate", 1), 1e9), (Tier("curve", 1), None)]
    fetches = find_fetches(tiers, prices, _stored("deepseek-v3", 8))
    tokens = np.array([100_001.0])
    assert fetches["rate"](tokens)[0] == pytest.approx(fetches["curve"](tokens)[0], rel=1e-4)


def test_states_of_a_hybrid_model_are_fetched_once_and_said(run: Run) -> None:
    stored = _stored("qwen3-next-80b-a3b", None)
    assert stored.states == HYBRID.state_bytes == 75_497_472 + 36 * 3 * 8192 * 2
    tiers = [(Tier("gpu", 1), None), (Tier("ssd", 1), 1e9)]
    machine = Machine("qwen3-next-80b-a3b", "H200", None, 1e9, "fp8", "bfloat16", "vllm")
    prices = find_prices(None, None, machine, read_devices(None), series=None, num_gpus=2)
    seconds = find_fetches(tiers, prices, stored)["ssd"](np.array([0.0, 1000.0]))
    assert seconds.tolist() == [0.0, (1000 * HYBRID.token_bytes + HYBRID.state_bytes) / 1e9]
    code, said, _ = run("reuse", TRACE, "--capacity", "100GB", "--model", "qwen3-next-80b-a3b")
    assert (code, said.count(STATES)) == (0, 1)
    asked = ("--model", "qwen3-next-80b-a3b", "--throughput", "9000", "--trace", TRACE, "--capacity", "1TB")
    said = run("size", *asked)[1]
    assert STATES in said
    assert "states of a stored prefix" in said
    assert "capacity / KV of a token, an upper bound: states take room too" in said


def test_a_model_without_states_says_nothing_of_them(run: Run) -> None:
    assert say_states(0) == ()
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
