"""Hit ratio against capacity for a trace and the policies that people run; every figure is modelled."""

import math
from collections.abc import Sequence
from typing import Literal

import pandas as pd

from bench.analyse.reuse.optimal import find_next_request, replay_optimal
from bench.analyse.reuse.replay import replay
from bench.analyse.reuse.stack import NEVER, find_lru_reach
from bench.analyse.reuse.trace import IntArray, Trace, Unit

Policy = Literal["lru", "lfu", "fifo", "optimal"]
POLICIES: tuple[Policy, ...] = ("lru", "lfu", "fifo", "optimal")
ORIGIN = "modelled"


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
    return int(capacity // size)


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
        reach = find_lru_reach(trace, unit)
        return [reach.hit_tokens(capacity) for capacity in capacities]
    if policy == "optimal":
        next_request = find_next_request(trace)
        return [replay_optimal(trace, next_request, capacity=capacity, unit=unit) for capacity in capacities]
    return [replay(trace, policy, capacity=capacity, unit=unit) for capacity in capacities]


def most_hit_tokens(trace: Trace) -> IntArray:
    """(num_requests,) hit tokens in a cache that never drops a block."""
    return find_lru_reach(trace, "blocks").hit_tokens(NEVER - 1)


def hit_table(
    trace: Trace,
    capacities: Sequence[float],
    policies: Sequence[str] = ("lru",),
    *,
    unit: Unit = "tokens",
    kv_bytes_per_token: float | None = None,
) -> pd.DataFrame:
    """One row per policy and capacity: policy, capacity_tokens, hit_ratio, share_of_max; modelled.

    `hit_ratio` is hit tokens / input tokens; `share_of_max` compares it with a cache that never drops a
    block, and is missing when nothing can ever hit.  `table.attrs` says origin, unit and the maximum.

    Args:
        trace: requests in order.
        capacities: in tokens, or in bytes when `kv_bytes_per_token` is given.
        policies: of POLICIES.
        unit: see `simulate`.
        kv_bytes_per_token: KV bytes of one token, all layers.

    Raises:
        ValueError: unknown policy, or a capacity that is negative or not finite.
    """
    tokens = [capacity_in_tokens(capacity, kv_bytes_per_token) for capacity in capacities]
    names = [require_policy(name) for name in policies]
    total = int(trace.input_tokens.sum())
    most = int(most_hit_tokens(trace).sum())
    rows = [
        (name, capacity, int(hits.sum()) / total, int(hits.sum()) / most if most else None)
        for name in names
        for capacity, hits in zip(
            tokens, simulate(trace, name, capacities_tokens=tokens, unit=unit), strict=True
        )
    ]
    table = pd.DataFrame(rows, columns=["policy", "capacity_tokens", "hit_ratio", "share_of_max"])
    table["share_of_max"] = table["share_of_max"].astype("float64")
    table.attrs.update(origin=ORIGIN, unit=unit, max_hit_ratio=most / total, notices=trace.notices)
    return table
