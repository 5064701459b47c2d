"""Belady's optimum at one capacity: what no cache can beat, because it knows the requests to come.

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

import numpy as np
from numpy.typing import NDArray

from bench.reuse.block_queue import RankedQueues, dequeue, enqueue, highest_rank, make_queues
from bench.reuse.jit import inner, kernel, require_compiled
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


@inner
def _count_kept(ids: NDArray[np.int32], begin: int, end: int, weights: IntArray, kept: IntArray) -> int:
    """Room taken by the leading run of the request that is kept; ends within the first trimmed block."""
    total = 0
    for position in range(begin, end):
        total += kept[ids[position]]
        if kept[ids[position]] < weights[ids[position]]:
            break
    return total


@inner
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


@inner
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
