"""Device memory pinned for the drive, by whole allocations, each once however many slots lie in it."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING

from kvio.backends.gds.gds_library import GdsUnavailableError, find_allocation

if TYPE_CHECKING:
    import torch  # the command line lists backends without it


class Registrations:
    """What is registered in this process; shared by threads.

    Args:
        find_base: where the allocation begins that holds an address: kvikio registers, and looks up, whole ones.
    """

    def __init__(self, find_base: Callable[[int], int] = find_allocation) -> None:
        self._find_base = find_base
        self._users: Counter[int] = Counter()
        self._lock = threading.Lock()

    def register(self, kvikio: ModuleType, tensors: Sequence["torch.Tensor"]) -> None:
        """Pin the allocations of all tensors, or of none.

        Raises:
            GdsUnavailableError: the driver refuses: the GPU's window (BAR1) or pinned memory is full.
        """
        done: list[torch.Tensor] = []
        try:
            for tensor in tensors:
                self._register_one(kvikio, tensor)
                done.append(tensor)
        except BaseException:
            self.release(kvikio, done)
            raise

    def _register_one(self, kvikio: ModuleType, tensor: "torch.Tensor") -> None:
        base = self._find_base(tensor.data_ptr())
        with self._lock:
            if not self._users[base]:
                try:
                    kvikio.memory_register(tensor)
                except RuntimeError as error:
                    what = str(error).partition("\n")[0]
                    raise GdsUnavailableError(
                        f"{tensor.numel()} bytes of GPU memory cannot be registered ({what}); the GPU's BAR1 may be "
                        f"too small: fewer threads, a lower --queue-depth, smaller chunks, or gds.register=off"
                    ) from error
            self._users[base] += 1

    def release(self, kvikio: ModuleType, tensors: Sequence["torch.Tensor"]) -> None:
        """Undo `register`; goes on after a failure.  Freeing memory before this deadlocks in nvidia-fs."""
        with ExitStack() as releasing:
            for tensor in tensors:
                releasing.callback(self._release_one, kvikio, tensor)

    def _release_one(self, kvikio: ModuleType, tensor: "torch.Tensor") -> None:
        base = self._find_base(tensor.data_ptr())
        with self._lock:
            self._users[base] -= 1
            if self._users[base] <= 0:
                del self._users[base]
                kvikio.memory_deregister(tensor)


REGISTRATIONS = Registrations()
