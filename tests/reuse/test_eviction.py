"""LRU, LFU, FIFO and the optimum against slow references, on chained and on arbitrary ids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reuse import jit as compiled
from bench.reuse.eviction import POLICIES, Policy, find_next_request, replay, simulate
from bench.reuse.jit import NumbaMissingError, require_compiled
from bench.reuse.lru_curve import NEVER, find_lru_reach
from bench.reuse.trace import Trace, Unit, build_trace
from tests.helpers.slow_caches import (
    Request,
    leading_tokens,
    most_block_hits,
    most_token_hits,
    replay_slowly,
    requests_of,
)

BLOCK_TOKENS = 4
UNITS: tuple[Unit, ...] = ("tokens", "blocks")


@st.composite
def chained_traces(
    draw: st.DrawFn, most_requests: int = 25, *, most_blocks: int = 5, block_tokens: int = BLOCK_TOKENS
) -> Trace:
    """Requests whose ids name whole prefixes, as hashes do: paths from the root of a tree."""
    names: dict[tuple[object, ...], int] = {}
    ids, tokens = [], []
    for _ in range(draw(st.integers(1, most_requests))):
        steps = draw(st.lists(st.integers(0, 2), min_size=1, max_size=most_blocks))
        last = draw(st.integers(1, block_tokens))
        paths: list[tuple[object, ...]] = [tuple(steps[: i + 1]) for i in range(len(steps))]
        if last < block_tokens:
            paths[-1] = (*paths[-1], "tokens", last)
        ids.append([names.setdefault(path, len(names)) for path in paths])
        tokens.append((len(steps) - 1) * block_tokens + last)
    return build_trace(ids, tokens, block_tokens=block_tokens)


@st.composite
def arbitrary_traces(draw: st.DrawFn) -> Trace:
    """Requests of whole blocks with any ids in any place, repeated within a request too."""
    ids = draw(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=25))
    return build_trace(ids, [len(blocks) * BLOCK_TOKENS for blocks in ids], block_tokens=BLOCK_TOKENS)


traces = st.one_of(chained_traces(), arbitrary_traces())
capacities = st.integers(0, 80)


def total_hits(trace: Trace, policy: Policy, *, capacity: int, unit: Unit) -> int:
    return int(simulate(trace, policy, capacities_tokens=[capacity], unit=unit)[0].sum())


def blocks_hit(trace: Trace, policy: Policy, *, capacity: int) -> int:
    hits = simulate(trace, policy, capacities_tokens=[capacity], unit="blocks")[0]
    return int((-(-hits // trace.block_tokens)).sum())


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
@settings(max_examples=60, deadline=None)
@given(trace=traces, capacity=capacities)
def test_each_policy_hits_what_the_slow_cache_hits(
    trace: Trace, capacity: int, policy: Policy, unit: Unit
) -> None:
    whole = unit == "blocks"
    expected = replay_slowly(
        requests_of(trace),
        BLOCK_TOKENS,
        policy=policy,
        capacity=capacity // BLOCK_TOKENS if whole else capacity,
        whole_blocks=whole,
    )
    assert simulate(trace, policy, capacities_tokens=[capacity], unit=unit)[0].tolist() == expected


@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=60, deadline=None)
@given(trace=traces)
def test_one_pass_gives_the_same_lru_as_a_replay_at_every_capacity(trace: Trace, unit: Unit) -> None:
    reach = find_lru_reach(trace, unit)
    for capacity in range(0, 60, 3):
        expected = replay(trace, "lru", capacity=capacity, unit=unit)
        assert reach.hit_tokens(capacity).tolist() == expected.tolist()


@settings(max_examples=60, deadline=None)
@given(trace=traces)
def test_the_curve_agrees_with_the_hits_at_each_of_its_capacities(trace: Trace) -> None:
    reach = find_lru_reach(trace, "tokens")
    sizes, hits = reach.curve()
    assert hits.tolist() == [int(reach.hit_tokens(size).sum()) for size in sizes.tolist()]
    assert all(np.diff(hits) > 0)


@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=60, deadline=None)
@given(trace=traces, first=capacities, second=capacities)
def test_more_room_never_hits_less_under_lru(trace: Trace, first: int, second: int, unit: Unit) -> None:
    few, many = simulate(trace, "lru", capacities_tokens=sorted((first, second)), unit=unit)
    assert few.sum() <= many.sum()


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(), first=capacities, second=capacities)
def test_more_room_never_hits_less_under_the_optimum_in_what_it_counts(
    trace: Trace, first: int, second: int
) -> None:
    """Where ids name whole prefixes, as hashes do: a block is then never held without those before it."""
    small, large = sorted((first, second))
    few, many = simulate(trace, "optimal", capacities_tokens=[small, large], unit="tokens")
    assert few.sum() <= many.sum()
    assert blocks_hit(trace, "optimal", capacity=small) <= blocks_hit(trace, "optimal", capacity=large)


@settings(max_examples=100, deadline=None)
@given(trace=chained_traces(), capacity=capacities)
def test_no_policy_hits_more_tokens_than_the_optimum(trace: Trace, capacity: int) -> None:
    best = total_hits(trace, "optimal", capacity=capacity, unit="tokens")
    assert all(total_hits(trace, policy, capacity=capacity, unit="tokens") <= best for policy in POLICIES)


@settings(max_examples=100, deadline=None)
@given(trace=chained_traces(), capacity=capacities)
def test_no_policy_hits_more_blocks_than_the_optimum_of_whole_blocks(trace: Trace, capacity: int) -> None:
    best = blocks_hit(trace, "optimal", capacity=capacity)
    assert all(blocks_hit(trace, policy, capacity=capacity) <= best for policy in POLICIES)


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces(most_requests=5, most_blocks=3), capacity=st.integers(0, 5))
def test_the_optimum_of_whole_blocks_is_the_best_of_all_choices(trace: Trace, capacity: int) -> None:
    best = most_block_hits(requests_of(trace), capacity)
    assert blocks_hit(trace, "optimal", capacity=capacity * BLOCK_TOKENS) == best


@settings(max_examples=40, deadline=None)
@given(trace=chained_traces(most_requests=4, most_blocks=2, block_tokens=2), capacity=st.integers(0, 7))
def test_the_optimum_of_tokens_is_the_best_of_all_choices(trace: Trace, capacity: int) -> None:
    best = most_token_hits(requests_of(trace), trace.block_tokens, capacity=capacity)
    assert total_hits(trace, "optimal", capacity=capacity, unit="tokens") == best


@settings(max_examples=60, deadline=None)
@given(trace=chained_traces())
def test_without_a_limit_every_policy_hits_all_that_was_seen_before(trace: Trace) -> None:
    seen: set[int] = set()
    expected = []
    for request in requests_of(trace):
        expected.append(leading_tokens(request, BLOCK_TOKENS, resident=seen))
        seen.update(request[0])
    for policy in POLICIES:
        hits = simulate(trace, policy, capacities_tokens=[10**6])[0]
        assert hits.tolist() == expected, policy


def test_a_block_behind_a_missing_one_does_not_count() -> None:
    requests: list[Request] = [([0, 1, 2], 12), ([9, 1, 2], 12), ([0, 1, 2], 12)]
    trace = build_trace(
        [blocks for blocks, _ in requests], [tokens for _, tokens in requests], block_tokens=4
    )
    # before the third request the stack is 9, 1, 2, 0 from its top: 0 needs 16 tokens, so 1 and 2 do
    assert [int(find_lru_reach(trace, "tokens").hit_tokens(size)[2]) for size in (15, 16)] == [0, 12]
    assert find_lru_reach(trace, "tokens").reach.tolist() == [NEVER] * 6 + [16, 16, 16]


def test_leaves_go_first() -> None:
    trace = build_trace([[0, 1], [2], [0, 1]], [8, 4, 8], block_tokens=4)
    for policy in ("lru", "lfu", "fifo"):
        assert simulate(trace, policy, capacities_tokens=[8])[0].tolist() == [0, 0, 4], policy


def test_a_request_larger_than_the_cache_leaves_its_front_behind() -> None:
    trace = build_trace([[0, 1, 2, 3], [0, 1, 2, 3]], [16, 16], block_tokens=4)
    assert simulate(trace, "lru", capacities_tokens=[11])[0].tolist() == [0, 8]


def test_a_partial_block_takes_its_tokens_or_a_whole_block() -> None:
    trace = build_trace([[0, 1], [0, 1]], [5, 5], block_tokens=4)
    assert simulate(trace, "lru", capacities_tokens=[5], unit="tokens")[0].tolist() == [0, 5]
    assert simulate(trace, "lru", capacities_tokens=[5], unit="blocks")[0].tolist() == [0, 4]
    assert simulate(trace, "lru", capacities_tokens=[8], unit="blocks")[0].tolist() == [0, 5]


def test_the_optimum_keeps_what_is_needed_next_and_lru_does_not() -> None:
    trace = build_trace([[0], [1], [2], [0], [1], [2]], [4] * 6, block_tokens=4)
    assert simulate(trace, "lru", capacities_tokens=[8])[0].sum() == 0
    assert simulate(trace, "optimal", capacities_tokens=[8])[0].tolist() == [0, 0, 0, 4, 4, 0]


def test_lfu_keeps_the_often_used_block_that_lru_drops() -> None:
    trace = build_trace([[0], [0], [1], [2], [0]], [4] * 5, block_tokens=4)
    assert simulate(trace, "lfu", capacities_tokens=[8])[0].tolist() == [0, 4, 0, 0, 4]
    assert simulate(trace, "lru", capacities_tokens=[8])[0].tolist() == [0, 4, 0, 0, 0]
    assert simulate(trace, "fifo", capacities_tokens=[8])[0].tolist() == [0, 4, 0, 0, 0]


def test_the_next_request_skips_repeats_within_a_request() -> None:
    trace = build_trace([[0, 0], [1], [0]], [8, 4, 4], block_tokens=4)
    assert find_next_request(trace).tolist() == [2, 2, 3, 3]


def test_a_long_trace_without_numba_is_skipped_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "numba", None)
    require_compiled(1_000_000)
    with pytest.raises(NumbaMissingError, match="1000001"):
        require_compiled(1_000_001)


def test_no_trace_is_too_long_for_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "numba", object())
    require_compiled(10**10)
