"""A model's own KV through the real store and backend: what the logits check writes and loads back.

The logits check of a sweep: logits after a load against those after recompute, for every way to load.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from bench.arms import ranks as group
from bench.arms.hybrid_split import PieceSizes, WorkSplit, jobs_by_chunk, recompute_and_load
from bench.arms.logits_check import check_answer
from bench.arms.model.build import BuiltModel
from bench.arms.prefill import prefill_over
from bench.measure.processes.messages import CheckDone, Message, SeriesFailed
from bench.measure.setup import LoadSeries, name_hybrid
from bench.measure.worker.model_session import ModelSession
from bench.record.notices import Notice
from kvio.backends import find_backend
from kvio.backends.config import BackendConfig
from kvio.errors import KVIOError
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader
from kvio.loading.read_plan import ChunkRead, by_chunk, collect, plan_jobs
from kvio.store.chunk_store import ChunkStore
from kvio.store.store_files import temporary_directory


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be read for tokens 0 to `num_tokens`: jobs, and the number of each chunk's file."""

    jobs: tuple[ChunkRead, ...]
    chunk_ids: tuple[int, ...]
    num_tokens: int


class StoreRoundTrip:
    """Writes the KV of one set of blocks to chunk files and loads them into another.

    Args:
        directory: empty; the files go here.
        geometry: of the chunks.
        load: the series whose backend reads them back.
        now_s: the clock of the loader.
    """

    def __init__(
        self, directory: Path, geometry: ChunkGeometry, load: LoadSeries, *, now_s: Callable[[], float]
    ) -> None:
        self._directory = directory
        self._geometry = geometry
        self._load = load
        self._kind = find_backend(load.spec.backend)
        self._now_s = now_s
        self._store: ChunkStore | None = None

    def __call__(
        self, source: KVBlocks, target: KVBlocks, *, num_tokens: int, rotate: bool, prompt: torch.Tensor
    ) -> None:
        """Store the first `num_tokens` of `source`, load them into `target`; `rotate` exchanges the files."""
        chunks = self._geometry.chunks_between(0, num_tokens)
        if self._store is None:
            self._store = self._write(source, num_tokens, num_chunks=len(chunks))
        shift = 1 if rotate else 0
        ids = [(index + shift) % len(chunks) for index in chunks]
        jobs = plan_jobs(
            self._store,
            ids,
            first_token=0,
            prefix_tokens=num_tokens,
            state_id=0 if self._store.num_states else None,
        )
        depot = self._kind.placement and self._kind.placement(self._load.spec.options, self._directory)
        setting = BackendConfig(
            self._geometry.direct,
            depot,
            queue_depth=self._load.in_flight,
            directory=self._directory,
            packed_bytes=self._geometry.packed_bytes,
            options=self._load.spec.options,
        )
        try:
            if depot is not None:
                paths = list(dict.fromkeys(job.path for job in jobs))
                depot.upload(paths, packed_bytes=self._geometry.packed_bytes)
            self._load_through(setting, target, Planned(jobs, tuple(ids), num_tokens), prompt=prompt)
        finally:
            if depot is not None:
                depot.remove()

    def _load_through(
        self, setting: BackendConfig, target: KVBlocks, planned: Planned, *, prompt: torch.Tensor
    ) -> None:
        loader = ChunkLoader(
            self._geometry,
            lambda: self._kind.make(setting),
            device=target.device,
            now_s=self._now_s,
            into=self._kind.target_memory,
        )
        try:
            self._load_chunks(loader, target, planned, prompt=prompt)
        finally:
            loader.close()

    def _load_chunks(
        self, loader: ChunkLoader, target: KVBlocks, planned: Planned, *, prompt: torch.Tensor
    ) -> None:
        """Load everything."""
        loader.load(target, planned.jobs)

    def _write(self, source: KVBlocks, num_tokens: int, *, num_chunks: int) -> ChunkStore:
        store = ChunkStore.create(self._directory, self._geometry, num_chunks=num_chunks, seed=0)
        jobs = plan_jobs(
            store,
            range(num_chunks),
            first_token=0,
            prefix_tokens=num_tokens,
        )
        for chunk_id, parts in by_chunk(jobs):
            payload = np.zeros(self._geometry.payload_bytes, np.uint8)
            for job in parts:
                collect(job, source, payload)
            store.write_chunk(chunk_id, payload)
        if store.num_states:
            store.write_state(0, source.state.cpu().numpy())
        return store


