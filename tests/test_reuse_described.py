"""Prices of a described machine are the cost model's own seconds, and its C* decides what is loaded."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import resolve_model
from bench.predict.bounded import Spread
from bench.predict.cost_model import CostModel
from bench.predict.machine_spec import Setting, build_model
from bench.predict.prediction import answer
from bench.report.figures.reuse_figure import loaded_rule
from bench.reuse.described import prices_of_model
from bench.reuse.savings import price_hits

LONGEST = 131_072


def _machine(bytes_per_s: float = 6e9, *, key: str = "llama-3.1-8b", num_gpus: int = 1) -> CostModel:
    setting = Setting("h100-sxm", num_gpus, bytes_per_s=bytes_per_s)
    return build_model(resolve_model(key), setting, read_devices())


def _at(curve: object, tokens: int) -> float:
    assert callable(curve)
    return float(curve(np.array([tokens, 0, tokens]))[2])


@pytest.mark.parametrize("tokens", [2, 1000, 8192, 200_000])
def test_the_curves_are_the_seconds_that_a_prediction_prints(tokens: int) -> None:
    machine = _machine()
    curves = prices_of_model(machine, longest=LONGEST).curves
    (point,) = answer(machine, [tokens]).points
    assert point.recompute_s is not None
    assert point.load_s is not None
    assert _at(curves.recompute_s, tokens) == point.recompute_s.value
    assert _at(curves.load_s, tokens) == point.load_s.value
    assert _at(curves.first_token_s, tokens) == machine.fixed_s(tokens)
    assert _at(curves.recompute_s, 0) == 0.0


def test_hits_are_loaded_from_the_modelled_crossover_on_and_it_is_never_called_measured() -> None:
    prices = prices_of_model(_machine(), longest=LONGEST, num_gpus=2)
    (crossing,) = answer(_machine(), [1024], longest=LONGEST).spots[0].crossings
    assert prices.crossover_tokens == crossing.tokens.value
    assert loaded_rule(prices) == f"load from modelled C* = {round(crossing.tokens.value):,} tokens"
    assert prices.source.startswith("the cost model, nothing was measured: meta-llama/Llama-3.1-8B")
    assert (prices.modelled, prices.conclusive, prices.num_gpus) == (True, True, 2)
    assert prices.supposed == _machine().notices
    assert crossing.tokens.low is not None
    assert f"between {crossing.tokens.low:,.0f} and" in prices.notices[0]


@pytest.mark.parametrize(
    ("bytes_per_s", "expected", "rule", "says"),
    [
        (1e13, 0.0, "always load, no modelled C*: load always wins", "load always wins"),
        (1e6, math.inf, "never load, no modelled C*: recompute always wins", "recompute always wins"),
    ],
)
def test_without_a_crossing_everything_or_nothing_is_loaded(
    bytes_per_s: float, expected: float, rule: str, says: str
) -> None:
    machine = replace(_machine(bytes_per_s), link=None, memory_bytes_per_s=None)
    prices = prices_of_model(machine, longest=LONGEST)
    assert (prices.crossover_tokens, loaded_rule(prices)) == (expected, rule)
    assert prices.notices[0] == f"modelled between 64 and 131,072 tokens: {says}"


def test_where_the_curves_cross_twice_each_prefix_is_loaded_where_that_is_faster() -> None:
    machine = build_model(
        resolve_model("llama-4-maverick"), Setting("h200-sxm", 8, bytes_per_s=10e9), read_devices()
    )
    prices = prices_of_model(machine, longest=1_000_000)
    assert (prices.crossover_tokens, loaded_rule(prices)) == (None, "load where faster")
    assert prices.notices == ("modelled between 64 and 1,000,000 tokens: multiple crossings",)


def test_two_ranks_count_twice_the_gpu_seconds() -> None:
    requests = np.array([16_384]), np.array([8192])
    one, two = (
        price_hits(*requests, prices_of_model(_machine(), longest=LONGEST, num_gpus=n)) for n in (1, 2)
    )
    assert two["free_hit_gpu_saved_s"] == pytest.approx(2 * one["free_hit_gpu_saved_s"])
    assert two["free_hit_saved_s"] == one["free_hit_saved_s"]


def test_a_prompt_beyond_what_the_model_is_made_for_is_extrapolated() -> None:
    prices = prices_of_model(_machine(), longest=LONGEST)
    found = price_hits(np.array([LONGEST, LONGEST + 1]), np.array([512, 512]), prices)
    assert found["extrapolated_share"] == 0.5


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 1)), min_size=1, max_size=12),
    bytes_per_s=st.floats(1e8, 1e11),
    faster=st.floats(1.0, 10.0),
    key=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite"]),
)
def test_loading_never_saves_more_than_free_hits_and_more_with_a_faster_storage(
    requests: list[tuple[int, float]], bytes_per_s: float, faster: float, key: str
) -> None:
    inputs = np.array([tokens for tokens, _ in requests])
    hits = np.array([int(tokens * share) for tokens, share in requests])
    base = _machine(key=key, num_gpus=8)
    slow, fast = (
        price_hits(inputs, hits, prices_of_model(replace(base, storage=Spread(rate)), longest=LONGEST))
        for rate in (bytes_per_s, bytes_per_s * faster)
    )
    for found in (slow, fast):
        slack = 1e-9 * found["recompute_s"]
        assert found["beyond_crossover_saved_s"] <= found["free_hit_saved_s"] + slack
        assert found["always_load_saved_s"] <= found["free_hit_saved_s"] + slack
    assert slow["always_load_saved_s"] <= fast["always_load_saved_s"] + 1e-9 * slow["recompute_s"]
    assert slow["free_hit_saved_s"] == fast["free_hit_saved_s"]


def test_a_crossover_that_the_range_of_the_rates_leaves_undecided_is_said_to_be() -> None:
    doubted, sure = (prices_of_model(_machine(rate), longest=LONGEST).notices for rate in (20e9, 2e9))
    assert doubted[1:] == ("undecided: load always wins within the range of the rates too",)
    assert doubted[0].startswith("the modelled C* has no bounds of its own")
    assert not any("undecided" in notice for notice in sure)
