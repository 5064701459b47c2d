"""NIXL as its users drive it: memory and files registered once, one transfer of all descriptors, its own queue."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from kvio.backends.nixl_plugin import INSTALL, Wheel, load_nixl, make_agent, plugin_parameters
from kvio.backends.protocol import KVIOError
from kvio.buffers import HostBuffer
from tests.perf.fileset import FileSet

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
def _memory(num_bytes: int) -> HostBuffer:
    """Touched memory for all files; of the size at hand only."""
    _memory.cache_clear()
    return HostBuffer(num_bytes)


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


def read_by_nixl(queue: str, files: FileSet) -> float:
    """Seconds of one transfer of all files, a descriptor each."""
    wheel, memory = load_nixl(), _memory(files.num_bytes)
    agent = make_agent(
        wheel, PLUGIN, name=f"peer-{queue}-{time.monotonic_ns()}", parameters=plugin_parameters(queue, None)
    )
    with _opened(files) as descriptors:
        size = files.request_bytes
        registered = [
            agent.register_memory([(memory.address, files.num_bytes, 0, "")], "DRAM", backends=[PLUGIN]),
            agent.register_memory([(0, size, number, "") for number in descriptors], "FILE", backends=[PLUGIN]),
        ]
        _spoil(memory, files)
        try:
            began_s = time.monotonic()
            _transfer(agent, wheel, memory.address, descriptors=descriptors, size=size)
            seconds = time.monotonic() - began_s
        finally:
            for parts in registered:
                agent.deregister_memory(parts, backends=[PLUGIN])
    _require_marks(memory, files)
    return seconds


def _transfer(agent: Any, wheel: Wheel, address: int, *, descriptors: list[int], size: int) -> None:  # noqa: ANN401
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


def _ends(memory: HostBuffer, files: FileSet) -> Iterator[tuple[memoryview, memoryview]]:
    size, count = files.request_bytes, len(files.marks[0][0]) // 2
    for start in range(0, files.num_bytes, size):
        yield memory.view[start : start + count], memory.view[start + size - count : start + size]


def _spoil(memory: HostBuffer, files: FileSet) -> None:
    for first, last in _ends(memory, files):
        first[:], last[:] = bytes(len(first)), bytes(len(last))


def _require_marks(memory: HostBuffer, files: FileSet) -> None:
    found = tuple((first.hex(), last.hex()) for first, last in _ends(memory, files))
    assert found == files.marks
