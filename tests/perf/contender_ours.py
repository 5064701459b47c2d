"""Our loader in a read comparison: `posix` with a thread for each read in flight, `uring` with one thread."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

from kvio.backends import find_backend
from kvio.backends.config import BackendConfig
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader
from kvio.loading.read_plan import ChunkRead, plan_jobs
from tests.perf.fileset import LAYOUT, FileSet, geometry_of


def _plan(files: FileSet) -> tuple[ChunkRead, ...]:
    return plan_jobs(files.store, range(len(files.paths)), first_token=0, prefix_tokens=files.num_tokens)


@cache
def _blocks(num_tokens: int) -> KVBlocks:
    """Blocks that have been touched; of the size at hand only."""
    _blocks.cache_clear()
    blocks = KVBlocks(LAYOUT, num_tokens, torch.device("cpu"))
    blocks.poison()
    return blocks


def read_into_buffers(backend: str, files: FileSet, depth: int) -> float:
    """Seconds of the reads alone."""
    jobs = [replace(job, pieces=()) for job in _plan(files)]
    return _read(backend, files, depth=depth, jobs=jobs, blocks=KVBlocks(LAYOUT, 0, torch.device("cpu")))


def read_into_blocks(backend: str, files: FileSet, depth: int) -> float:
    """Seconds until all tokens are in their blocks."""
    return _read(backend, files, depth=depth, jobs=_plan(files), blocks=_blocks(files.num_tokens))


def _read(backend: str, files: FileSet, *, depth: int, jobs: Sequence[ChunkRead], blocks: KVBlocks) -> float:
    kind = find_backend(backend)
    per_thread = min(depth, kind.max_in_flight)
    geometry = geometry_of(files.request_bytes, num_threads=depth // per_thread, queue_depth=per_thread)
    setting = BackendConfig(direct=True, queue_depth=per_thread)
    loader = ChunkLoader(geometry, lambda: kind.make(setting), device=blocks.device, now_s=time.monotonic)
    try:
        began_s = time.monotonic()
        split = loader.load(blocks, jobs)
        seconds = time.monotonic() - began_s
    finally:
        loader.close()
    assert split.num_bytes == files.num_bytes
    return seconds