class HybridExchange(StoreRoundTrip):
    """The hybrid's way into the target: the front of the prompt is computed, its back loaded, until both meet.

    Args:
        directory, geometry, load, now_s: as of `StoreRoundTrip`.
        built: the model that computes.
        kv_dtype: of the KV.
    """

    def __init__(
        self,
        directory: Path,
        geometry: ChunkGeometry,
        load: LoadSeries,
        *,
        now_s: Callable[[], float],
        built: BuiltModel,
        kv_dtype: torch.dtype,
    ) -> None:
        super().__init__(directory, geometry, load, now_s=now_s)
        self._built = built
        self._kv_dtype = kv_dtype
        self.load_fraction: float | None = None

    def _load_chunks(
        self, loader: ChunkLoader, target: KVBlocks, planned: Planned, *, prompt: torch.Tensor
    ) -> None:
        """Recompute and load; nothing that lies before the prompt is brought."""
        chunk_tokens = self._geometry.chunk_tokens
        first_token = planned.num_tokens - prompt.shape[1]
        meeting = WorkSplit(
            jobs_by_chunk(planned.jobs, planned.chunk_ids[first_token // chunk_tokens :]),
            first_token=first_token,
            last_token=planned.num_tokens,
            chunk_tokens=chunk_tokens,
            sizes=PieceSizes(chunk_tokens, chunk_tokens),
            share=0.25,  # of two chunks each side gets one, whichever is faster: recompute leaves the last to loading
            states=[job for job in planned.jobs if job.chunk_id is None],
        )
        front = prefill_over(
            self._built, target.with_own_state(), kv_dtype=self._kv_dtype, first_slot=first_token
        )
        with ThreadPoolExecutor(1) as beside:
            recompute_and_load(
                front,
                prompt,
                meeting=meeting,
                load=lambda take: loader.load_while(target, take),
                beside=beside,
                now_s=self._now_s,
            )
        met_at = meeting.met_at
        if met_at is not None:
            self.load_fraction = (planned.num_tokens - met_at) / prompt.shape[1]


def check_answers(
    bench: ModelSession, tokens: int, scratch: Path, *, hybrids: Collection[str], checked: Collection[str]
) -> Iterator[Message]:
    """The logits check of each series that moves bytes; a series that fails is dropped while others are left."""
    loads = bench.setup.loads
    broken = 0
    for load in (load for load in loads if find_backend(load.spec.backend).moves_bytes):
        try:
            if f"answer:{load.name}" not in checked:
                yield _check_answer(bench, load, tokens, scratch)
            hybrid = name_hybrid(load.name)
            if hybrid in hybrids and f"answer:{hybrid}" not in checked:
                yield _check_hybrid(bench, load, tokens, scratch)
        except KVIOError as error:
            broken += 1
            if group.size() > 1 or broken == len(loads):
                raise
            yield SeriesFailed(load.name, str(error))


def _check_answer(bench: ModelSession, load: LoadSeries, tokens: int, scratch: Path) -> CheckDone:
    """Logits after a load through this series' layout and backend, against recompute; with a negative control."""
    geometry = _check_geometry(bench, load, tokens // 2)
    with temporary_directory(scratch) as directory:
        exchange = StoreRoundTrip(directory, geometry, load, now_s=bench.now_s)
        return _compare(bench, load.name, exchange, geometry=geometry, num_chunks=1)


def _check_hybrid(bench: ModelSession, load: LoadSeries, tokens: int, scratch: Path) -> CheckDone:
    """The same after recompute of the prompt's front and loading of its back."""
    geometry = _check_geometry(bench, load, tokens // 4)
    with temporary_directory(scratch) as directory:
        exchange = HybridExchange(
            directory,
            geometry,
            load,
            now_s=bench.now_s,
            built=bench.built,
            kv_dtype=bench.kv_dtype,
        )
        done = _compare(bench, name_hybrid(load.name), exchange, geometry=geometry, num_chunks=2)
    return replace(done, result={**done.result, "load_fraction": exchange.load_fraction})


def _check_geometry(bench: ModelSession, load: LoadSeries, most_tokens: int) -> ChunkGeometry:
    chunk_tokens = min(load.geometry.chunk_tokens, most_tokens)
    return ChunkGeometry(bench.layout, adapt_preset(load.geometry.preset, chunk_tokens=chunk_tokens))


def _compare(
    bench: ModelSession, name: str, exchange: StoreRoundTrip, *, geometry: ChunkGeometry, num_chunks: int
) -> CheckDone:
    """The check for a prompt of `num_chunks` KV chunks and one token."""
    num_tokens = num_chunks * geometry.chunk_tokens + 1
    check = check_answer(
        bench.built, bench.layout, num_tokens, store_and_load=exchange, kv_dtype=bench.kv_dtype
    )
    said = "passes" if check.passed else "is blind" if check.blind else "fails"
    message = (
        f"the logits check {said}: logits differ by {check.max_difference:.3g} standard deviations "
        f"({check.tolerance:g} allowed), with rotated chunks by {check.control_difference:.3g}"
    )
    result = {
        "passed": check.passed,
        "max_difference": check.max_difference,
        "control_difference": check.control_difference,
        "tolerance": check.tolerance,
        "prompt_tokens": num_tokens,
        "chunk_tokens": geometry.chunk_tokens,
        "layers": len(bench.built.layers),
    }
    kind = "blind_answer_check" if check.blind else "wrong_answer"
    notice = None if check.passed else Notice(kind=kind, series=name, detail=message)
    return CheckDone(f"answer:{name}", result, notice)
