"""The reading half of an arm: fresh files in the cache state asked for, and proof of what arrived from them.

A load sample before it is timed, and the evidence after.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from bench.arms import ranks as group
from bench.arms.file_cursor import StoreCursor, tokens_to_load
from bench.arms.read_evidence import ReadEvidence, ResidentBytes
from bench.record.plan import ReadLimit
from bench.record.sample import Case, Outcome
from kvio.backends import BackendKind, find_backend
from kvio.backends.config import BackendConfig, SimulatedDevice
from kvio.backends.placement import SamplePlacement
from kvio.evidence.cold_evidence import ReadCounters
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader, LoadSplit
from kvio.loading.read_plan import ChunkRead, by_chunk, collect, plan_jobs, spans_of
from kvio.protocol import CacheState, KVIOError
from kvio.store.chunk_store import ChunkStore, VerificationError
from kvio.store.store_files import Bytes, os_errors_as_store_errors


@dataclass(frozen=True, slots=True)
class PreparedRead:
    """The files of one sample, in the state before it is timed."""

    case: Case
    chunk_ids: tuple[int, ...]  # number in the store of each chunk of the prefix, in order
    jobs: tuple[ChunkRead, ...]  # what is read of them, front to back, then the states
    state_id: int | None
    first_token: int  # tokens [first_token, last_token) that the jobs load
    last_token: int
    # bytes of each file in the page cache; None where it cannot be known
    resident_bytes: Mapping[Path, int | None]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadProof:
    """Evidence of one sample; None where nothing was read from storage."""

    cache_state: CacheState | None = None
    data_path: str | None = None
    moved: ReadCounters | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How one series loads."""

    backend: str  # key of `kvio.backends.BACKENDS`
    cold: bool = True  # the files are evicted before each sample; else they are brought into the page cache
    device: SimulatedDevice | None = None  # the modelled device, for the simulated backend
    limit: ReadLimit | None = None  # the read limit of the process; faster samples get a notice
    # layers that the first-token step runs, and the model's, for the record
    step_layers: tuple[int, int] | None = None
    queue_depth: int = 1  # jobs that each thread keeps in flight
    options: Mapping[str, str] = field(default_factory=dict)  # what only this backend knows


def _own_depot(kind: BackendKind, settings: LoadSettings, directory: Path) -> SamplePlacement | None:
    """The depot that this process fills before each sample; None where the run filled it, or there is none."""
    depot = None if kind.placement is None else kind.placement(settings.options, directory)
    return depot if isinstance(depot, SamplePlacement) else None


