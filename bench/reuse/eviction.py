"""FIFO, LRU and LFU at one capacity: the trace replayed against a cache of blocks.

One loop serves all three.  Resident blocks wait in queues by rank, and the oldest block of the lowest rank
goes first; the policies differ only in what a touch of a resident block does:

    fifo   nothing
    lru    go to the end of the same queue
    lfu    go to the end of the next queue (rank: touches since the block came in; ties: the longest unused)

A request's hits are counted when it arrives; then its blocks are touched last to first, each absent one
comes in, and blocks leave until all fit.

Hit tokens of each request at some capacities, for the policies that people run; every figure is modelled.

Belady's optimum at one capacity: what no cache can beat, because it knows the requests to come.

After each request, of the blocks in the cache and those of the request, those needed soonest are kept and
the rest is dropped; blocks that never come again are not kept at all.  Of blocks needed by the same
request, the deepest goes first.

* `unit="blocks"`: no policy hits more *blocks* (a partial last block counts as one).
* `unit="tokens"`: blocks of different sizes make the exact optimum of whole blocks intractable (a
  knapsack), so the tail of one block may be dropped and its front still counts.  No policy hits more
  *tokens*: this is the exact optimum of a cache that keeps tokens, and an upper bound for one that keeps
  blocks.

Both need ids that name whole prefixes, as a trace's chained hashes do.

Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal
5(2), 1966.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.reuse.block_queue import (
    NONE,
    RankedQueues,
    dequeue,
    enqueue,
    highest_rank,
    lowest_rank,
    make_queues,
)
from bench.reuse.jit import kernel, require_compiled
from bench.reuse.lru_curve import find_lru_hits
from bench.reuse.trace import IntArray, Trace, Unit


@kernel
def _find_next_request(
    ids: NDArray[np.int32], starts: IntArray, soonest: NDArray[np.int32], found: NDArray[np.int32]
) -> None:
    """For each block reference the next request that refers to it, num_requests for none."""
    for request in range(len(starts) - 2, -1, -1):
        for position in range(starts[request], starts[request + 1]):
            found[position] = soonest[ids[position]]
        for position in range(starts[request], starts[request + 1]):
            soonest[ids[position]] = request


@kernel
def _count_kept(ids: NDArray[np.int32], begin: int, end: int, weights: IntArray, kept: IntArray) -> int:
    """Room taken by the leading run of the request that is kept; ends within the first trimmed block."""
    total = 0
    for position in range(begin, end):
        total += kept[ids[position]]
        if kept[ids[position]] < weights[ids[position]]:
            break
    return total


@kernel
def _release(ids: NDArray[np.int32], begin: int, end: int, queues: RankedQueues, kept: IntArray) -> int:
    """Take the request's blocks out of the queues; how much room that gives."""
    room = 0
    for position in range(begin, end):
        block = ids[position]
        if kept[block] > 0:
            dequeue(queues, block)
            room += kept[block]
            kept[block] = 0
    return room


@kernel
def _trim(queues: RankedQueues, kept: IntArray, room: int) -> int:
    """Drop what is needed last until `room` is not negative."""
    while room < 0:
        victim = queues.head[highest_rank(queues)]
        if kept[victim] > -room:
            kept[victim] += room
            return 0
        room += kept[victim]
        kept[victim] = 0
        dequeue(queues, victim)
    return room


@kernel
def _replay_optimal(
    ids: NDArray[np.int32],
    starts: IntArray,
    weights: IntArray,
    next_request: NDArray[np.int32],
    queues: RankedQueues,
    kept: IntArray,
    hits: IntArray,
    capacity: int,
) -> None:
    room = capacity
    num_requests = len(starts) - 1
    for request in range(num_requests):
        begin, end = starts[request], starts[request + 1]
        hits[request] = _count_kept(ids, begin, end, weights, kept)
        room += _release(ids, begin, end, queues, kept)
        for position in range(end - 1, begin - 1, -1):
            block = ids[position]
            if next_request[position] == num_requests or kept[block] > 0:
                continue
            kept[block] = weights[block]
            enqueue(queues, block, next_request[position])
            room = _trim(queues, kept, room - weights[block])


def find_next_request(trace: Trace) -> NDArray[np.int32]:
    """(num_references,) the next request that refers to the same block, num_requests for none."""
    require_compiled(len(trace.ids))
    found = np.empty(len(trace.ids), dtype=np.int32)
    soonest = np.full(trace.num_ids, trace.num_requests, dtype=np.int32)
    _find_next_request(trace.ids, trace.starts, soonest, found)
    return found


