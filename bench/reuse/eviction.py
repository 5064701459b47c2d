"""FIFO, LRU and LFU at one capacity: the trace replayed against a cache of blocks.

One loop serves all three.  Resident blocks wait in queues by rank, and the oldest block of the lowest rank
goes first; the policies differ only in what a touch of a resident block does:

    fifo   nothing
    lru    go to the end of the same queue
    lfu    go to the end of the next queue (rank: touches since the block came in; ties: the longest unused)

A request's hits are counted when it arrives; then its blocks are touched last to first, each absent one
comes in, and blocks leave until all fit.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.reuse.block_queue import NONE, Queues, dequeue, enqueue, lowest_rank, make_queues
from bench.reuse.jit import inner, kernel, require_compiled
from bench.reuse.trace import IntArray, Trace, Unit

ReplayPolicy = Literal["fifo", "lru", "lfu"]
_FIFO, _LRU, _LFU = 0, 1, 2
_CODES: dict[ReplayPolicy, int] = {"fifo": _FIFO, "lru": _LRU, "lfu": _LFU}


@inner
def _count_leading(ids: NDArray[np.int32], begin: int, end: int, rank: IntArray) -> int:
    position = begin
    while position < end and rank[ids[position]] != NONE:
        position += 1
    return position - begin


@inner
def _make_room(queues: Queues, weights: IntArray, room: int) -> int:
    """Drop blocks until there is room for 0 or nothing is left; what `room` then is."""
    while room < 0:
        rank = lowest_rank(queues)
        if rank == NONE:
            break
        victim = queues.head[rank]
        dequeue(queues, victim)
        room += weights[victim]
    return room


@inner
def _touch_resident(queues: Queues, block: int, code: int) -> None:
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
    queues: Queues,
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
