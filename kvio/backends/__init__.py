"""Ways to read, listed in one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kvio.backends.blocking import blocking
from kvio.backends.config import BackendConfig, HostMemory
from kvio.backends.gds.gds_backend import MAX_READS, GdsBackend, try_gds
from kvio.backends.gds.gds_options import OPTIONS as GDS_OPTIONS
from kvio.backends.gds.gds_process import read_path_counters
from kvio.backends.local.hostmem import HostMemReader
from kvio.backends.local.pinned_backend import MAX_IN_FLIGHT as PINNED_IN_FLIGHT
from kvio.backends.local.pinned_backend import READS_AT_ONCE as PINNED_AT_ONCE
from kvio.backends.local.pinned_backend import hold_pinned, make_pinned, try_pinned
from kvio.backends.local.posix import PosixReader
from kvio.backends.local.uring import MAX_IN_FLIGHT, UringBackend, try_uring
from kvio.backends.local.virtual import NullReader, SimulatedReader
from kvio.backends.mooncake.mooncake_backend import MAX_IN_FLIGHT as MOONCAKE_IN_FLIGHT
from kvio.backends.mooncake.mooncake_backend import READS_AT_ONCE as MOONCAKE_AT_ONCE
from kvio.backends.mooncake.mooncake_backend import MooncakeBackend, try_mooncake
from kvio.backends.mooncake.mooncake_client import OPTIONS as MOONCAKE_OPTIONS
from kvio.backends.mooncake.mooncake_client import read_mooncake
from kvio.backends.mooncake.mooncake_placement import MooncakeDepot
from kvio.backends.nixl.nixl_backend import MAX_IN_FLIGHT as NIXL_IN_FLIGHT
from kvio.backends.nixl.nixl_backend import READS_AT_ONCE as NIXL_AT_ONCE
from kvio.backends.nixl.nixl_backend import (
    make_gds,
    make_objects,
    make_posix,
    try_gds_plugin,
    try_nixl,
    try_objects,
)
from kvio.backends.nixl.nixl_plugin import POSIX_OPTIONS
from kvio.backends.placement import Placement
from kvio.backends.s3.bucket import OPTIONS as BUCKET_OPTIONS
from kvio.backends.s3.bucket import read_address
from kvio.backends.s3.object_placement import ObjectDepot
from kvio.backends.s3.s3_backend import S3Reader, probe_objects
from kvio.evidence.gds_path import PathCounters
from kvio.protocol import Backend, KVIOError, ServerAddress, Unavailable

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
        reads_at_once: `Backend.reads_at_once`.
        options: names and meanings of the options that it understands.
        depot: where the chunks lie, given the options and the directory of the files; None reads the files.
        needs_gpu: it cannot be measured where the device is the CPU.
        server: the address, given the options, of a server that sends the bytes: nothing on this machine tells
            where it had them from; None where they are read here.
        read_path: what libraries of its own have counted, of backends that the kernel's counters do not tell apart.
        probe: tries to read in this directory with these options; says why it cannot, None where it can.
    """

    meaning: str
    make: Callable[[BackendConfig], Backend]
    moves_bytes: bool
    from_storage: bool
    into: Literal["host", "device"] = "host"
    most_in_flight: int = 1
    reads_at_once: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    depot: Callable[[Mapping[str, str], Path], Placement] | None = None
    server: Callable[[Mapping[str, str]], ServerAddress] | None = None
    needs_gpu: bool = False
    read_path: Callable[[], PathCounters | None] = lambda: None
    probe: Probe = is_part_of_python

    @property
    def on_server(self) -> bool:
        """Whether a server sends the bytes."""
        return self.server is not None


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
    "hostmem": BackendKind(
        "chunks in DRAM, pageable",
        blocking(HostMemReader),
        moves_bytes=True,
        from_storage=False,
        depot=lambda options, root: HostMemory(),
    ),
    "hostmem-pinned": BackendKind(
        "chunks in DRAM that is pinned for the GPU",
        make_pinned,
        moves_bytes=True,
        from_storage=False,
        into="device",
        most_in_flight=PINNED_IN_FLIGHT,
        reads_at_once=PINNED_AT_ONCE,
        depot=hold_pinned,
        needs_gpu=True,
        probe=try_pinned,
    ),
    "posix": BackendKind(
        "files, preadv from several threads", blocking(PosixReader), moves_bytes=True, from_storage=True
    ),
    "uring": BackendKind(
        "files, a queue of reads in each thread",
        UringBackend,
        moves_bytes=True,
        from_storage=True,
        most_in_flight=MAX_IN_FLIGHT,
        probe=try_uring,
    ),
    "s3": BackendKind(
        "objects of an S3 server, a GET at a time in each thread",
        blocking(S3Reader),
        moves_bytes=True,
        from_storage=True,
        options=BUCKET_OPTIONS,
        depot=ObjectDepot,
        server=read_address,
        probe=probe_objects,
    ),
    "nixl": BackendKind(
        "files, NIXL's POSIX plugin",
        make_posix,
        moves_bytes=True,
        from_storage=True,
        most_in_flight=NIXL_IN_FLIGHT,
        reads_at_once=NIXL_AT_ONCE,
        options=POSIX_OPTIONS,
        probe=try_nixl,
    ),
    "nixl-gds": BackendKind(
        "files into a GPU, NIXL's GDS_MT plugin",
        make_gds,
        moves_bytes=True,
        from_storage=True,
        into="device",
        most_in_flight=NIXL_IN_FLIGHT,
        reads_at_once=NIXL_AT_ONCE,
        needs_gpu=True,
        probe=try_gds_plugin,
    ),
    "nixl-obj": BackendKind(
        "objects of an S3 server, NIXL's OBJ plugin",
        make_objects,
        moves_bytes=True,
        from_storage=True,
        most_in_flight=NIXL_IN_FLIGHT,
        reads_at_once=NIXL_AT_ONCE,
        options=BUCKET_OPTIONS,
        depot=ObjectDepot,
        server=read_address,
        probe=try_objects,
    ),
    "mooncake": BackendKind(
        "objects of a Mooncake store, a batch at a time in each thread",
        MooncakeBackend,
        moves_bytes=True,
        from_storage=True,
        most_in_flight=MOONCAKE_IN_FLIGHT,
        reads_at_once=MOONCAKE_AT_ONCE,
        options=MOONCAKE_OPTIONS,
        depot=MooncakeDepot,
        server=read_mooncake,
        probe=try_mooncake,
    ),
    "gds": BackendKind(
        "files, by cuFile or kvikio into the GPU",
        GdsBackend,
        moves_bytes=True,
        from_storage=True,
        into="device",
        most_in_flight=MAX_READS,
        reads_at_once=MAX_READS,
        options=GDS_OPTIONS,
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
