"""A request trace as arrays: which blocks each request's prefix consists of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Unit = Literal["tokens", "blocks"]
PIECE_REFERENCES = 1 << 20  # handled at once where a whole trace would need temporary arrays of its size


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order; request r refers to `ids[starts[r]:starts[r + 1]]`, block by block from its front.

    An id names a block together with everything before it (a chained hash), so that equal ids mean equal KV.
    Every block has `block_tokens` tokens, except that the last one of a request may have fewer.

    Args:
        block_tokens: tokens of a whole block.
        ids: (num_references,) block ids, dense from 0.
        starts: (num_requests + 1,) where each request begins in `ids`.
        input_tokens: (num_requests,) tokens of each request's prompt.
        output_tokens: (num_requests,) tokens generated.
        timestamps_s: (num_requests,) arrival, seconds from the start of the trace.
        notices: what makes the trace suspect.
    """

    block_tokens: int
    ids: NDArray[np.int32]
    starts: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    timestamps_s: NDArray[np.float64]
    notices: tuple[str, ...] = ()

    @property
    def num_requests(self) -> int:
        """Requests in the trace."""
        return len(self.input_tokens)

    @property
    def num_ids(self) -> int:
        """Distinct blocks."""
        return int(self.ids.max()) + 1 if len(self.ids) else 0

    @property
    def num_blocks(self) -> IntArray:
        """(num_requests,) blocks of each request."""
        return np.diff(self.starts)

    @property
    def last_block_tokens(self) -> IntArray:
        """(num_requests,) tokens of each request's last block."""
        return self.input_tokens - (self.num_blocks - 1) * self.block_tokens

    def weights(self, unit: Unit) -> IntArray:
        """(num_ids,) room that each block takes: its tokens, or 1 block."""
        if unit == "blocks":
            return np.ones(self.num_ids, dtype=np.int64)
        weights = np.zeros(self.num_ids, dtype=np.int64)
        last = self.starts[1:] - 1
        inside = np.ones(len(self.ids), dtype=np.bool_)
        inside[last] = False
        for begin in range(0, len(self.ids), PIECE_REFERENCES):
            piece = slice(begin, begin + PIECE_REFERENCES)
            weights[self.ids[piece][inside[piece]]] = self.block_tokens
        np.maximum.at(weights, self.ids[last], self.last_block_tokens)
        return weights


def dense_ids(raw: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Ids renumbered from 0 without gaps, so that arrays can be indexed by them."""
    if len(raw) == 0:
        return np.zeros(0, dtype=np.int32)
    largest = int(raw.max())
    if largest > 4 * len(raw) + 1024:
        return np.unique(raw, return_inverse=True)[1].astype(np.int32)
    return _close_gaps(raw.view(np.int64))


def _close_gaps(ids: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int32]:
    used = np.zeros(int(ids.max()) + 1, dtype=np.bool_)
    used[ids] = True
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return numbers[ids]


def build_trace(
    block_ids: Sequence[Sequence[int]], input_tokens: Sequence[int], *, block_tokens: int
) -> Trace:
    """A trace from one list of block ids per request, without times and outputs."""
    num_requests = len(block_ids)
    flat = np.array([block for blocks in block_ids for block in blocks], dtype=np.uint64)
    starts = np.zeros(num_requests + 1, dtype=np.int64)
    np.cumsum([len(blocks) for blocks in block_ids], out=starts[1:])
    return Trace(
        block_tokens=block_tokens,
        ids=dense_ids(flat),
        starts=starts,
        input_tokens=np.array(input_tokens, dtype=np.int64),
        output_tokens=np.zeros(num_requests, dtype=np.int64),
        timestamps_s=np.zeros(num_requests, dtype=np.float64),
    )


def select_requests(trace: Trace, where: IntArray) -> Trace:
    """The trace of these requests alone, whose numbers must rise; ids are numbered anew."""
    starts = np.zeros(len(where) + 1, dtype=np.int64)
    np.cumsum(trace.num_blocks[where], out=starts[1:])
    kept = np.zeros(trace.num_requests, dtype=np.bool_)
    kept[where] = True
    return Trace(
        block_tokens=trace.block_tokens,
        ids=_close_gaps(trace.ids[np.repeat(kept, trace.num_blocks)]),
        starts=starts,
        input_tokens=trace.input_tokens[where],
        output_tokens=trace.output_tokens[where],
        timestamps_s=trace.timestamps_s[where],
    )


def merge_blocks(trace: Trace, factor: int) -> Trace:
    """The trace with blocks `factor` times as large.

    A larger block takes the id of the last block in it, which names everything before it.
    """
    if factor < 1:
        raise ValueError(f"blocks can only be merged by a factor of 1 or more, got {factor}")
    counts = -(-trace.num_blocks // factor)
    starts = np.zeros(trace.num_requests + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    request = np.repeat(np.arange(trace.num_requests), counts)
    group = np.arange(starts[-1]) - starts[request]
    last = np.minimum(trace.starts[request] + (group + 1) * factor, trace.starts[request + 1]) - 1
    return Trace(
        block_tokens=trace.block_tokens * factor,
        ids=dense_ids(trace.ids[last].astype(np.uint64)),
        starts=starts,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        timestamps_s=trace.timestamps_s,
        notices=trace.notices,
    )
