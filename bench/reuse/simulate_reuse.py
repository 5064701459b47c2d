"""Hit tokens of each request at some capacities, for the policies that people run; every figure is modelled."""

import math
from collections.abc import Sequence
from typing import Literal

from bench.reuse.eviction import replay, replay_endless
from bench.reuse.lru_curve import find_lru_hits
from bench.reuse.optimal import find_next_request, replay_optimal
from bench.reuse.trace import IntArray, Trace, Unit

Policy = Literal["lru", "lfu", "fifo", "optimal"]
POLICIES: tuple[Policy, ...] = ("lru", "lfu", "fifo", "optimal")
ORIGIN = "modelled"
MOST_TOKENS = 10**18  # of a cache; what is larger holds everything that a trace can name


def require_policy(name: str) -> Policy:
    """The policy of this name."""
    for policy in POLICIES:
        if policy == name:
            return policy
    raise ValueError(f"unknown policy {name!r}; choose from {', '.join(POLICIES)}")


def capacity_in_tokens(capacity: float, kv_bytes_per_token: float | None = None) -> int:
    """Whole tokens that fit; `capacity` is in bytes if the KV bytes of a token are given, else tokens."""
    size = 1.0 if kv_bytes_per_token is None else kv_bytes_per_token
    if not (math.isfinite(size) and size > 0):
        raise ValueError(f"KV bytes per token must be positive and finite, got {size}")
    if not (math.isfinite(capacity) and capacity >= 0):
        raise ValueError(f"a capacity must be finite and not negative, got {capacity}")
    tokens = capacity // size
    if tokens > MOST_TOKENS:
        raise ValueError(f"a capacity must be at most {MOST_TOKENS:.0e} tokens, got {tokens:.3g}")
    return int(tokens)


def simulate(
    trace: Trace, policy: Policy, *, capacities_tokens: Sequence[int], unit: Unit = "tokens"
) -> list[IntArray]:
    """Hit tokens of each request, (num_requests,) for each capacity, from a cold start; modelled.

    Args:
        trace: requests in order.
        policy: `optimal` knows the future and bounds the others.
        capacities_tokens: sizes of the cache.
        unit: `tokens` counts a partial last block by its tokens; `blocks` has room for whole blocks only,
            and a partial one takes a whole one.
    """
    size = trace.block_tokens if unit == "blocks" else 1
    capacities = [tokens // size for tokens in capacities_tokens]
    if policy == "lru":
        return find_lru_hits(trace, capacities, unit)
    if policy == "optimal":
        next_request = find_next_request(trace)
        return [replay_optimal(trace, next_request, capacity=capacity, unit=unit) for capacity in capacities]
    return [replay(trace, policy, capacity=capacity, unit=unit) for capacity in capacities]


def most_hit_tokens(trace: Trace) -> IntArray:
    """(num_requests,) hit tokens in a cache that never drops a block."""
    return replay_endless(trace)
