"""The hit table on published traces: exact figures, and the same figures from slow caches."""

import math
import os
from pathlib import Path

import pytest

from bench.reuse.eviction import POLICIES, capacity_in_tokens, simulate
from bench.reuse.hit_tables import hit_table
from bench.reuse.trace import Trace, Unit, build_trace, read_trace
from tests.helpers.commands import ROOT
from tests.helpers.slow_caches import replay_slowly, requests_of

SLICES = ROOT / "tests" / "traces"
CAPACITIES = (1e5, 3e5, 1e6, 3e6)
# hit tokens of the first 400 requests at CAPACITIES; lru, lfu and fifo as the slow caches give them
SLICE_HITS: dict[tuple[str, Unit], dict[str, list[int]]] = {
    ("conversation", "tokens"): {
        "lru": [204288, 204288, 209016, 497126],
        "lfu": [204288, 204288, 209016, 497126],
        "fifo": [204288, 204288, 209016, 521702],
        "optimal": [363800, 563800, 781596, 781596],
    },
    ("conversation", "blocks"): {
        "lru": [204288, 204288, 209016, 497126],
        "lfu": [204288, 204288, 209016, 497126],
        "fifo": [204288, 204288, 209016, 502246],
        "optimal": [363494, 563174, 781596, 781596],
    },
    ("synthetic", "tokens"): {
        "lru": [43520, 62976, 160195, 281135],
        "lfu": [57856, 77312, 122307, 273967],
        "fifo": [43520, 60416, 160195, 281135],
        "optimal": [254723, 281135, 281135, 281135],
    },
    ("synthetic", "blocks"): {
        "lru": [43520, 62976, 160195, 281135],
        "lfu": [57856, 77312, 122307, 263215],
        "fifo": [43520, 60416, 160195, 281135],
        "optimal": [253999, 281135, 281135, 281135],
    },
}


def slice_of(name: str) -> Trace:
    return read_trace(SLICES / f"mooncake_{name}_400.jsonl")


@pytest.mark.parametrize(("name", "unit"), list(SLICE_HITS))
def test_a_published_slice_gives_the_recorded_hits(name: str, unit: Unit) -> None:
    trace = slice_of(name)
    for policy in POLICIES:
        hits = simulate(trace, policy, capacities_tokens=[int(size) for size in CAPACITIES], unit=unit)
        assert [int(tokens.sum()) for tokens in hits] == SLICE_HITS[name, unit][policy], policy


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
def test_a_slow_cache_gives_the_recorded_hits_of_a_published_slice(policy: str) -> None:
    hits = replay_slowly(
        requests_of(slice_of("synthetic")), 512, policy=policy, capacity=100_000, whole_blocks=False
    )
    assert sum(hits) == SLICE_HITS["synthetic", "tokens"][policy][0]


# Expected shares of hit tokens at 1, 3, 10 and 50 million tokens, and without a limit
FULL = {
    ("conversation", "tokens"): ((0.055, 0.142, 0.294, 0.371), 0.374),
    ("conversation", "blocks"): ((0.054, 0.139, 0.291, 0.371), 0.374),
    ("synthetic", "tokens"): ((0.148, 0.317, 0.584, 0.651), 0.651),
}


@pytest.mark.parametrize(("name", "unit"), list(FULL))
def test_the_whole_published_traces_give_the_known_lru_ratios(name: str, unit: Unit) -> None:
    folder = os.environ.get("KVCROSS_TRACES")
    if folder is None:
        pytest.skip("KVCROSS_TRACES does not name a folder with the whole Mooncake traces")
    ratios, most = FULL[name, unit]
    table = hit_table(
        read_trace(Path(folder) / f"{name}_trace.jsonl"),
        [1_000_000, 3_000_000, 10_000_000, 50_000_000],
        unit=unit,
    )
    assert table["hit_ratio"].round(3).tolist() == list(ratios)
    assert round(table.attrs["max_hit_ratio"], 3) == most


def test_the_table_has_a_row_per_policy_and_capacity_and_says_modelled() -> None:
    trace = build_trace([[0, 1], [2, 3], [0, 1]], [8, 8, 8], block_tokens=4)
    table = hit_table(trace, [8, 16], ["lru", "optimal"])
    assert table.columns.tolist() == ["pool", "policy", "capacity_tokens", "hit_ratio", "share_of_max"]
    assert table.values.tolist() == [
        ["shared", "lru", 8, 0.0, 0.0],
        ["shared", "lru", 16, 8 / 24, 1.0],
        ["shared", "optimal", 8, 8 / 24, 1.0],
        ["shared", "optimal", 16, 8 / 24, 1.0],
    ]
    assert table.attrs == {
        "origin": "modelled",
        "unit": "tokens",
        "max_hit_ratio": 8 / 24,
        "pool_max_hit_ratios": {"shared": 8 / 24},
        "notices": (),
    }


def test_the_share_is_missing_when_nothing_can_hit() -> None:
    table = hit_table(build_trace([[0], [1]], [4, 4], block_tokens=4), [100])
    assert table["hit_ratio"].tolist() == [0.0]
    assert math.isnan(table["share_of_max"][0])


def test_capacity_in_bytes_is_divided_by_the_kv_bytes_of_a_token() -> None:
    assert capacity_in_tokens(15.9 * 147456, 147456) == 15
    assert capacity_in_tokens(16 * 147456, 147456) == 16


@pytest.mark.parametrize("capacity", [-1, math.nan, math.inf])
def test_a_capacity_that_is_no_size_is_refused(capacity: float) -> None:
    with pytest.raises(ValueError, match="a capacity must be finite and not negative"):
        capacity_in_tokens(capacity)


@pytest.mark.parametrize("size", [0, -1, math.nan])
def test_a_token_without_bytes_is_refused(size: float) -> None:
    with pytest.raises(ValueError, match="KV bytes per token must be positive"):
        capacity_in_tokens(1e6, size)


def test_an_unknown_policy_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown policy 'arc'; choose from lru, lfu, fifo, optimal"):
        hit_table(build_trace([[0]], [4], block_tokens=4), [1], ["arc"])
