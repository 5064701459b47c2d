"""Page-aligned memory to read into, for trials and for placing: without torch, which takes seconds to import."""

import ctypes
import mmap

from kvio.protocol import HostTarget


def make_host_target(num_bytes: int) -> HostTarget:
    """Zeroed memory of that size; gone with the last reference to it."""
    memory = mmap.mmap(-1, num_bytes)
    return HostTarget(0, ctypes.addressof(ctypes.c_char.from_buffer(memory)), memoryview(memory))
