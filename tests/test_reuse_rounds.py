"""Multi-round conversations: prompts repeat what they should, and lower tiers keep what upper ones lose."""

import numpy as np
import pytest

from bench.predict.curve import FloatArray
from bench.reuse.conversations import MultiRound, generate_conversations
from bench.reuse.eviction import simulate
from bench.reuse.hit_tables import depth_table
from bench.reuse.savings import CostCurves
from bench.reuse.tier_hits import Tier

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
    tiers = [Tier("gpu", 40), Tier("dram", 100), Tier("ssd", 10_000)]
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
    tiers = [Tier("gpu", 0), Tier("ssd", 10_000)]
    talk = generate_conversations(PLAN)
    table = depth_table(talk.trace, tiers, rounds=talk.rounds, curves=CURVES, fetches_s={"ssd": load})
    seconds = table[table["tiers"] == "gpu+ssd"]["always_load_s"].tolist()
    assert seconds == pytest.approx([(0.34 + 4 * (0.008 + 0.26)) / 5, 0.032 + 0.09, 0.04 + 0.08])


def test_a_tier_without_a_load_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="no load curve for tier ssd"):
        depth_table(generate_conversations(PLAN).trace, [Tier("gpu", 1), Tier("ssd", 1)], curves=CURVES)


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
