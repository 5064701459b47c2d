"""Aligned host memory that storage can write into, registered with CUDA when there is a GPU."""

import mmap
import resource
from contextlib import ExitStack
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from kvio.backends.protocol import HostTarget, KVIOError

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
    """Page-aligned host memory (a bounce buffer), touched once so that no page fault is timed.

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
            self._map: mmap.mmap | None = mmap.mmap(-1, max(num_bytes, 1), flags=mmap.MAP_PRIVATE)
        except (OSError, ValueError) as error:
            raise KVIOError(f"no memory for a bounce buffer of {num_bytes} bytes: {error}") from error
        self._array: npt.NDArray[np.uint8] | None = np.frombuffer(self._map, np.uint8, count=num_bytes)
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

    def target(self, slot: int) -> HostTarget:
        """The memory as what a backend reads into."""
        return HostTarget(slot, self.address, self.view)

    def close(self) -> None:
        """Deregister, then let the memory go (when the last view of it goes); safe to call twice."""
        if self._registered and self._registrar is not None:
            self._registered = False
            code = self._registrar.release(self.address)
            if code:
                raise KVIOError(f"a bounce buffer could not be deregistered (cudaError {code})")
        self._array = None
        self._map = None


def close_all(buffers: list[HostBuffer]) -> None:
    """Close every buffer, also those behind one that cannot be deregistered.

    Raises:
        KVIOError: one could not be.
    """
    with ExitStack() as closing:
        while buffers:
            closing.callback(buffers.pop().close)
