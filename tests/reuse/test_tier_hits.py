"""Multi-round conversations: prompts repeat what they should, and lower tiers keep what upper ones lose."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.predict.curve import FloatArray
from bench.reuse.conversations import MultiRound, generate_conversations
from bench.reuse.eviction import simulate
from bench.reuse.hit_tables import depth_table
from bench.reuse.pools import spread_round_robin
from bench.reuse.savings import CostCurves
from bench.reuse.tier_hits import CacheTier, WritePolicy, simulate_tiers
from bench.reuse.trace import Trace, build_trace, read_trace
from tests.helpers.commands import ROOT
from tests.helpers.slow_caches import requests_of
from tests.reuse.test_eviction import chained_traces

PLAN = MultiRound(
    num_users=5,
    num_rounds=3,
    system_tokens=10,
    history_tokens=21,
    question_tokens=3,
    answer_tokens=4,
    block_tokens=4,
    seed=7,
)


def recompute(tokens: FloatArray) -> FloatArray:
    return tokens / 100


def load(tokens: FloatArray) -> FloatArray:
    return tokens / 1000


CURVES = CostCurves(recompute_s=recompute, load_s=load)


def test_every_user_asks_once_in_every_round_and_prompts_grow() -> None:
    talk = generate_conversations(PLAN)
    assert talk.rounds.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert [sorted(talk.users[talk.rounds == index].tolist()) for index in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert talk.trace.input_tokens.tolist() == [34] * 5 + [41] * 5 + [48] * 5
    assert talk.trace.num_blocks.tolist() == [9] * 5 + [11] * 5 + [12] * 5
    assert (np.diff(talk.trace.timestamps_s) >= 0).all()


def test_the_first_round_shares_the_system_prompt_and_later_ones_the_user_s_whole_blocks() -> None:
    talk = generate_conversations(PLAN)
    hits = simulate(talk.trace, "lru", capacities_tokens=[10**6])[0]
    # 10 system tokens are 2 whole blocks of 4; of 34 and 41 earlier tokens 32 and 40 lie in whole blocks
    assert hits.tolist() == [0] + [8] * 4 + [32] * 5 + [40] * 5


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    first, again, other = (
        generate_conversations(MultiRound(20, 2, history_tokens=600, seed=seed)) for seed in (1, 1, 2)
    )
    assert first.users.tolist() == again.users.tolist() != other.users.tolist()
    assert first.trace.timestamps_s.tolist() == again.trace.timestamps_s.tolist()


def test_each_further_tier_raises_hits_and_lowers_seconds_after_the_first_round() -> None:
    tiers = [CacheTier("gpu", 40), CacheTier("dram", 100), CacheTier("ssd", 10_000)]
    fetches_s = {"dram": load, "ssd": load}
    talk = generate_conversations(PLAN)
    table = depth_table(talk.trace, tiers, rounds=talk.rounds, curves=CURVES, fetches_s=fetches_s)
    names = "tiers round hit_ratio share_of_max last_hit_ratio recompute_s always_load_s where_faster_s"
    assert table.columns.tolist() == [*names.split(), "extrapolated_share", "written_tokens"]
    assert table["tiers"].unique().tolist() == ["gpu", "gpu+dram", "gpu+dram+ssd"]
    ratios = table.pivot(index="round", columns="tiers", values="hit_ratio")
    assert ratios["gpu+dram+ssd"].tolist() == [32 / 170, 160 / 205, 200 / 240]
    assert (ratios["gpu"] <= ratios["gpu+dram"]).all()
    assert (ratios["gpu+dram"] <= ratios["gpu+dram+ssd"]).all()
    seconds = table.pivot(index="round", columns="tiers", values="always_load_s")
    assert (seconds["gpu+dram+ssd"] < seconds["gpu"])[1:].all()
    assert table.attrs["origin"] == "modelled"


def test_seconds_are_the_loads_of_the_lower_tiers_and_the_rest_of_the_prompt() -> None:
    tiers = [CacheTier("gpu", 0), CacheTier("ssd", 10_000)]
    talk = generate_conversations(PLAN)
    table = depth_table(talk.trace, tiers, rounds=talk.rounds, curves=CURVES, fetches_s={"ssd": load})
    seconds = table[table["tiers"] == "gpu+ssd"]["always_load_s"].tolist()
    assert seconds == pytest.approx([(0.34 + 4 * (0.008 + 0.26)) / 5, 0.032 + 0.09, 0.04 + 0.08])


def test_a_tier_without_a_load_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="no load curve for tier ssd"):
        depth_table(
            generate_conversations(PLAN).trace, [CacheTier("gpu", 1), CacheTier("ssd", 1)], curves=CURVES
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_users", 0), ("num_rounds", 0), ("question_tokens", 0), ("block_tokens", 0), ("system_tokens", -1)],
)
def test_a_workload_that_cannot_be_is_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least {max(value + 1, 0)}, got {value}"):
        MultiRound(**{"num_users": 1, "num_rounds": 1, field: value})


@pytest.mark.parametrize("gap_s", [-1.0, float("nan"), float("inf")])
def test_a_gap_that_is_no_time_is_refused(gap_s: float) -> None:
    with pytest.raises(ValueError, match="mean_gap_s must be finite"):
        MultiRound(1, 1, mean_gap_s=gap_s)


SYNTHETIC = ROOT / "tests" / "traces" / "mooncake_synthetic_400.jsonl"


def three_tiers(write: WritePolicy) -> list[CacheTier]:
    return [CacheTier("gpu", 8), CacheTier("dram", 16, write), CacheTier("ssd", 1000, write)]


def single(ids: list[int]) -> Trace:
    """One block of 4 tokens per request."""
    return build_trace([[block] for block in ids], [4] * len(ids), block_tokens=4)


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_written_through_each_tier_adds_what_it_holds_beyond_the_smaller_ones(
    trace: Trace, sizes: list[int]
) -> None:
    tiers = [CacheTier(f"tier {level}", size) for level, size in enumerate(sorted(sizes))]
    hits = simulate_tiers(trace, tiers).hit_tokens
    expected = simulate(trace, "lru", capacities_tokens=sorted(sizes))
    assert hits.cumsum(axis=1).T.tolist() == [tokens.tolist() for tokens in expected]


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), capacity=st.integers(0, 60))
def test_an_endless_lower_tier_written_back_loses_nothing(trace: Trace, capacity: int) -> None:
    tiers = [CacheTier("gpu", capacity), CacheTier("ssd", 10**9, "back")]
    hits = simulate_tiers(trace, tiers).hit_tokens
    assert hits.sum() == simulate(trace, "lru", capacities_tokens=[10**9])[0].sum()
    assert hits[:, 0].tolist() == simulate(trace, "lru", capacities_tokens=[capacity])[0].tolist()


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), capacity=st.integers(0, 60))
def test_selective_writing_never_writes_more_than_writing_through(trace: Trace, capacity: int) -> None:
    written = [
        simulate_tiers(trace, [CacheTier("gpu", capacity), CacheTier("ssd", 10**9, write)]).written_tokens[1]
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
    tiers = [CacheTier("gpu", 4), CacheTier("dram", 4, "back"), CacheTier("ssd", 100, "back")]
    hits = simulate_tiers(single([0, 1, 2, 0]), tiers)
    assert hits.hit_tokens[3].tolist() == [0, 0, 4]


def test_the_run_goes_on_from_one_tier_into_the_next() -> None:
    trace = build_trace([[0, 1, 2], [0, 1, 2]], [12, 12], block_tokens=4)
    hits = simulate_tiers(trace, [CacheTier("gpu", 4), CacheTier("dram", 8), CacheTier("ssd", 12)])
    assert hits.hit_tokens[1].tolist() == [4, 4, 4]
    assert hits.hit_ratios == {"gpu": 4 / 24, "dram": 4 / 24, "ssd": 4 / 24}


def test_a_shared_pool_hits_what_another_instance_wrote() -> None:
    trace = single([0, 0, 0, 0])
    instances = spread_round_robin(4, 2)
    apart = simulate_tiers(trace, [CacheTier("gpu", 0), CacheTier("dram", 100)], instances=instances)
    pooled = simulate_tiers(
        trace, [CacheTier("gpu", 0), CacheTier("dram", 100, shared=True)], instances=instances
    )
    assert apart.hit_tokens[:, 1].tolist() == [0, 0, 4, 4]
    assert pooled.hit_tokens[:, 1].tolist() == [0, 4, 4, 4]
    assert [int(hits.written_tokens[1]) for hits in (apart, pooled)] == [8, 4]


def test_one_pool_of_a_published_trace_hits_more_than_four_quarters() -> None:
    trace = read_trace(SYNTHETIC)
    where = spread_round_robin(trace.num_requests, 4)
    apart = simulate_tiers(trace, [CacheTier("gpu", 0), CacheTier("dram", 500_000)], instances=where)
    pooled = simulate_tiers(
        trace, [CacheTier("gpu", 0), CacheTier("dram", 2_000_000, shared=True)], instances=where
    )
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
        ([CacheTier("a", 1), CacheTier("a", 2)], "tiers need different names"),
        ([CacheTier("a", -1)], "tier a: capacity_tokens must not be negative, got -1"),
        (
            [CacheTier("a", 1, shared=True), CacheTier("b", 1)],
            "tier b belongs to one instance but lies below shared a",
        ),
    ],
)
def test_tiers_that_make_no_sense_are_refused(tiers: list[CacheTier], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate_tiers(single([0]), tiers)


@pytest.mark.parametrize("instances", [[0, 1], [-1]])
def test_every_request_needs_one_instance(instances: list[int]) -> None:
    with pytest.raises(ValueError, match="instances must be 1 numbers from 0"):
        simulate_tiers(single([0]), [CacheTier("gpu", 4)], instances=np.array(instances))
