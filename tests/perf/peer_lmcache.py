"""LMCache's readers of files, each into LMCache's own host memory; imported in the environment of `make peers` only."""

import asyncio
import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import fs_native_l2_adapter
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import FSL2Adapter, FSL2AdapterConfig
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import _object_key_to_filename as name_of
from lmcache.v1.memory_allocators.mixed_memory_allocator import MixedMemoryAllocator
from lmcache.v1.memory_management import MemoryFormat, MemoryObj
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
from peer_question import Question, spoil

SPARE_BYTES = 64 << 20
PATIENCE_MS = 300_000
FORMAT = MemoryFormat.KV_2LTD
_held: list[MixedMemoryAllocator] = []


def allocator_for(num_bytes: int) -> MixedMemoryAllocator:
    """The allocator of LMCache's host memory, its memory touched; kept until more is asked for."""
    if not _held or _held[0].size < num_bytes + SPARE_BYTES:
        while _held:
            _held.pop().close()
        _held.append(MixedMemoryAllocator(num_bytes + SPARE_BYTES))
        _held[0].buffer.fill_(0)
    return _held[0]


def shape_of(question: Question) -> torch.Size:
    """K and V of one file, in bytes."""
    return torch.Size([2, 1, 1, question.request_bytes // 2])


@contextmanager
def borrowed(question: Question) -> Iterator[list[MemoryObj]]:
    """Memory for every file, with ends that are not the right ones."""
    memory = allocator_for(question.num_bytes)
    objects = [memory.allocate(shape_of(question), torch.uint8, FORMAT) for _ in question.paths]
    try:
        spoil(bytes_of(objects))
        yield objects
    finally:
        for one in objects:
            one.ref_count_down()


def bytes_of(objects: Sequence[MemoryObj]) -> list[memoryview]:
    """The memory of each."""
    return [one.byte_array.cast("B") for one in objects]


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread, as the engine has one; the backend's writes and prefetches use it, reads do not."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def read_disk(question: Question) -> tuple[float, int]:
    """The local disk backend of the engine in the serving process: O_DIRECT and threads are options of it."""
    Path(question.folder).mkdir(exist_ok=True)
    config = LMCacheEngineConfig.from_defaults(
        local_disk=question.folder,
        max_local_disk_size=64.0,
        local_cpu=False,
        extra_config={"use_odirect": True, "disk_io_threads": question.depth},
    )
    with borrowed(question):
        pass  # what the backend allocates next lies there too
    host = LocalCPUBackend(config, memory_allocator=allocator_for(question.num_bytes), dst_device="cpu")
    with running_loop() as loop:
        backend = LocalDiskBackend(config, loop, host, dst_device="cpu")
        try:
            keys = [
                CacheEngineKey("peer", 1, 0, number, torch.uint8) for number in range(len(question.paths))
            ]
            question.link(backend._key_to_path(key) for key in keys)
            for key in keys:
                backend.insert_key(key, question.request_bytes, shape_of(question), torch.uint8, FORMAT)
            began_s = time.monotonic()
            found = backend.batched_get_blocking(keys)
            seconds = time.monotonic() - began_s
        finally:
            backend.close()
    num_bytes = question.require_marks(bytes_of(found))
    for one in found:
        one.ref_count_down()
    return seconds, num_bytes


def read_fs(question: Question) -> tuple[float, int]:
    """The adapter in Python: a task reads its files one after another."""
    adapter = FSL2Adapter(FSL2AdapterConfig(question.folder, use_odirect=True))
    return read_through(adapter, question, question.shares)


def read_fs_native(question: Question) -> tuple[float, int]:
    """The adapter in C++: threads share the files of a task."""
    config = fs_native_l2_adapter.FSNativeL2AdapterConfig(
        question.folder, num_workers=question.depth, use_odirect=True
    )
    adapter = fs_native_l2_adapter._create_fs_native_l2_adapter(config)
    return read_through(adapter, question, [range(len(question.paths))])


def read_through(
    adapter: L2AdapterInterface, question: Question, tasks: Sequence[range]
) -> tuple[float, int]:
    """Seconds and bytes of these load tasks."""
    keys = [ObjectKey(number.to_bytes(32, "big"), "peer", 0) for number in range(len(question.paths))]
    question.link(Path(question.folder, name_of(key)) for key in keys)
    with borrowed(question) as objects:
        try:
            began_s = time.monotonic()
            waiting = {
                adapter.submit_load_task([keys[n] for n in mine], [objects[n] for n in mine]): len(mine)
                for mine in tasks
            }
            wait_for(adapter, waiting)
            seconds = time.monotonic() - began_s
            return seconds, question.require_marks(bytes_of(objects))
        finally:
            adapter.close()


def wait_for(adapter: L2AdapterInterface, waiting: dict[int, int]) -> None:
    """Until the adapter's event has said of every task that its files are there."""
    event = adapter.get_load_event_fd()
    poller = select.poll()
    poller.register(event, select.POLLIN)
    while waiting:
        if not poller.poll(PATIENCE_MS):
            raise RuntimeError("LMCache did not finish in time")
        os.eventfd_read(event)
        for task in list(waiting):
            done = adapter.query_load_result(task)
            if done is not None and len(done.get_indices_list()) != waiting.pop(task):
                raise RuntimeError("LMCache says that a load failed")


READERS = {"disk": read_disk, "fs": read_fs, "fs_native": read_fs_native}
