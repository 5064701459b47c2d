"""NIXL as its users drive it: memory and files registered once, one transfer of all descriptors, its own queue.

Its memory is what an allocator gives, in pages of 4 KiB; or the memory of our own buffers, in huge pages.
"""

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from kvio.backends.nixl.nixl_plugin import INSTALL, load_nixl, make_agent, plugin_parameters
from kvio.host_buffers import HostBuffer
from kvio.protocol import KVIOError
from kvio.store.store_files import Bytes
from tests.perf.fileset import FileSet
from tests.perf.peer_question import MARK_BYTES

PLUGIN = "POSIX"


@cache
def explain_no_nixl() -> str | None:
    """Why NIXL cannot be used; None where it can."""
    try:
        load_nixl()
    except KVIOError:
        return f"nixl is not installed: {INSTALL}"
    return None


@cache
def _memory(num_bytes: int, huge: bool) -> Bytes:
    """Touched memory for all files; of the size at hand only."""
    _memory.cache_clear()
    if huge:
        return HostBuffer(num_bytes).array
    memory = np.frombuffer(mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE), np.uint8)
    memory.fill(0)
    return memory


@contextmanager
def _opened(files: FileSet) -> Iterator[list[int]]:
    descriptors: list[int] = []
    try:
        for path in files.paths:
            descriptors.append(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def read_by_nixl(queue: str, files: FileSet, *, huge: bool) -> float:
    """Seconds of one transfer of all files, a descriptor each."""
    wheel, memory = load_nixl(), _memory(files.num_bytes, huge)
    address = memory.ctypes.data
    agent = make_agent(
        wheel, PLUGIN, name=f"peer-{queue}-{time.monotonic_ns()}", parameters=plugin_parameters(queue, None)
    )
    with _opened(files) as descriptors:
        size = files.request_bytes
        registered = [
            agent.register_memory([(address, files.num_bytes, 0, "")], "DRAM", backends=[PLUGIN]),
            agent.register_memory(
                [(0, size, number, "") for number in descriptors], "FILE", backends=[PLUGIN]
            ),
        ]
        _spoil(memory, files)
        try:
            began_s = time.monotonic()
            _transfer(agent, address, descriptors=descriptors, size=size)
            seconds = time.monotonic() - began_s
        finally:
            for parts in registered:
                agent.deregister_memory(parts, backends=[PLUGIN])
    _require_marks(memory, files)
    return seconds


def _transfer(agent: Any, address: int, *, descriptors: list[int], size: int) -> None:  # noqa: ANN401
    local = agent.get_xfer_descs(
        [(address + number * size, size, 0) for number in range(len(descriptors))], "DRAM"
    )
    remote = agent.get_xfer_descs([(0, size, descriptor) for descriptor in descriptors], "FILE")
    handle = agent.initialize_xfer("READ", local, remote, agent.name, backends=[PLUGIN])
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    handle.release()
    assert state == "DONE"


def _ends(memory: Bytes, files: FileSet) -> Iterator[tuple[Bytes, Bytes]]:
    size = files.request_bytes
    for start in range(0, files.num_bytes, size):
        yield memory[start : start + MARK_BYTES], memory[start + size - MARK_BYTES : start + size]


def _spoil(memory: Bytes, files: FileSet) -> None:
    for first, last in _ends(memory, files):
        first[:] = last[:] = 0


def _require_marks(memory: Bytes, files: FileSet) -> None:
    found = tuple((first.tobytes().hex(), last.tobytes().hex()) for first, last in _ends(memory, files))
    assert found == files.marks
