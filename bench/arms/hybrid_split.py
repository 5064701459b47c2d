"""Where recompute, coming from the front of a prefix, and loading, coming from its back, meet."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import ceil
from threading import Lock

import torch

from bench.arms.prefill import Prefill, finish_stream
from kvio.alignment import round_up
from kvio.loading.loader import LoadSplit
from kvio.loading.read_plan import ChunkRead, by_chunk

# most tokens of a piece: a forward of fewer leaves accelerators waiting for weights, which stops at peak FLOP/s
# over peak bytes/s tokens of 2-byte weights: 420 on an L40S, 300 on an H100, 160 on an A100 (NVIDIA datasheets)
PIECE_TOKENS = 512
MIN_TOKENS = 64  # fewest: below, the forward costs as much as one of so many


@dataclass(frozen=True, slots=True)
class PieceSizes:
    """Tokens of one piece of recompute, `least` to `most`; fewer where no more are left."""

    least: int
    most: int


def choose_sizes(chunk_tokens: int, prefill_chunk: int | None) -> PieceSizes:
    """Whole KV chunks, so that no chunk is computed in part and must then be computed to its end.

    Args:
        chunk_tokens: of one KV chunk.
        prefill_chunk: tokens of one forward at most, where that was asked for.
    """
    least, most = (round_up(tokens, chunk_tokens) for tokens in (MIN_TOKENS, PIECE_TOKENS))
    return PieceSizes(min(least, prefill_chunk or least), prefill_chunk or most)


class WorkSplit:
    """Hands the tokens of a prefix out from both ends, under one lock: each token to exactly one side.

    Recompute takes pieces, each its share of what is not taken yet: large while much is left, small near
    the meeting.  Loading takes whole chunks, last to first, and of a chunk one job after the other.  Neither
    takes what the other will have done sooner: less than half a piece, or half a chunk, of its own share.  A
    chunk that recompute has begun is recompute's.

    Args:
        chunks: jobs of each KV chunk, in order; none where every window has left the chunk behind.
        first_token, last_token: tokens [first_token, last_token) are handed out; the first begins a chunk.
        chunk_tokens: of one chunk.
        sizes: of the pieces.
        share: of the tokens left that recompute will do while loading does the others; both alike if not known.
        states: jobs that belong to the end of the prefix; they are given first.
    """

    def __init__(
        self,
        chunks: Sequence[Sequence[ChunkRead]],
        *,
        first_token: int,
        last_token: int,
        chunk_tokens: int,
        sizes: PieceSizes,
        share: float = 0.5,
        states: Sequence[ChunkRead] = (),
    ) -> None:
        self._chunks = chunks
        self.first_token = self._front = first_token
        self._back = last_token
        self.chunk_tokens = chunk_tokens
        self._sizes = sizes
        self._share = share
        self._begun = deque(states)
        self._untouched = len(chunks)  # chunks that loading has not taken
        self._stopped = False
        self._lock = Lock()

    @property
    def met_at(self) -> int | None:
        """First token that loading has taken, once all tokens are taken; before that None."""
        with self._lock:
            return self._back if self._front == self._back else None

    def take_piece(self) -> range | None:
        """The next tokens to compute; None when none are left."""
        with self._lock:
            gap = self._back - self._front
            begun = (self._front - self.first_token) % self.chunk_tokens > 0
            late = not begun and self._share * gap < min(self._sizes.least, gap) / 2
            if self._stopped or gap == 0 or late:
                return None
            wanted = self._front - self.first_token + max(self._sizes.least, ceil(self._share * gap))
            end = self.first_token + round_up(wanted, self.chunk_tokens)
            piece = range(self._front, min(end, self._front + self._sizes.most, self._back))
            self._front = piece.stop
            return piece

    def take_job(self) -> ChunkRead | None:
        """The next thing to read; None when nothing is left."""
        with self._lock:
            while not self._begun and not self._stopped and self._take_chunk():
                pass
            return self._begun.popleft() if self._begun and not self._stopped else None

    def _take_chunk(self) -> bool:
        """Take the last chunk that is free; False when there is none, or recompute will have done it sooner."""
        start = self.first_token + (self._untouched - 1) * self.chunk_tokens
        gap = self._back - self._front
        late = (1.0 - self._share) * gap < min(self.chunk_tokens, gap) / 2
        if self._untouched == 0 or start < self._front or late:
            return False
        self._untouched -= 1
        self._back = start
        self._begun.extend(self._chunks[self._untouched])
        return True

    def stop(self) -> None:
        """Give nothing more to either side, because one has failed."""
        with self._lock:
            self._stopped = True


def jobs_by_chunk(jobs: Sequence[ChunkRead], chunk_ids: Sequence[int]) -> list[list[ChunkRead]]:
    """The jobs of each of the chunks, which are numbered as in the store; empty for one of which nothing is read."""
    found = dict(by_chunk(jobs))
    return [found.get(number, []) for number in chunk_ids]


@dataclass(frozen=True, slots=True)
class SplitResult:
    """How loading went, and for how many seconds each side worked; they overlap."""

    split: LoadSplit
    compute_s: float
    load_s: float


def recompute_and_load(
    front: Prefill,
    token_ids: torch.Tensor,
    *,
    meeting: WorkSplit,
    load: Callable[[Callable[[], ChunkRead | None]], LoadSplit],
    beside: Executor,
    now_s: Callable[[], float],
) -> SplitResult:
    """Compute from the front and load from the back, until every token that `meeting` has is in place.

    The first piece is taken before loading begins, so that who gets it is not left to chance.

    Args:
        front: the model over the blocks; its states are its own.
        token_ids: (1, n) of the tokens that `meeting` has, the first of which is token 0 of `front`.
        load: does the jobs that it is given until there are none.
        beside: a thread to load in.
        now_s: the clock.
    """

    def load_or_stop() -> tuple[LoadSplit, float]:
        began_s = now_s()
        try:
            return load(meeting.take_job), now_s() - began_s
        except BaseException:
            meeting.stop()
            raise

    start_s = now_s()
    piece = meeting.take_piece()
    loading = beside.submit(load_or_stop)
    try:
        while piece is not None:
            start = piece.start - meeting.first_token
            front.fill(token_ids[:, start : start + len(piece)], start)
            finish_stream(front.built.device)  # else the host would take pieces far ahead of the device
            piece = meeting.take_piece()
        compute_s = now_s() - start_s
    except BaseException:
        meeting.stop()
        raise
    finally:
        loading.exception()  # no thread may write into blocks that the caller reuses
    split, load_s = loading.result()
    return SplitResult(split, compute_s, load_s)
