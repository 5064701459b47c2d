"""A model's own KV through the real store and backend: what the right-answer check writes and loads back."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measure.setup import LoadSeries
from kvio.backends import find_backend
from kvio.backends.setting import BackendSetting, HostMemory
from kvio.blocks import KVBlocks
from kvio.chunks import ChunkGeometry
from kvio.jobs import by_chunk, collect, plan_jobs
from kvio.loader import ChunkLoader
from kvio.store import ChunkStore


class StoreExchange:
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

    def __call__(self, source: KVBlocks, target: KVBlocks, *, num_tokens: int, rotate: bool) -> None:
        """Store the first `num_tokens` of `source`, load them into `target`; `rotate` exchanges the files."""
        chunks = self._geometry.chunks_between(0, num_tokens)
        if self._store is None:
            self._store = self._write(source, num_tokens, num_chunks=len(chunks))
        shift = 1 if rotate else 0
        ids = [(index + shift) % len(chunks) for index in chunks]
        memory = HostMemory()
        jobs = plan_jobs(
            self._store,
            ids,
            first_token=0,
            prefix_tokens=num_tokens,
            state_id=0 if self._store.num_states else None,
        )
        memory.hold(list(dict.fromkeys(job.path for job in jobs)))
        setting = BackendSetting(
            self._geometry.direct,
            memory,
            queue_depth=self._load.in_flight,
            directory=self._directory,
            options=self._load.spec.options,
        )
        loader = ChunkLoader(
            self._geometry,
            lambda: self._kind.make(setting),
            device=target.device,
            now_s=self._now_s,
            into=self._kind.into,
        )
        try:
            loader.load(target, jobs)
        finally:
            loader.close()

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
