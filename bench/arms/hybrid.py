"""The hybrid arm: recompute a prefix from its front while its KV is loaded from the back, until both meet."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from bench.arms.chunk_reading import ChunkReading, PreparedRead
from bench.arms.hybrid_split import SplitResult, WorkSplit, choose_sizes, jobs_by_chunk, recompute_and_load
from bench.arms.model.attention_kernel import observe_attention
from bench.arms.model.build import UNFUSED_NOTICE, BuiltModel
from bench.arms.model.memory import require_memory, workspace_bytes
from bench.arms.prefill import FirstTokenStep, Prefill, draw_tokens, synchronize
from bench.record.sample import Case, Outcome
from kvio.evidence.cold_evidence import ReadCounters
from kvio.os_errors import thread_limit_errors
from kvio.protocol import KVIOError

WARMUP_CHUNKS = 4  # both sides get some of so many


class PartOfModelError(Exception):
    """Only some layers are built, so that there is no time at which the real model's two sides would meet."""


def require_whole(built: BuiltModel) -> None:
    """Stop where a few layers stand for the whole model.

    Raises:
        PartOfModelError: how many are built.
    """
    if len(built.layers) < len(built.model_kinds):
        raise PartOfModelError(
            f"hybrid needs the whole model, and {len(built.layers)} of {len(built.model_kinds)} layers are built: "
            "where both sides meet cannot be scaled; try --layers all"
        )


