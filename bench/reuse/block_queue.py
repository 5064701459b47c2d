"""Queues of blocks by rank, and the lowest or highest rank in use, each in a few steps."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.reuse.jit import kernel
from bench.reuse.trace import IntArray

NONE = -1


class RankedQueues(NamedTuple):
    """One queue per rank, linked through the blocks; a block is in one queue at most.

    `used` is a tree over ranks: leaf `rank + len(used) // 2` says that the queue is not empty, and a node
    says so for the leaves below it.
    """

    head: IntArray  # (num_ranks,) oldest block, NONE when empty
    tail: IntArray  # (num_ranks,)
    after: IntArray  # (num_ids,) next younger block in the same queue
    before: IntArray  # (num_ids,)
    rank: IntArray  # (num_ids,) the queue that holds the block, NONE for no queue
    used: NDArray[np.int8]  # (2 * power of two,)


def make_queues(num_ranks: int, num_ids: int) -> RankedQueues:
    """Empty queues."""
    leaves = 1 << max(1, (num_ranks - 1).bit_length())
    return RankedQueues(
        head=np.full(num_ranks, NONE, dtype=np.int64),
        tail=np.full(num_ranks, NONE, dtype=np.int64),
        after=np.full(num_ids, NONE, dtype=np.int64),
        before=np.full(num_ids, NONE, dtype=np.int64),
        rank=np.full(num_ids, NONE, dtype=np.int64),
        used=np.zeros(2 * leaves, dtype=np.int8),
    )


@kernel
def enqueue(queues: RankedQueues, block: int, rank: int) -> None:
    """Add the block as the youngest of a rank."""
    youngest = queues.tail[rank]
    queues.before[block] = youngest
    queues.after[block] = NONE
    queues.rank[block] = rank
    queues.tail[rank] = block
    if youngest != NONE:
        queues.after[youngest] = block
        return
    queues.head[rank] = block
    node = rank + len(queues.used) // 2
    while node > 0 and queues.used[node] == 0:
        queues.used[node] = 1
        node >>= 1


@kernel
def dequeue(queues: RankedQueues, block: int) -> None:
    """Take the block out of its queue."""
    rank, older, younger = queues.rank[block], queues.before[block], queues.after[block]
    queues.rank[block] = NONE
    if older != NONE:
        queues.after[older] = younger
    else:
        queues.head[rank] = younger
    if younger != NONE:
        queues.before[younger] = older
    else:
        queues.tail[rank] = older
    if older == NONE and younger == NONE:
        node = rank + len(queues.used) // 2
        queues.used[node] = 0
        while node > 1 and queues.used[node ^ 1] == 0:
            node >>= 1
            queues.used[node] = 0


@kernel
def lowest_rank(queues: RankedQueues) -> int:
    """The lowest rank in use, NONE when all queues are empty."""
    leaves = len(queues.used) // 2
    if queues.used[1] == 0:
        return NONE
    node = 1
    while node < leaves:
        node = 2 * node if queues.used[2 * node] else 2 * node + 1
    return node - leaves


@kernel
def highest_rank(queues: RankedQueues) -> int:
    """The highest rank in use, NONE when all queues are empty."""
    leaves = len(queues.used) // 2
    if queues.used[1] == 0:
        return NONE
    node = 1
    while node < leaves:
        node = 2 * node + 1 if queues.used[2 * node + 1] else 2 * node
    return node - leaves
