"""The entry of the pinned host-memory tier; what it does needs torch, which listing backends must not load."""

from collections.abc import Mapping
from pathlib import Path

from kvio.backends.config import BackendConfig
from kvio.backends.placement import Placement
from kvio.backends.selftest_process import try_reading
from kvio.protocol import NO_LIMIT, Backend, Unavailable

MAX_IN_FLIGHT = 64  # jobs of one thread; more than two keep no link busier
READS_AT_ONCE = NO_LIMIT


def make_pinned(setting: BackendConfig) -> Backend:
    """The backend of one thread."""
    from kvio.backends.local.hostmem_pinned import PinnedBackend

    return PinnedBackend(setting)


def hold_pinned(options: Mapping[str, str], root: Path) -> Placement:
    """The memory that all threads share."""
    from kvio.backends.local.hostmem_pinned import PinnedMemory

    return PinnedMemory()


def try_pinned(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Why no memory can be pinned and copied from here; None where it can."""
    return try_reading("hostmem-pinned", directory, options, remedy="--backend hostmem")