def replay_optimal(trace: Trace, next_request: NDArray[np.int32], *, capacity: int, unit: Unit) -> IntArray:
    """(num_requests,) tokens of each request that the best possible cache holds; modelled."""
    hits = np.zeros(trace.num_requests, dtype=np.int64)
    kept = np.zeros(trace.num_ids, dtype=np.int64)
    queues = make_queues(trace.num_requests, trace.num_ids)
    weights = trace.weights(unit)
    _replay_optimal(trace.ids, trace.starts, weights, next_request, queues, kept, hits, capacity)
    tokens = hits * trace.block_tokens if unit == "blocks" else hits
    return np.minimum(tokens, trace.input_tokens)


ReplayPolicy = Literal["fifo", "lru", "lfu"]
_FIFO, _LRU, _LFU = 0, 1, 2
_CODES: dict[ReplayPolicy, int] = {"fifo": _FIFO, "lru": _LRU, "lfu": _LFU}


@kernel
def _count_leading(ids: NDArray[np.int32], begin: int, end: int, rank: IntArray) -> int:
    position = begin
    while position < end and rank[ids[position]] != NONE:
        position += 1
    return position - begin


@kernel
def _make_room(queues: RankedQueues, weights: IntArray, room: int) -> int:
    """Drop blocks until there is room for 0 or nothing is left; what `room` then is."""
    while room < 0:
        rank = lowest_rank(queues)
        if rank == NONE:
            break
        victim = queues.head[rank]
        dequeue(queues, victim)
        room += weights[victim]
    return room


@kernel
def _touch_resident(queues: RankedQueues, block: int, code: int) -> None:
    if code == _FIFO:
        return
    rank = queues.rank[block]
    dequeue(queues, block)
    enqueue(queues, block, rank + 1 if code == _LFU else rank)


@kernel
def _replay(
    ids: NDArray[np.int32],
    starts: IntArray,
    weights: IntArray,
    queues: RankedQueues,
    leading: IntArray,
    capacity: int,
    code: int,
) -> None:
    room = capacity
    for request in range(len(starts) - 1):
        begin, end = starts[request], starts[request + 1]
        leading[request] = _count_leading(ids, begin, end, queues.rank)
        for position in range(end - 1, begin - 1, -1):
            block = ids[position]
            if queues.rank[block] != NONE:
                _touch_resident(queues, block, code)
                continue
            weight = weights[block]
            room = _make_room(queues, weights, room - weight)
            if room < 0:  # larger than the cache, which is empty now
                room += weight
            else:
                enqueue(queues, block, 0)


def replay(trace: Trace, policy: ReplayPolicy, *, capacity: int, unit: Unit) -> IntArray:
    """(num_requests,) tokens of each request that a cache of this capacity holds; modelled."""
    require_compiled(len(trace.ids))
    most_touches = int(np.bincount(trace.ids).max()) if policy == "lfu" else 1
    queues = make_queues(most_touches + 1, trace.num_ids)
    leading = np.zeros(trace.num_requests, dtype=np.int64)
    _replay(trace.ids, trace.starts, trace.weights(unit), queues, leading, capacity, _CODES[policy])
    return np.minimum(leading * trace.block_tokens, trace.input_tokens)


@kernel
def _replay_endless(
    ids: NDArray[np.int32], starts: IntArray, seen: NDArray[np.bool_], leading: IntArray
) -> None:
    for request in range(len(starts) - 1):
        begin, end = starts[request], starts[request + 1]
        position = begin
        while position < end and seen[ids[position]]:
            position += 1
        leading[request] = position - begin
        for rest in range(position, end):
            seen[ids[rest]] = True


def replay_endless(trace: Trace) -> IntArray:
    """(num_requests,) tokens of each request that a cache that never drops a block holds; modelled."""
    require_compiled(len(trace.ids))
    leading = np.zeros(trace.num_requests, dtype=np.int64)
    _replay_endless(trace.ids, trace.starts, np.zeros(trace.num_ids, dtype=np.bool_), leading)
    return np.minimum(leading * trace.block_tokens, trace.input_tokens)


Policy = Literal["lru", "lfu", "fifo", "optimal"]
POLICIES: tuple[Policy, ...] = ("lru", "lfu", "fifo", "optimal")
ORIGIN = "modelled"
MAX_TOKENS = 10**18  # of a cache; what is larger holds everything that a trace can name


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
    if tokens > MAX_TOKENS:
        raise ValueError(f"a capacity must be at most {MAX_TOKENS:.0e} tokens, got {tokens:.3g}")
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
