"""The load arm: read a prefix's KV from storage into device blocks, then run the first-token step."""

from collections.abc import Callable

import torch

from bench.arms.chunk_reading import ChunkReading, LoadSettings, PreparedRead
from bench.arms.file_cursor import StoreCursor
from bench.arms.prefill import synchronize
from bench.arms.read_evidence import ReadEvidence
from bench.record.sample import Case, Outcome
from kvio.loading.blocks import KVBlocks
from kvio.protocol import KVIOError
from kvio.store.chunk_store import ChunkStore


class LoadArm:
    """`T_load(n)` = all chunks of n-1 tokens from storage into the blocks + the first-token step.

    A marginal case (`suffix_tokens` > 0) loads the chunks that hold the suffix and the linear-attention states at its
    end, as recompute leaves them; it takes no such step.

    Args:
        store: the chunk files; their preset sets threads, request size and open pattern.
        settings: how this series loads.
        make_blocks: blocks of so many tokens on the device.
        device: where the blocks are.
        now_s: the clock.
        evidence: page cache and counters of the store's device.
        first_token: takes the first-token step of a prefix of n tokens, gives its seconds; None takes none.
        walk: through the files, where other arms share it; None begins one of its own.

    Raises:
        KVIOError: unknown backend, or no memory for the buffers.
    """

    def __init__(
        self,
        store: ChunkStore,
        settings: LoadSettings,
        *,
        make_blocks: Callable[[int], KVBlocks],
        device: torch.device,
        now_s: Callable[[], float],
        evidence: ReadEvidence,
        first_token: Callable[[KVBlocks, int], float] | None,
        walk: StoreCursor | None = None,
    ) -> None:
        self.reading = ChunkReading(store, settings, device=device, now_s=now_s, evidence=evidence, walk=walk)
        self._make_blocks = make_blocks
        self._device = device
        self._now_s = now_s
        self._first_token = first_token
        self._blocks: KVBlocks | None = None
        self._prepared: PreparedRead | None = None

    def warm_up(self, case: Case) -> None:
        """Run the case once, on files that no sample reads afterwards; nothing is kept of it."""
        self.prepare(case)
        self.run(case)

    def prepare(self, case: Case) -> None:
        """Choose the next files, poison the blocks, and prepare the page cache."""
        self._prepared = self.reading.prepare(case)
        self._blocks_for(case.prefix_tokens + case.suffix_tokens).poison()

    def _blocks_for(self, num_tokens: int) -> KVBlocks:
        if self._blocks is None or self._blocks.capacity_tokens < num_tokens:
            self._blocks = None  # frees the smaller ones first
            self._blocks = self._make_blocks(num_tokens)
        return self._blocks

    def run(self, case: Case) -> Outcome:
        """Load and take the first-token step, both timed; then check what arrived, untimed.

        Raises:
            KVIOError: not prepared for this case, or a read failed.
            VerificationError: other bytes arrived than were stored.
        """
        ready, self._prepared = self._prepared, None
        if ready is None or ready.case != case or self._blocks is None:
            raise KVIOError(f"prepare {case} before it is run")
        blocks = self._blocks
        before = self.reading.read_counters()
        synchronize(self._device)
        start_s = self._now_s()
        split = self.reading.loader.load(blocks, ready.jobs)
        synchronize(self._device)
        load_s = self._now_s() - start_s
        proof = self.reading.prove(ready, split, before=before, load_s=load_s)
        state = blocks.state.clone()  # the step may change the states where they are
        first_token_s = None
        if self._first_token is not None and not case.suffix_tokens:
            first_token_s = self._first_token(blocks, case.prefix_tokens)
        return self.reading.describe(
            ready,
            split,
            proof=proof,
            seconds=load_s,
            first_token_s=first_token_s,
            verified=self.reading.verify(ready, blocks, state),
        )

    def close(self) -> None:
        """Stop the threads, let buffers and blocks go; safe to call twice."""
        self.reading.close()
        self._blocks = None
        self._prepared = None
