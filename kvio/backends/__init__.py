"""The backends: every way to read chunks.  A new one is a file that ends with its `BackendKind`, and a line here."""

from kvio.backends.config import BackendKind
from kvio.backends.gds.gds_backend import GDS
from kvio.backends.local.hostmem import HOSTMEM
from kvio.backends.local.hostmem_pinned import HOSTMEM_PINNED
from kvio.backends.local.posix import POSIX
from kvio.backends.local.uring import URING
from kvio.backends.local.virtual import NULL, SIMULATED
from kvio.backends.mooncake.mooncake_backend import MOONCAKE
from kvio.backends.nixl.nixl_backend import NIXL, NIXL_GDS, NIXL_OBJ
from kvio.backends.s3.s3_backend import S3
from kvio.protocol import KVIOError

__all__ = ["BACKENDS", "BackendKind", "find_backend"]

BACKENDS: dict[str, BackendKind] = {
    "null": NULL,
    "simulated": SIMULATED,
    "hostmem": HOSTMEM,
    "hostmem-pinned": HOSTMEM_PINNED,
    "posix": POSIX,
    "uring": URING,
    "s3": S3,
    "nixl": NIXL,
    "nixl-gds": NIXL_GDS,
    "nixl-obj": NIXL_OBJ,
    "mooncake": MOONCAKE,
    "gds": GDS,
}


def find_backend(name: str) -> BackendKind:
    """The backend of that name.

    Raises:
        KVIOError: there is none.
    """
    if name not in BACKENDS:
        raise KVIOError(f"unknown backend {name!r}; use one of: {', '.join(BACKENDS)}")
    return BACKENDS[name]
