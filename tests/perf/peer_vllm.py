"""vLLM's fs tier, from submit_load to the end of its last job; imported in the environment of `make peers` only."""

import gc
import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from peer_question import Question, spoil
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs import io
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

CONTEXT = ReqContext(req_id="peer")
PARALLEL = SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0, is_parallelism_agnostic=True)
# what the tier asks of the engine's configuration: names for its folders
ENGINE = SimpleNamespace(
    blocks_per_chunk=1,
    kv_events_config=None,
    config=SimpleNamespace(
        groups=[],
        parallel=PARALLEL,
        canonical_layout=False,
        replicated_layout=False,
        model=SimpleNamespace(name="peer", dtype="bfloat16"),
        cache=SimpleNamespace(tokens_per_hash=16),
    ),
)
_held: list[SharedOffloadRegion] = []


def memory_for(num_bytes: int) -> memoryview:
    """The shared memory of vLLM's CPU tier, touched; kept until more is asked for."""
    if not _held or _held[0].total_size_bytes < num_bytes:
        while _held:
            gc.collect()  # views of it keep it open
            _held.pop().cleanup()
        region = SharedOffloadRegion(f"peer-{os.getpid()}", 1, None, num_bytes, num_bytes)
        Path(region.mmap_path).unlink()  # as vLLM does once all have mapped it
        region.base_tensor.zero_()
        _held.append(region)
    return memoryview(_held[0].base_tensor.numpy()).cast("B")[:num_bytes]


def open_tier(question: Question, memory: memoryview) -> FileSystemTierManager:
    """The tier with as many reading threads as the depth."""
    tier = FileSystemTierManager(
        offloading_spec=ENGINE,
        primary_kv_view=memory.cast("B", (len(question.paths), question.request_bytes)),
        tier_type="fs",
        root_dir=question.folder,
        n_read_threads=question.depth,
        n_write_threads=0,
    )
    if not tier._use_o_direct or not io._HAS_FSIO_C:
        raise RuntimeError("vLLM would read through the page cache, or without its C reader")
    return tier


def read_fs(question: Question) -> tuple[float, int]:
    """Seconds and bytes; a job is what one request loads, and is read by one thread."""
    size = question.request_bytes
    memory = memory_for(question.num_bytes)
    parts = [memory[start : start + size] for start in range(0, len(memory), size)]
    spoil(parts)
    tier = open_tier(question, memory)
    try:
        keys = [make_offload_key(number.to_bytes(32, "big"), 0) for number in range(len(parts))]
        question.link(tier.file_mapper.get_file_name(key) for key in keys)
        began_s = time.monotonic()
        for job_id, mine in enumerate(question.shares):
            tier.submit_load(TransferJob(job_id, [keys[n] for n in mine], np.array(mine), True, CONTEXT))
        tier.drain_jobs()
        seconds = time.monotonic() - began_s
        if not all(result.success for result in tier.get_finished_jobs()):
            raise RuntimeError("vLLM says that a load failed")
        return seconds, question.require_marks(parts)
    finally:
        tier.shutdown()


READERS = {"fs": read_fs}
