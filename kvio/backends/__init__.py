"""Ways to read, listed in one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kvio.backends.blocking import blocking
from kvio.backends.gds import MOST_READS, GdsBackend, try_gds
from kvio.backends.hostmem import HostMemReader
from kvio.backends.null import NullReader
from kvio.backends.posix import PosixReader
from kvio.backends.protocol import Backend, KVIOError, Unavailable
from kvio.backends.setting import BackendSetting
from kvio.backends.simulated import SimulatedReader
from kvio.backends.uring import MOST_IN_FLIGHT, UringBackend, try_uring
from kvio.gds.options import OPTIONS
from kvio.gds.path import PathCounters
from kvio.gds.process import read_path_counters

Probe = Callable[[Path, Mapping[str, str]], Unavailable | None]


def is_part_of_python(directory: Path, options: Mapping[str, str]) -> None:
    """The probe of backends that need nothing but Linux and Python."""
    return None


@dataclass(frozen=True, slots=True)
class BackendKind:
    """One way to read.

    Args:
        meaning: what it reads, in a few words.
        make: a backend for one thread.
        moves_bytes: False when nothing arrives, so that there is nothing to copy or to verify.
        from_storage: True when the bytes come from files at the time of the read.
        into: what its targets are: bounce buffers in host memory, or staging memory on the device.
        most_in_flight: jobs that one thread can keep in flight; 1 where queue depth comes from threads.
        options: names and meanings of the options that it understands.
        read_path: what libraries of its own have counted, of backends that the kernel's counters do not tell apart.
        probe: tries to read in this directory with these options; says why it cannot, None where it can.
    """

    meaning: str
    make: Callable[[BackendSetting], Backend]
    moves_bytes: bool
    from_storage: bool
    into: Literal["host", "device"] = "host"
    most_in_flight: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    read_path: Callable[[], PathCounters | None] = lambda: None
    probe: Probe = is_part_of_python


BACKENDS: dict[str, BackendKind] = {
    "null": BackendKind(
        "nothing: the price of the harness", blocking(NullReader), moves_bytes=False, from_storage=False
    ),
    "simulated": BackendKind(
        "a modelled drive with a known answer",
        blocking(SimulatedReader),
        moves_bytes=False,
        from_storage=False,
    ),
    "hostmem": BackendKind("chunks in DRAM", blocking(HostMemReader), moves_bytes=True, from_storage=False),
    "posix": BackendKind(
        "files, preadv from several threads", blocking(PosixReader), moves_bytes=True, from_storage=True
    ),
    "uring": BackendKind(
        "files, a queue of reads in each thread",
        UringBackend,
        moves_bytes=True,
        from_storage=True,
        most_in_flight=MOST_IN_FLIGHT,
        probe=try_uring,
    ),
    "gds": BackendKind(
        "files, by cuFile or kvikio into the GPU",
        GdsBackend,
        moves_bytes=True,
        from_storage=True,
        into="device",
        most_in_flight=MOST_READS,
        options=OPTIONS,
        read_path=read_path_counters,
        probe=try_gds,
    ),
}


def find_backend(name: str) -> BackendKind:
    """The backend of that name.

    Raises:
        KVIOError: there is none; lists those there are.
    """
    if name not in BACKENDS:
        raise KVIOError(f"unknown backend {name!r}; there are: {', '.join(BACKENDS)}")
    return BACKENDS[name]
