"""Pools of instances are independent caches; a shared one is a single cache, wherever it is simulated."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reuse import fleet
from bench.reuse.eviction import POLICIES, Policy, simulate
from bench.reuse.fleet import FleetError, open_fleet
from bench.reuse.hit_tables import choose_capacities, hit_table
from bench.reuse.pools import (
    find_sessions,
    pool_per_instance,
    route_sessions,
    shared_pool,
    spread_round_robin,
)
from bench.reuse.trace import Trace, build_trace, select_requests
from tests.helpers.slow_caches import replay_slowly, requests_of
from tests.reuse.test_eviction import BLOCK_TOKENS, chained_traces


def table_of(trace: Trace, num_instances: int, *, capacity: int) -> dict[tuple[str, str], float]:
    instances = spread_round_robin(trace.num_requests, num_instances)
    pools = [shared_pool(trace), pool_per_instance(trace, instances, num_instances)]
    table = hit_table(trace, [capacity], POLICIES, pools=pools)
    keys = zip(table["pool"], table["policy"], strict=True)
    return dict(zip(keys, table["hit_ratio"], strict=True))


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
@settings(max_examples=40, deadline=None)
@given(trace=chained_traces(), num_instances=st.integers(1, 4), capacity=st.integers(0, 80))
def test_pools_per_instance_hit_what_slow_caches_of_their_own_hit(
    policy: Policy, trace: Trace, num_instances: int, capacity: int
) -> None:
    expected = sum(
        sum(
            replay_slowly(
                requests_of(trace)[first::num_instances],
                BLOCK_TOKENS,
                policy=policy,
                capacity=capacity // num_instances,
                whole_blocks=False,
            )
        )
        for first in range(num_instances)
    )
    found = table_of(trace, num_instances, capacity=capacity)["per-instance", policy]
    assert found == expected / trace.input_tokens.sum()


@settings(max_examples=40, deadline=None)
@given(trace=chained_traces(), num_instances=st.integers(1, 4), capacity=st.integers(0, 80))
def test_a_shared_pool_is_one_cache_however_many_instances_there_are(
    trace: Trace, num_instances: int, capacity: int
) -> None:
    found = table_of(trace, num_instances, capacity=capacity)
    for policy in POLICIES:
        alone = simulate(trace, policy, capacities_tokens=[capacity])[0].sum()
        assert found["shared", policy] == alone / trace.input_tokens.sum()


def test_a_shared_lru_pool_cannot_be_split_by_session_without_changing_its_hits() -> None:
    trace = build_trace([[0], [1], [1], [2], [0]], [4] * 5, block_tokens=4)
    instances = np.array([0, 1, 1, 1, 0])
    split = pool_per_instance(trace, instances, 2)
    table = hit_table(trace, [8], pools=[shared_pool(trace), split])
    # the shared pool drops 0 for 2; a pool of 4 tokens for the session of 0 alone keeps it
    assert table["hit_ratio"].tolist() == [4 / 20, 8 / 20]


def test_the_maximum_of_pools_apart_counts_only_what_each_has_seen() -> None:
    trace = build_trace([[0], [0], [0], [0]], [4] * 4, block_tokens=4)
    pools = [shared_pool(trace), pool_per_instance(trace, spread_round_robin(4, 2), 3)]
    table = hit_table(trace, [1000], pools=pools)
    assert table.attrs["pool_max_hit_ratios"] == {"shared": 3 / 4, "per-instance": 2 / 4}
    assert table["share_of_max"].tolist() == [1.0, 2 / 3]


@settings(max_examples=40, deadline=None)
@given(trace=chained_traces(), first=st.integers(0, 3), step=st.integers(1, 4))
def test_chosen_requests_keep_their_blocks_apart_and_equal(trace: Trace, first: int, step: int) -> None:
    where = np.arange(trace.num_requests)[first::step]
    if len(where) == 0:
        return
    part = select_requests(trace, where)
    old = [blocks for blocks, _ in requests_of(trace)[first::step]]
    new = [blocks for blocks, _ in requests_of(part)]
    pairs = {pair for mine, theirs in zip(old, new, strict=True) for pair in zip(mine, theirs, strict=True)}
    assert len({mine for mine, _ in pairs}) == len({theirs for _, theirs in pairs}) == len(pairs)
    assert part.num_ids == len(pairs)
    assert part.input_tokens.tolist() == trace.input_tokens[where].tolist()


def test_requests_with_equal_first_blocks_are_a_session_and_always_go_to_one_instance() -> None:
    trace = build_trace([[0, 1, 2], [0, 3], [0, 1, 4], [0], [0, 3, 5]], [12, 8, 12, 4, 12], block_tokens=4)
    sessions = find_sessions(trace, 2)
    assert sessions.tolist() == [1, 3, 1, 0, 3]
    for count in (1, 2, 7):
        where = route_sessions(sessions, count)
        assert where[0] == where[2]
        assert where[1] == where[4]
        assert set(where.tolist()) <= set(range(count))


def test_sessions_spread_evenly_over_instances() -> None:
    counts = Counter(route_sessions(np.arange(80_000), 8).tolist())
    assert len(counts) == 8
    assert max(counts.values()) < 10_500  # 10,000 each, standard deviation 94


def test_instances_that_do_not_fit_the_requests_are_refused() -> None:
    trace = build_trace([[0], [1]], [4, 4], block_tokens=4)
    for wrong in ([0], [0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="instances must be 2 numbers from 0 to 1"):
            pool_per_instance(trace, np.array(wrong), 2)
    with pytest.raises(ValueError, match="at least 1 block"):
        find_sessions(trace, 0)


def test_chosen_capacities_end_where_everything_fits() -> None:
    trace = build_trace([[0, 1], [2, 3]], [8, 8], block_tokens=4)
    assert choose_capacities(trace) == (1, 2, 5, 10, 20)
    assert choose_capacities(build_trace([list(range(300))], [153_600], block_tokens=512)) == (
        *(200, 500, 1000, 2000, 5000),
        *(10_000, 20_000, 50_000, 100_000, 200_000),
    )


@pytest.mark.slow
def test_a_ray_on_this_machine_gives_the_figures_of_one_process() -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'kvcross[fleet]'")
    trace = build_trace(
        [[0, 1], [2], [0, 1], [2], [0, 3], [2, 4]] * 5, [8, 4, 8, 4, 8, 8] * 5, block_tokens=4
    )
    sessions = route_sessions(find_sessions(trace, 1), 2)
    pools = [shared_pool(trace), pool_per_instance(trace, sessions, 2)]
    here = hit_table(trace, [8, 12, 16], POLICIES, pools=pools)
    with open_fleet("local") as run:
        there = hit_table(trace, [8, 12, 16], POLICIES, pools=pools, run=run)
    assert there.equals(here)
    assert there["hit_ratio"].nunique() > 3


def test_without_ray_the_way_to_install_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "find_spec", lambda name: None)
    with (
        pytest.raises(FleetError, match=r"^skipped: ray is not installed: pip install 'kvcross\[fleet\]'$"),
        open_fleet("local"),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:1", "no Ray at 127.0.0.1:1: "),
        ("nowhere", "write local, or HOST:PORT"),
        ("a:99999", "HOST:PORT"),
    ],
)
def test_a_cluster_that_does_not_answer_is_refused_at_once(
    address: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "require_ray", lambda: None)
    with pytest.raises(FleetError, match=says), open_fleet(address):
        pass