class ChunkReading:
    """Chunk files of one series, their loader, and what is asked of the operating system about them.

    Arms that share one walk through the same files, so that neither reads what the other has just read.

    Args:
        store: the chunk files; their preset sets threads, request size and open pattern.
        settings: how this series loads.
        device: where the blocks are.
        now_s: the clock.
        evidence: page cache and counters of the store's device.
        walk: through the files, where others share it; None begins one.

    Raises:
        KVIOError: unknown backend, or no memory for the buffers.
    """

    def __init__(
        self,
        store: ChunkStore,
        settings: LoadSettings,
        *,
        device: torch.device,
        now_s: Callable[[], float],
        evidence: ReadEvidence,
        walk: StoreCursor | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._kind = find_backend(settings.backend)
        self._evidence = evidence
        self.walk = walk or StoreCursor(store)
        self._depot = _own_depot(self._kind, settings, store.directory)
        setting = BackendConfig(
            store.geometry.direct,
            self._depot,
            settings.device,
            queue_depth=settings.queue_depth,
            directory=store.directory,
            packed_bytes=store.geometry.packed_bytes,
            options=settings.options,
        )
        self.loader = ChunkLoader(
            store.geometry,
            lambda: self._kind.make(setting),
            device=device,
            now_s=now_s,
            into=self._kind.target_memory if self._kind.moves_bytes else "nowhere",
        )

    @property
    def geometry(self) -> ChunkGeometry:
        """Of the chunks."""
        return self._store.geometry

    def prepare(self, case: Case) -> PreparedRead:
        """Choose the next files, and prepare the page cache."""
        first_token, last_token = tokens_to_load(case)
        if first_token < 0 or last_token < first_token:
            raise KVIOError(f"a prefix of {case.prefix_tokens} tokens cannot be loaded")
        chunk_ids, chunks_again = self.walk.chunks.take(
            len(self.geometry.chunks_between(first_token, last_token))
        )
        with_state = self._store.num_states > 0 and last_token > 0
        state_ids, states_again = self.walk.states.take(1 if with_state else 0)
        state_id = state_ids[0] if state_ids else None
        jobs = plan_jobs(
            self._store, chunk_ids, first_token=first_token, prefix_tokens=last_token, state_id=state_id
        )
        again = ("bytes_read_again",) if chunks_again or states_again else ()
        return PreparedRead(
            case,
            chunk_ids,
            jobs,
            state_id,
            first_token,
            last_token,
            self._set_cache(jobs),
            (*self.geometry.notices, *again),
        )

    def _set_cache(self, jobs: Sequence[ChunkRead]) -> dict[Path, int | None]:
        """Bring the files into the state asked for; bytes of each in the page cache."""
        paths = list(dict.fromkeys(job.path for job in jobs))
        if self._depot is not None:
            self._depot.load_into_memory(spans_of(jobs))
        if not self._kind.from_storage or not paths:
            return {}
        with os_errors_as_store_errors(paths[0].parent):
            return {path: self._set_cache_of(path) for path in paths}

    def _set_cache_of(self, path: Path) -> int | None:
        self._evidence.require_written(path)
        if self._settings.cold:
            self._evidence.evict(path)
        else:
            self._evidence.warm(path)
        return self._evidence.resident_bytes(path)

    def read_counters(self) -> ReadCounters | None:
        """The counters now; None where nothing is read from storage."""
        return self._evidence.read_counters() if self._kind.from_storage else None

    def prove(
        self, ready: PreparedRead, split: LoadSplit, *, before: ReadCounters | None, load_s: float
    ) -> ReadProof:
        """Which way the bytes of `ready.jobs` took since `before`, and from which cache state.

        Raises:
            EvidenceError: faster than the link to the drive allows.
        """
        if not ready.jobs:
            return ReadProof()
        limited = self._exceeds_limit(split, load_s)
        if before is None:
            return ReadProof(data_path=self._settings.backend, notices=limited)
        total_bytes = group.sum_over_ranks(split.num_bytes)
        self._evidence.require_plausible(total_bytes, load_s)
        moved = self._evidence.read_counters().moved_since(before).share(split.num_bytes, total_bytes)
        direct = self.geometry.direct
        state, notices = self._evidence.prove_cache_state(
            asked_direct=direct,
            reads=[read for job in ready.jobs for read in job.reads],
            resident=self._resident(ready),
            moved=moved,
        )
        path, against = self._evidence.prove_data_path(
            backend=split.way or self._settings.backend,
            asked_direct=direct,
            state=state,
            payload_bytes=split.num_bytes,
            moved=moved,
        )
        return ReadProof(state, path, moved, (*notices, *against, *limited))

    def _resident(self, ready: PreparedRead) -> ResidentBytes:
        """Bytes of the files in the page cache before the reads, and now, where they should have left none there."""
        paths = list(dict.fromkeys(job.path for job in ready.jobs))
        before_bytes = _total([ready.resident_bytes[path] for path in paths])
        if not self.geometry.direct:
            return ResidentBytes(before_bytes)
        with os_errors_as_store_errors(paths[0].parent):
            return ResidentBytes(
                before_bytes, _total([self._evidence.resident_bytes(path) for path in paths])
            )

    def _exceeds_limit(self, split: LoadSplit, load_s: float) -> tuple[str, ...]:
        """A short read after a pause gets through faster than the kernel's limit lets a long one."""
        limit = self._settings.limit
        above = limit is not None and limit.exceeded_by(group.sum_over_ranks(split.num_bytes), load_s)
        return ("above_limit",) if above else ()

    def verify(self, ready: PreparedRead, blocks: KVBlocks, state: torch.Tensor) -> bool | None:
        """True when all that was brought in is what was stored; None when nothing was.

        Raises:
            VerificationError: other bytes arrived than were stored.
        """
        if not ready.jobs or not self._kind.moves_bytes:
            return None
        self._require_whole_prefix(ready)
        for chunk_id, jobs in by_chunk(ready.jobs):
            groups = {piece.group for job in jobs for piece in job.pieces if piece.group is not None}
            self._store.require_payload(
                chunk_id, self._payload(jobs, chunk_id, blocks), groups=sorted(groups)
            )
        if ready.state_id is not None:
            self._store.require_state(ready.state_id, state.cpu().numpy())
        return True

    def _require_whole_prefix(self, ready: PreparedRead) -> None:
        """Stop unless the jobs load every byte that the prefix needs: the prefix decides that, not the plan of reads."""
        indices = self.geometry.chunks_between(ready.first_token, ready.last_token)
        read = {job.chunk_id for job in ready.jobs}
        chunk_ids = ready.chunk_ids[
            len(ready.chunk_ids) - len(indices) :
        ]  # a hybrid loads the back of the prefix
        for index, chunk_id in zip(indices, chunk_ids, strict=True):
            if chunk_id not in read and any(
                True for _ in self.geometry.needed_segments(index, ready.last_token)
            ):
                raise VerificationError(f"chunk {index} of {ready.last_token} tokens was not read")
        loaded = sum(
            len(piece.planes) * piece.num_tokens * piece.token_bytes
            for job in ready.jobs
            for piece in job.pieces
            if piece.group is not None
        )
        needed = self.geometry.payload_bytes_between(ready.first_token, ready.last_token)
        if loaded < needed:
            raise VerificationError(f"{loaded} of {needed} bytes of {ready.last_token} tokens were loaded")

    def _payload(self, jobs: Sequence[ChunkRead], chunk_id: int, blocks: KVBlocks) -> Bytes:
        """The chunk as it arrived; tokens beyond the prefix, which went nowhere, are read from the file."""
        whole = all(piece.num_tokens == piece.stride_tokens for job in jobs for piece in job.pieces)
        size_bytes = self.geometry.payload_bytes
        payload = np.empty(size_bytes, np.uint8) if whole else self._store.read_payload(chunk_id)
        for job in jobs:
            collect(job, blocks, payload)
        return payload

    def describe(
        self,
        ready: PreparedRead,
        split: LoadSplit,
        *,
        proof: ReadProof,
        seconds: float,
        first_token_s: float | None,
        verified: bool | None,
    ) -> Outcome:
        """The outcome of a sample that took `seconds` and the first-token step, with all that is known of its reads."""
        step_layers = self._settings.step_layers if first_token_s is not None else None
        state_bytes = 0 if ready.state_id is None else self.geometry.layout.state_bytes
        return Outcome(
            seconds=seconds + (first_token_s or 0.0),
            open_s=split.open_s,
            read_s=split.read_s,
            h2d_s=split.h2d_s,
            scatter_s=split.scatter_s,
            first_token_s=first_token_s,
            num_bytes=self.geometry.payload_bytes_between(ready.first_token, ready.last_token) + state_bytes,
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
            notices=tuple(dict.fromkeys((*ready.notices, *split.notices, *proof.notices))),
        )

    def close(self) -> None:
        """Stop the threads, let the buffers go; safe to call twice."""
        self.loader.close()
        if self._depot is not None:
            self._depot.remove()


def _total(sizes: Sequence[int | None]) -> int | None:
    """Their sum; None if one is not known."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
