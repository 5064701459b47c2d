"""Aligned host memory that storage can write into, registered with CUDA when there is a GPU."""

import errno
import mmap
import resource
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from kvio.alignment import round_up
from kvio.protocol import HostTarget, KVIOError

HUGE_PAGE_BYTES = 2 << 20  # of x86-64, and of arm64 with pages of 4 KiB
MIN_HUGE_BYTES = 64 << 10  # what is smaller is not worth a huge page
CUDA_HOST_REGISTER_PORTABLE = 1  # cudaHostRegisterPortable, CUDA runtime API: pinned for every context


class Registrar(Protocol):
    """Pins host memory for a device; codes are the driver's, 0 for success."""

    def register(self, address: int, num_bytes: int) -> int:
        """Pin, and give the code."""

    def release(self, address: int) -> int:
        """Undo `register`, and give the code."""


class CudaRegistrar:
    """Pins with cudaHostRegister, so that copies to the GPU are asynchronous and take no detour."""

    def register(self, address: int, num_bytes: int) -> int:
        """Pin, and give the cudaError."""
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        return int(runtime.cudaHostRegister(address, num_bytes, CUDA_HOST_REGISTER_PORTABLE))

    def release(self, address: int) -> int:
        """Undo `register`, and give the cudaError."""
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        return int(runtime.cudaHostUnregister(address))


class HostBuffer:
    """Page-aligned host memory (bounce buffers), touched once so that no page fault is timed.

    In huge pages where the kernel gives them: it looks at every page that a drive is to write into, and a request to
    the drive may name so many separate pieces of memory at most (254 of virtio-blk: a read of 1 MiB into pages of
    4 KiB is cut in two).

    Args:
        num_bytes: size.
        registrar: pins the memory for a device; None leaves it pageable.

    Raises:
        KVIOError: no memory, or it cannot be registered.
    """

    def __init__(self, num_bytes: int, registrar: Registrar | None = None) -> None:
        self.num_bytes = num_bytes
        self._registrar = registrar
        self._registered = False
        try:
            self._map: mmap.mmap | None = _map_memory(num_bytes)
        except (OSError, ValueError, OverflowError) as error:
            raise KVIOError(f"no memory for a bounce buffer of {num_bytes} bytes: {error}") from error
        self._array: npt.NDArray[np.uint8] | None = _aligned(self._map, num_bytes)
        self._array.fill(0)
        self.address = self._array.ctypes.data
        if registrar is not None:
            self._register(registrar)

    def _register(self, registrar: Registrar) -> None:
        code = registrar.register(self.address, self.num_bytes)
        if code:
            limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
            limit = "unlimited" if limit_bytes == resource.RLIM_INFINITY else f"{limit_bytes} bytes"
            raise KVIOError(
                f"a bounce buffer of {self.num_bytes} bytes cannot be registered with the device "
                f"(cudaError {code}); RLIMIT_MEMLOCK is {limit}: "
                f"raise it (ulimit -l), or use fewer threads or smaller chunks"
            )
        self._registered = True

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The memory, (num_bytes,)."""
        if self._array is None:
            raise KVIOError("the bounce buffer is closed")
        return self._array

    @property
    def view(self) -> memoryview:
        """The memory as a writable view."""
        return self.array.data

    def targets(self, num_slots: int) -> list[HostTarget]:
        """The memory in equal parts, as what a backend reads into."""
        size = self.num_bytes // num_slots
        return [
            HostTarget(slot, self.address + slot * size, self.view[slot * size : (slot + 1) * size])
            for slot in range(num_slots)
        ]

    def close(self) -> None:
        """Deregister, then let the memory go (when the last view of it goes); safe to call twice."""
        if self._registered and self._registrar is not None:
            self._registered = False
            code = self._registrar.release(self.address)
            if code:
                raise KVIOError(f"a bounce buffer could not be deregistered (cudaError {code})")
        self._array = None
        self._map = None


def _map_memory(num_bytes: int) -> mmap.mmap:
    """Anonymous memory with room for `num_bytes` from a huge page's beginning on, if they are worth one."""
    if num_bytes < MIN_HUGE_BYTES:
        return mmap.mmap(-1, max(num_bytes, 1), flags=mmap.MAP_PRIVATE)
    found = mmap.mmap(-1, round_up(num_bytes, HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE)
    try:
        found.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel without huge pages
            raise
    return found


def _aligned(memory: mmap.mmap, num_bytes: int) -> npt.NDArray[np.uint8]:
    """`num_bytes` of it, (num_bytes,), from the first huge page that begins in it, if they are worth one."""
    flat = np.frombuffer(memory, np.uint8)
    start = -flat.ctypes.data % HUGE_PAGE_BYTES if num_bytes >= MIN_HUGE_BYTES else 0
    return flat[start : start + num_bytes]


class Slots:
    """Numbers of buffers, each free, taken (being read into), or sent (being copied from).

    Args:
        num_slots: one more than are read into at once, so that reads go on while one is copied from.
        settle: waits for the copy out of a slot.
    """

    def __init__(self, num_slots: int, settle: Callable[[int], None]) -> None:
        self._num_slots = num_slots
        self._release = settle
        self._free = deque(range(num_slots))
        self._sent: deque[int] = deque()

    def take(self) -> int:
        """A free slot, else the one sent first, once its copy is done."""
        if self._free:
            return self._free.popleft()
        slot = self._sent.popleft()
        self._release(slot)
        return slot

    def send(self, slot: int) -> None:
        """A copy out of this slot is under way."""
        self._sent.append(slot)

    def settle_all(self) -> None:
        """Wait for every copy; all slots are free then, those too whose reads failed."""
        while self._sent:
            self._release(self._sent.popleft())
        self._free = deque(range(self._num_slots))