class HybridArm:
    """`T_hybrid(n)` = recompute of tokens 0..m beside loading of m..n-1, where m is where they meet + the first-token step.

    Linear-attention states belong to the end of the prefix: they are loaded as a whole, and recompute, which
    needs running states for its own tokens alone, drops those.  Of sliding windows only what the end of the
    prefix still attends to is loaded.

    Args:
        prefill: the whole model over the blocks that both sides fill.
        reading: the chunk files, which the load arm of the same series walks through too.
        first_token: the step that ends every arm.
        now_s: the clock.
        flops: floating-point operations of the model for so many first tokens.
        prefill_chunk: tokens of one piece at most; None lets the arm choose.
        seed: of the token ids.

    Raises:
        PartOfModelError: not all layers are built.
        KVIOError: the files do not hold what the blocks keep.
    """

    def __init__(
        self,
        prefill: Prefill,
        reading: ChunkReading,
        *,
        first_token: FirstTokenStep,
        now_s: Callable[[], float],
        flops: Callable[[int], float],
        prefill_chunk: int | None = None,
        seed: int = 0,
    ) -> None:
        require_whole(prefill.built)
        if prefill.blocks.layout != reading.geometry.layout:
            raise KVIOError("the chunk files hold another layout than the blocks that are to be filled")
        self._blocks = prefill.blocks
        self._front = prefill.with_own_state()
        self._reading = reading
        self._first_token = first_token
        self._now_s = now_s
        self._flops = flops
        self._sizes = choose_sizes(reading.geometry.chunk_tokens, prefill_chunk)
        self._seed = seed
        self._kernel: str | None = None
        self._shares: dict[int, float] = {}
        self._prepared: tuple[PreparedRead, torch.Tensor] | None = None
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="hybrid-load")
        with thread_limit_errors("a thread for each arm"):
            self._beside.submit(int).result()  # starts the thread

    def warm_up(self, case: Case) -> None:
        """See which attention kernel pieces take; then run the case once, on files that no sample reads afterwards.

        That run tells about how fast each side is here, which decides who takes what near the meeting; so it is as long
        as a few KV chunks where the case is shorter.
        """
        enough_tokens = WARMUP_CHUNKS * self._reading.geometry.chunk_tokens + 1
        case = replace(
            case, prefix_tokens=max(case.prefix_tokens, min(enough_tokens, self._blocks.capacity_tokens))
        )
        ids = draw_tokens(self._front.built, case.prefix_tokens, seed=self._seed)
        split = min(self._sizes.most, max(1, case.prefix_tokens // 2))
        pieces = [(ids[:, :split], 0), (ids[:, split : 2 * split], split)]

        def forward() -> None:
            for piece, past_tokens in pieces:
                if piece.shape[1]:
                    self._front.forward_visibly(piece, past_tokens)

        self._require_memory(case.prefix_tokens)
        self._kernel = observe_attention(forward, implementation=self._front.built.attention)
        synchronize(self._front.built.device)
        self.prepare(case)
        self.run(case)

    def prepare(self, case: Case) -> None:
        """Choose the next files, prepare the page cache, and poison the blocks.

        Raises:
            MemoryShortError: the device has not the memory for a piece of this prefix.
        """
        if case.suffix_tokens:
            raise KVIOError(
                "the marginal question has no front and no back: hybrid answers for whole prefixes"
            )
        self._require_memory(case.prefix_tokens)
        ids = draw_tokens(self._front.built, case.prefix_tokens, seed=self._seed)
        self._prepared = self._reading.prepare(case), ids
        self._blocks.poison()

    def _require_memory(self, prefix_tokens: int) -> None:
        built = self._front.built
        num_tokens = min(self._sizes.most, prefix_tokens)
        needed = workspace_bytes(
            built.model.config,
            num_tokens,
            past_tokens=prefix_tokens - num_tokens,
            element_bytes=built.dtype.itemsize,
            fused=built.attention != "eager",
        )
        require_memory(needed, built.device, purpose=f"a forward of {num_tokens} tokens ({built.attention})")

    def run(self, case: Case) -> Outcome:
        """Fill the blocks from both ends and take the first-token step, timed; then check what was loaded, untimed.

        Raises:
            KVIOError: not prepared for this case, or a read failed.
            VerificationError: other bytes arrived than were stored.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0].case != case:
            raise KVIOError(f"prepare {case} before it is run")
        ready, ids = prepared
        meeting = self._plan_meeting(ready)
        device = self._front.built.device
        before = self._reading.read_counters()
        synchronize(device)
        start_s = self._now_s()
        met = recompute_and_load(
            self._front,
            ids,
            meeting=meeting,
            load=lambda take: self._reading.loader.load_while(self._blocks, take),
            beside=self._beside,
            now_s=self._now_s,
        )
        synchronize(device)
        seconds = self._now_s() - start_s
        loaded = _loaded_part(ready, meeting)
        self._learn(loaded, met)
        return self._describe(loaded, met, before=before, seconds=seconds)

    def _learn(self, loaded: PreparedRead, met: SplitResult) -> None:
        """Remember recompute's share, by the tokens per second of both sides, where both did something."""
        computed, brought = loaded.first_token, loaded.last_token - loaded.first_token
        if computed and brought and met.compute_s > 0 and met.load_s > 0:
            rates = computed / met.compute_s, brought / met.load_s
            self._shares[loaded.case.prefix_tokens] = rates[0] / sum(rates)

    def _share_at(self, prefix_tokens: int) -> float:
        """Recompute's share as last seen at this length, else at the nearest; a half before anything was seen."""
        if not self._shares:
            return 0.5
        return self._shares[min(self._shares, key=lambda length: abs(length - prefix_tokens))]

    def _plan_meeting(self, ready: PreparedRead) -> WorkSplit:
        return WorkSplit(
            jobs_by_chunk(ready.jobs, ready.chunk_ids),
            first_token=ready.first_token,
            last_token=ready.last_token,
            chunk_tokens=self._reading.geometry.chunk_tokens,
            sizes=self._sizes,
            share=self._share_at(ready.case.prefix_tokens),
            states=[job for job in ready.jobs if job.chunk_id is None],
        )

    def _describe(
        self, ready: PreparedRead, met: SplitResult, *, before: ReadCounters | None, seconds: float
    ) -> Outcome:
        """Prove, step and verify; `ready` holds what was loaded alone."""
        proof = self._reading.prove(ready, met.split, before=before, load_s=met.load_s)
        state = self._blocks.state.clone()  # the step changes the states where they are
        outcome = self._reading.describe(
            ready,
            met.split,
            proof=proof,
            seconds=seconds,
            first_token_s=self._first_token.time(ready.case.prefix_tokens),
            verified=self._reading.verify(ready, self._blocks, state),
        )
        built = self._front.built
        slow = (UNFUSED_NOTICE,) if self._kernel is not None and "math" in self._kernel else ()
        tokens = ready.last_token
        return replace(
            outcome,
            load_fraction=(tokens - ready.first_token) / tokens if tokens else None,
            attention_kernel=self._kernel,
            flops=self._flops(ready.first_token),
            notices=tuple(dict.fromkeys((*built.notices, *slow, *outcome.notices))),
        )

    def close(self) -> None:
        """Stop the thread; the files are the load arm's, the blocks the prefill's.  Safe to call twice."""
        self._beside.shutdown()
        self._prepared = None


def _loaded_part(ready: PreparedRead, meeting: WorkSplit) -> PreparedRead:
    """What loading took of the prefix: the chunks from the meeting on, and the states."""
    met_at = meeting.met_at
    if met_at is None:
        raise KVIOError(f"{ready.case}: tokens were left that neither side took")
    first = -(-met_at // meeting.chunk_tokens)
    loaded = set(ready.chunk_ids[first:])
    jobs = tuple(job for job in ready.jobs if job.chunk_id is None or job.chunk_id in loaded)
    return replace(ready, jobs=jobs, first_token=met_at)
