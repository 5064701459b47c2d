"""LRU at every capacity in one pass over the trace (Mattson's stack distances, weighted).

Keep all blocks ever seen in a stack, the last touched on top.  An LRU cache of capacity C holds exactly the
blocks whose depth D (the room taken by the block and all above it) is at most C: D only grows between two
touches of a block, and an LRU cache drops the block when D passes C.  This holds for blocks of different
sizes too.

A request's blocks are touched last to first, and only its leading run of resident blocks counts.  So with D
taken when the request arrives, the block at position i counts at capacity C if and only if D of *every*
block 0..i is at most C:

    reach[i] = max(D[0], ..., D[i]),    block i hits at capacity C  <=>  reach[i] <= C

and one array of `reach` answers every capacity.  D is a sum over a Fenwick tree whose slots are touches in
order of time; slots that a later touch made empty are squeezed out when the tree is full, so that its size
depends on the number of distinct blocks, not on the length of the trace.

Source: R. L. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.reuse.jit import kernel, require_compiled
from bench.reuse.trace import PIECE_REFERENCES, IntArray, Trace, Unit

NEVER = np.iinfo(np.int64).max  # reach of a block that no capacity makes a hit


class _Tree(NamedTuple):
    """Fenwick tree over slots 1..size; `top` and `total` hold one number: the last slot in use, and all room."""

    sums: IntArray  # (size + 1,)
    owner: NDArray[np.int32]  # (size + 1,) block of each slot
    slot: IntArray  # (num_ids,) slot of each block, 0 before its first touch
    top: IntArray  # (1,)
    total: IntArray  # (1,)


@kernel
def _prefix_sum(sums: IntArray, slot: int) -> int:
    total = 0
    while slot > 0:
        total += sums[slot]
        slot -= slot & -slot
    return total


@kernel
def _push(tree: _Tree, block: int, weight: int) -> None:
    """Put the block on top of the stack; a new slot's sum derives from those it covers."""
    slot = tree.top[0] + 1
    total, step = weight, 1
    while slot % (2 * step) == 0:
        total += tree.sums[slot - step]
        step *= 2
    tree.sums[slot] = total
    tree.owner[slot] = block
    tree.slot[block] = slot
    tree.top[0] = slot


@kernel
def _remove(tree: _Tree, block: int, weight: int) -> None:
    slot = tree.slot[block]
    while 0 < slot <= tree.top[0]:
        tree.sums[slot] -= weight
        slot += slot & -slot


@kernel
def _squeeze(tree: _Tree, weights: IntArray) -> None:
    """Renumber the slots that still are some block's last touch, without gaps."""
    old_top = tree.top[0]
    tree.top[0] = 0
    for slot in range(1, old_top + 1):
        block = tree.owner[slot]
        if tree.slot[block] == slot:
            _push(tree, block, weights[block])


@kernel
def _reach_of_request(tree: _Tree, ids: NDArray[np.int32], begin: int, end: int, reach: IntArray) -> None:
    furthest = 0
    for position in range(begin, end):
        slot = tree.slot[ids[position]]
        if slot == 0:
            return  # a first touch: nothing from here on is a hit at any capacity
        furthest = max(furthest, tree.total[0] - _prefix_sum(tree.sums, slot - 1))
        reach[position] = furthest


@kernel
def _find_reach(
    ids: NDArray[np.int32], starts: IntArray, weights: IntArray, tree: _Tree, reach: IntArray
) -> None:
    for request in range(len(starts) - 1):
        begin, end = starts[request], starts[request + 1]
        _reach_of_request(tree, ids, begin, end, reach)
        if tree.top[0] + end - begin >= len(tree.sums):
            _squeeze(tree, weights)
        for position in range(end - 1, begin - 1, -1):
            block = ids[position]
            if tree.slot[block] > 0:
                _remove(tree, block, weights[block])
                tree.total[0] -= weights[block]
            _push(tree, block, weights[block])
            tree.total[0] += weights[block]


@dataclass(frozen=True, slots=True)
class StackDistances:
    """How large an LRU cache must be for each block reference to hit; modelled.

    Args:
        trace: the trace.
        reach: (num_references,) least capacity in tokens or blocks, NEVER for none; rises within a request.
    """

    trace: Trace
    reach: IntArray

    def hit_tokens(self, capacity: int) -> IntArray:
        """(num_requests,) tokens of each request that an LRU cache of this capacity holds."""
        leading: IntArray = np.add.reduceat(self.reach <= capacity, self.trace.starts[:-1], dtype=np.int64)
        return np.minimum(leading * self.trace.block_tokens, self.trace.input_tokens)

    def curve(self) -> tuple[IntArray, IntArray]:
        """Every capacity at which the hit tokens change, rising, and the hit tokens from there on."""
        tokens = np.full(len(self.reach), self.trace.block_tokens, dtype=np.int64)
        tokens[self.trace.starts[1:] - 1] = self.trace.last_block_tokens
        hits = self.reach < NEVER
        capacities, where = np.unique(self.reach[hits], return_inverse=True)
        gained = np.zeros(len(capacities), dtype=np.int64)
        np.add.at(gained, where, tokens[hits])
        return capacities, np.cumsum(gained)


def _each_piece(trace: Trace, unit: Unit) -> Iterator[tuple[slice, IntArray, IntArray]]:
    """Some requests, where each begins, and the reach of their references; pieces of about PIECE_REFERENCES."""
    require_compiled(len(trace.ids))
    size = trace.num_ids + trace.num_ids // 2 + int(trace.num_blocks.max()) + 1
    tree = _Tree(
        sums=np.zeros(size + 1, dtype=np.int64),
        owner=np.zeros(size + 1, dtype=np.int32),
        slot=np.zeros(trace.num_ids, dtype=np.int64),
        top=np.zeros(1, dtype=np.int64),
        total=np.zeros(1, dtype=np.int64),
    )
    weights = trace.weights(unit)
    first = 0
    while first < trace.num_requests:
        begin = trace.starts[first]
        last = int(np.searchsorted(trace.starts, begin + PIECE_REFERENCES, side="right")) - 1
        last = min(max(last, first + 1), trace.num_requests)
        starts = trace.starts[first : last + 1] - begin
        reach = np.full(starts[-1], NEVER, dtype=np.int64)
        _find_reach(trace.ids[begin : begin + starts[-1]], starts, weights, tree, reach)
        yield slice(first, last), starts, reach
        first = last


def find_lru_hits(trace: Trace, capacities: Sequence[int], unit: Unit) -> list[IntArray]:
    """(num_requests,) hit tokens in an LRU cache of each capacity, all from one pass; modelled.

    Args:
        trace: requests in order.
        capacities: in tokens or blocks.
        unit: of the capacities.
    """
    found = [np.zeros(trace.num_requests, dtype=np.int64) for _ in capacities]
    for requests, starts, reach in _each_piece(trace, unit):
        for capacity, hits in zip(capacities, found, strict=True):
            leading = np.add.reduceat(reach <= capacity, starts[:-1], dtype=np.int64)
            hits[requests] = np.minimum(leading * trace.block_tokens, trace.input_tokens[requests])
    return found


def find_lru_reach(trace: Trace, unit: Unit) -> StackDistances:
    """The reach of every reference, in tokens or in whole blocks: 8 bytes for each."""
    return StackDistances(trace, np.concatenate([reach for _, _, reach in _each_piece(trace, unit)]))
