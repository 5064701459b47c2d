"""Ways to read, listed in one table."""

from collections.abc import Callable
from dataclasses import dataclass

from kvio.backends.hostmem import HostMemBackend
from kvio.backends.null import NullBackend
from kvio.backends.posix import PosixBackend
from kvio.backends.protocol import Backend, KVIOError
from kvio.backends.setting import BackendSetting
from kvio.backends.simulated import SimulatedBackend


@dataclass(frozen=True, slots=True)
class BackendKind:
    """One way to read.

    Args:
        make: a backend for one thread.
        moves_bytes: False when nothing arrives, so that there is nothing to copy or to verify.
        from_storage: True when the bytes come from files at the time of the read.
    """

    make: Callable[[BackendSetting], Backend]
    moves_bytes: bool
    from_storage: bool


BACKENDS: dict[str, BackendKind] = {
    "null": BackendKind(NullBackend, moves_bytes=False, from_storage=False),
    "simulated": BackendKind(SimulatedBackend, moves_bytes=False, from_storage=False),
    "hostmem": BackendKind(HostMemBackend, moves_bytes=True, from_storage=False),
    "posix": BackendKind(PosixBackend, moves_bytes=True, from_storage=True),
}


def find_backend(name: str) -> BackendKind:
    """The backend of that name.

    Raises:
        KVIOError: there is none; lists those there are.
    """
    if name not in BACKENDS:
        raise KVIOError(f"unknown backend {name!r}; there are: {', '.join(BACKENDS)}")
    return BACKENDS[name]
