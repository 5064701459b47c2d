"""The load arm: bring a prefix's KV from storage into device blocks, then take the first-token step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from bench.arms.case import Case, Outcome
from bench.arms.proof import Evidence
from bench.arms.walk import FreshWalk, tokens_to_load
from kvio.backends import find_backend
from kvio.backends.protocol import KVIOError
from kvio.backends.setting import BackendSetting, HostMemory, SimulatedDevice
from kvio.blocks import KVBlocks
from kvio.evidence import CacheState, ReadCounters
from kvio.files import Bytes
from kvio.jobs import Job, by_chunk, collect, plan_jobs
from kvio.loader import ChunkLoader, LoadSplit
from kvio.store import ChunkStore

LIMIT_TOLERANCE = 1.15  # the kernel accounts in slices of a tenth of a second


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How one series loads.

    Args:
        backend: key of `kvio.backends.BACKENDS`.
        cold: the files are evicted before each sample; else they are brought into the page cache.
        first_chunk: chunk file to begin with; a later round begins where the earlier one ended.
        device: the modelled device, for the simulated backend.
        queue_depth: jobs that each thread keeps in flight.
        options: what only this backend knows.
        step_layers: layers that the first-token step runs, and the model's, for the record.
        limit_bytes_per_s: the read limit that the process is under; faster samples say so.
    """

    backend: str
    cold: bool = True
    first_chunk: int = 0
    device: SimulatedDevice | None = None
    limit_bytes_per_s: float | None = None
    step_layers: tuple[int, int] | None = None
    queue_depth: int = 1
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One sample, ready to be timed."""

    case: Case
    jobs: tuple[Job, ...]
    state_id: int | None
    resident_bytes: int | None
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Proof:
    """What the counters said about one sample; None where nothing was read from storage."""

    cache_state: CacheState | None = None
    data_path: str | None = None
    moved: ReadCounters | None = None
    notices: tuple[str, ...] = ()


class LoadArm:
    """`T_load(n)` = all chunks of n-1 tokens from storage into the blocks + the first-token step.

    A marginal case (`suffix_tokens` > 0) loads the chunks that hold the suffix, and takes no such step.

    Args:
        store: the chunk files; their preset sets threads, request size and open pattern.
        settings: how this series loads.
        make_blocks: blocks of so many tokens on the device.
        device: where the blocks are.
        now_s: the clock.
        evidence: page cache and counters of the store's device.
        first_token: takes the first-token step of a prefix of n tokens, gives its seconds; None takes none.

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
        evidence: Evidence,
        first_token: Callable[[KVBlocks, int], float] | None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._kind = find_backend(settings.backend)
        self._make_blocks = make_blocks
        self._device = device
        self._now_s = now_s
        self._evidence = evidence
        self._first_token = first_token
        self._blocks: KVBlocks | None = None
        self._chunks = FreshWalk(store.num_chunks, settings.first_chunk)
        self._states = FreshWalk(store.num_states)
        self._prepared: _Prepared | None = None
        self._memory = HostMemory()
        setting = BackendSetting(
            store.geometry.direct,
            self._memory,
            settings.device,
            queue_depth=settings.queue_depth,
            directory=store.directory,
            options=settings.options,
        )
        self._loader = ChunkLoader(
            store.geometry,
            lambda: self._kind.make(setting),
            device=device,
            now_s=now_s,
            into=self._kind.into if self._kind.moves_bytes else "nowhere",
        )

    @property
    def next_chunk(self) -> int:
        """Chunk file that the next sample would begin with, for the `first_chunk` of a later round."""
        return self._chunks.next_file

    def warm_up(self, case: Case) -> None:
        """Run the case once, on files that no sample reads afterwards; nothing is kept of it."""
        self.prepare(case)
        self.run(case)

    def prepare(self, case: Case) -> None:
        """Choose the next files, poison the blocks, and bring the page cache into the state asked for."""
        first_token, last_token = tokens_to_load(case)
        if first_token < 0 or last_token < first_token:
            raise KVIOError(f"a prefix of {case.prefix_tokens} tokens cannot be loaded")
        blocks = self._blocks_for(case.prefix_tokens + case.suffix_tokens)
        count = len(self._store.geometry.chunks_between(first_token, last_token))
        chunk_ids, chunks_again = self._chunks.take(count)
        with_state = self._store.num_states > 0 and not case.suffix_tokens and last_token > 0
        state_ids, states_again = self._states.take(1 if with_state else 0)
        state_id = state_ids[0] if state_ids else None
        jobs = plan_jobs(
            self._store,
            chunk_ids,
            first_token=first_token,
            prefix_tokens=last_token,
            state_id=state_id,
        )
        blocks.poison()
        resident_bytes = self._set_cache(jobs)
        again = ("bytes_read_again",) if chunks_again or states_again else ()
        notices = (*self._store.geometry.notices, *again)
        self._prepared = _Prepared(case, jobs, state_id, resident_bytes, notices)

    def _blocks_for(self, num_tokens: int) -> KVBlocks:
        if self._blocks is None or self._blocks.capacity_tokens < num_tokens:
            self._blocks = None  # frees the smaller ones first
            self._blocks = self._make_blocks(num_tokens)
        return self._blocks

    def _set_cache(self, jobs: tuple[Job, ...]) -> int | None:
        """Bring the files into the state asked for; bytes of them in the page cache, None if not known."""
        paths = list(dict.fromkeys(job.path for job in jobs))
        if self._settings.backend == "hostmem":
            self._memory.hold(paths)
        if not self._kind.from_storage:
            return None
        try:
            resident = [self._set_cache_of(path) for path in paths]
        except OSError as error:
            raise KVIOError(f"{error.filename or paths[0].parent}: {error.strerror}") from error
        known = [num_bytes for num_bytes in resident if num_bytes is not None]
        return sum(known) if len(known) == len(resident) else None

    def _set_cache_of(self, path: Path) -> int | None:
        self._evidence.require_written(path)
        if self._settings.cold:
            self._evidence.evict(path)
        else:
            self._evidence.warm(path)
        return self._evidence.resident_bytes(path)

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
        before = self._evidence.read_counters() if self._kind.from_storage else None
        self._synchronize()
        start_s = self._now_s()
        split = self._loader.load(blocks, ready.jobs)
        self._synchronize()
        load_s = self._now_s() - start_s
        if before is not None and ready.jobs:
            self._evidence.require_plausible(split.num_bytes, load_s)
        proof = self._prove(ready, split, before)
        state = blocks.state.clone()  # the step may change the states where they are
        first_token_s = None
        if self._first_token is not None and not case.suffix_tokens:
            first_token_s = self._first_token(blocks, case.prefix_tokens)
        verified = self._verify(ready, blocks, state)
        return self._outcome(
            ready, split, proof=proof, load_s=load_s, first_token_s=first_token_s, verified=verified
        )

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _prove(self, ready: _Prepared, split: LoadSplit, before: ReadCounters | None) -> _Proof:
        if not ready.jobs:
            return _Proof()
        if before is None:
            return _Proof(data_path=self._settings.backend)
        moved = self._evidence.read_counters().moved_since(before)
        direct = self._store.geometry.direct
        state, notices = self._evidence.prove_cache_state(
            asked_direct=direct,
            reads=[read for job in ready.jobs for read in job.reads],
            resident_before=ready.resident_bytes,
            moved=moved,
        )
        path, against = self._evidence.prove_data_path(
            backend=self._settings.backend,
            asked_direct=direct,
            state=state,
            payload_bytes=split.num_bytes,
            moved=moved,
        )
        return _Proof(state, path, moved, (*notices, *against))

    def _verify(self, ready: _Prepared, blocks: KVBlocks, state: torch.Tensor) -> bool | None:
        """True when all that was brought in is what was stored; None when nothing was."""
        if not ready.jobs or not self._kind.moves_bytes:
            return None
        for chunk_id, jobs in by_chunk(ready.jobs):
            groups = {piece.group for job in jobs for piece in job.pieces if piece.group is not None}
            self._store.require_payload(
                chunk_id, self._payload(jobs, chunk_id, blocks), groups=sorted(groups)
            )
        if ready.state_id is not None:
            self._store.require_state(ready.state_id, state.cpu().numpy())
        return True

    def _payload(self, jobs: Sequence[Job], chunk_id: int, blocks: KVBlocks) -> Bytes:
        """The chunk as it arrived; tokens beyond the prefix, which went nowhere, are read from the file."""
        whole = all(piece.num_tokens == piece.stride_tokens for job in jobs for piece in job.pieces)
        size_bytes = self._store.geometry.payload_bytes
        payload = np.empty(size_bytes, np.uint8) if whole else self._store.read_payload(chunk_id)
        for job in jobs:
            collect(job, blocks, payload)
        return payload

    def _outcome(
        self,
        ready: _Prepared,
        split: LoadSplit,
        *,
        proof: _Proof,
        load_s: float,
        first_token_s: float | None,
        verified: bool | None,
    ) -> Outcome:
        geometry = self._store.geometry
        first_token, last_token = tokens_to_load(ready.case)
        step_layers = self._settings.step_layers if first_token_s is not None else None
        state_bytes = 0 if ready.state_id is None else geometry.layout.state_bytes
        return Outcome(
            seconds=load_s + (first_token_s or 0.0),
            open_s=split.open_s,
            read_s=split.read_s,
            h2d_s=split.h2d_s,
            scatter_s=split.scatter_s,
            first_token_s=first_token_s,
            num_bytes=geometry.payload_bytes_between(first_token, last_token) + state_bytes,
            num_requests=split.num_requests,
            request_bytes=split.request_bytes,
            queue_depth=split.queue_depth,
            achieved_queue_depth=split.achieved_queue_depth,
            cache_state=proof.cache_state,
            data_path=proof.data_path,
            device_bytes=None if proof.moved is None else proof.moved.device_bytes,
            process_bytes=None if proof.moved is None else proof.moved.process_bytes,
            verified=verified,
            measured_layers=step_layers and step_layers[0],
            total_layers=step_layers and step_layers[1],
            notices=tuple(
                dict.fromkeys(
                    (*ready.notices, *split.notices, *proof.notices, *self._exceeds_limit(split, load_s))
                )
            ),
        )

    def _exceeds_limit(self, split: LoadSplit, load_s: float) -> tuple[str, ...]:
        """A short read after a pause gets through faster than the kernel's limit lets a long one."""
        limit = self._settings.limit_bytes_per_s
        above = limit is not None and split.num_bytes > LIMIT_TOLERANCE * limit * load_s
        return ("above_limit",) if above else ()

    def close(self) -> None:
        """Stop the threads, let buffers and blocks go; safe to call twice."""
        self._loader.close()
        self._blocks = None
        self._prepared = None
