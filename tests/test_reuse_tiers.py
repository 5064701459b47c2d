"""Tiers add up to what one cache of their size hits, and each way of writing does what it says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reuse.eviction import simulate
from bench.reuse.pools import spread_round_robin
from bench.reuse.read_trace import read_trace
from bench.reuse.tier_hits import Tier, WritePolicy, simulate_tiers
from bench.reuse.trace import Trace, build_trace
from tests.reuse_reference import requests_of
from tests.test_reuse_policies import chained_traces

SYNTHETIC = Path(__file__).parent / "traces" / "mooncake_synthetic_400.jsonl"


def three_tiers(write: WritePolicy) -> list[Tier]:
    return [Tier("gpu", 8), Tier("dram", 16, write), Tier("ssd", 1000, write)]


def single(ids: list[int]) -> Trace:
    """One block of 4 tokens per request."""
    return build_trace([[block] for block in ids], [4] * len(ids), block_tokens=4)


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_written_through_each_tier_adds_what_it_holds_beyond_the_smaller_ones(
    trace: Trace, sizes: list[int]
) -> None:
    tiers = [Tier(f"tier {level}", size) for level, size in enumerate(sorted(sizes))]
    hits = simulate_tiers(trace, tiers).hit_tokens
    expected = simulate(trace, "lru", capacities_tokens=sorted(sizes))
    assert hits.cumsum(axis=1).T.tolist() == [tokens.tolist() for tokens in expected]


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), capacity=st.integers(0, 60))
def test_an_endless_lower_tier_written_back_loses_nothing(trace: Trace, capacity: int) -> None:
    tiers = [Tier("gpu", capacity), Tier("ssd", 10**9, "back")]
    hits = simulate_tiers(trace, tiers).hit_tokens
    assert hits.sum() == simulate(trace, "lru", capacities_tokens=[10**9])[0].sum()
    assert hits[:, 0].tolist() == simulate(trace, "lru", capacities_tokens=[capacity])[0].tolist()


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), capacity=st.integers(0, 60))
def test_selective_writing_never_writes_more_than_writing_through(trace: Trace, capacity: int) -> None:
    written = [
        simulate_tiers(trace, [Tier("gpu", capacity), Tier("ssd", 10**9, write)]).written_tokens[1]
        for write in ("selective", "through")
    ]
    assert written[0] <= written[1]


def test_written_through_a_block_is_below_before_it_is_dropped() -> None:
    hits = simulate_tiers(single([0, 1, 2, 0]), three_tiers("through"))
    assert hits.hit_tokens[3].tolist() == [0, 4, 0]
    assert hits.written_tokens.tolist() == [16, 12, 12]


def test_written_back_a_block_goes_below_only_when_it_is_dropped() -> None:
    hits = simulate_tiers(single([0, 1, 2, 0]), three_tiers("back"))
    assert hits.hit_tokens[3].tolist() == [0, 4, 0]
    # 0 drops to dram when 2 comes in, 1 when 0 comes back; nothing drops out of dram
    assert hits.written_tokens.tolist() == [16, 8, 0]


def test_written_selectively_a_block_goes_below_on_its_second_use() -> None:
    hits = simulate_tiers(single([0, 0, 1, 2, 0, 1]), three_tiers("selective"))
    assert hits.hit_tokens.sum(axis=1).tolist() == [0, 4, 0, 0, 4, 0]
    assert hits.hit_tokens[4].tolist() == [0, 4, 0]
    assert hits.written_tokens.tolist() == [20, 4, 4]


def test_what_drops_out_of_the_middle_goes_on_to_the_last_tier() -> None:
    tiers = [Tier("gpu", 4), Tier("dram", 4, "back"), Tier("ssd", 100, "back")]
    hits = simulate_tiers(single([0, 1, 2, 0]), tiers)
    assert hits.hit_tokens[3].tolist() == [0, 0, 4]


def test_the_run_goes_on_from_one_tier_into_the_next() -> None:
    trace = build_trace([[0, 1, 2], [0, 1, 2]], [12, 12], block_tokens=4)
    hits = simulate_tiers(trace, [Tier("gpu", 4), Tier("dram", 8), Tier("ssd", 12)])
    assert hits.hit_tokens[1].tolist() == [4, 4, 4]
    assert hits.hit_ratios == {"gpu": 4 / 24, "dram": 4 / 24, "ssd": 4 / 24}


def test_a_shared_pool_hits_what_another_instance_wrote() -> None:
    trace = single([0, 0, 0, 0])
    instances = spread_round_robin(4, 2)
    apart = simulate_tiers(trace, [Tier("gpu", 0), Tier("dram", 100)], instances=instances)
    pooled = simulate_tiers(trace, [Tier("gpu", 0), Tier("dram", 100, shared=True)], instances=instances)
    assert apart.hit_tokens[:, 1].tolist() == [0, 0, 4, 4]
    assert pooled.hit_tokens[:, 1].tolist() == [0, 4, 4, 4]
    assert [int(hits.written_tokens[1]) for hits in (apart, pooled)] == [8, 4]


def test_one_pool_of_a_published_trace_hits_more_than_four_quarters() -> None:
    trace = read_trace(SYNTHETIC)
    where = spread_round_robin(trace.num_requests, 4)
    apart = simulate_tiers(trace, [Tier("gpu", 0), Tier("dram", 500_000)], instances=where)
    pooled = simulate_tiers(trace, [Tier("gpu", 0), Tier("dram", 2_000_000, shared=True)], instances=where)
    alone = simulate(trace, "lru", capacities_tokens=[2_000_000])[0]
    assert pooled.hit_tokens[:, 1].tolist() == alone.tolist()
    quarters = [requests_of(trace)[instance::4] for instance in range(4)]
    each = [
        simulate(
            build_trace([ids for ids, _ in part], [tokens for _, tokens in part], block_tokens=512),
            "lru",
            capacities_tokens=[500_000],
        )[0]
        for part in quarters
    ]
    assert [apart.hit_tokens[instance::4, 1].tolist() for instance in range(4)] == [
        hits.tolist() for hits in each
    ]
    assert (int(apart.hit_tokens.sum()), int(pooled.hit_tokens.sum())) == (97_027, 263_215)


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ([], "at least one tier"),
        ([Tier("a", 1), Tier("a", 2)], "tiers need different names"),
        ([Tier("a", -1)], "tier a: capacity_tokens must not be negative, got -1"),
        ([Tier("a", 1, shared=True), Tier("b", 1)], "tier b belongs to one instance but lies below shared a"),
    ],
)
def test_tiers_that_make_no_sense_are_refused(tiers: list[Tier], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate_tiers(single([0]), tiers)


@pytest.mark.parametrize("instances", [[0, 1], [-1]])
def test_every_request_needs_one_instance(instances: list[int]) -> None:
    with pytest.raises(ValueError, match="instances must be 1 numbers from 0"):
        simulate_tiers(single([0]), [Tier("gpu", 4)], instances=np.array(instances))
