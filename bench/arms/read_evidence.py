"""What the load arm asks the operating system, so that it can say which way the bytes took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kvio.evidence.cold_evidence import (
    ReadCounters,
    count_fresh_bytes,
    prove_cache_state,
    prove_data_path,
    read_counters,
    require_plausible,
    require_written,
)
from kvio.evidence.gds_path import PathCounters
from kvio.evidence.page_cache import evict, resident_bytes, warm
from kvio.evidence.storage_device import Storage
from kvio.protocol import CacheState, Read


@dataclass(frozen=True, slots=True)
class ResidentBytes:
    """Bytes of a sample's files in the page cache, before its reads and after them; None where that is not known.

    After them it is looked at where O_DIRECT was asked for: a direct read leaves nothing there.
    """

    before_bytes: int | None
    after_bytes: int | None = None


class ReadEvidence(Protocol):
    """The page cache, the counters, and what follows from them."""

    def evict(self, path: Path) -> None:
        """Write the file back and drop its pages."""

    def warm(self, path: Path) -> None:
        """Bring the file into the page cache."""

    def resident_bytes(self, path: Path) -> int | None:
        """Bytes of the file in the page cache; None where it cannot be known."""

    def require_written(self, path: Path) -> None:
        """Stop on a file that is sparse or was never written; EvidenceError."""

    def require_plausible(self, num_bytes: int, seconds: float) -> None:
        """Stop on a rate that the link to the drive cannot carry; EvidenceError."""

    def read_counters(self) -> ReadCounters:
        """The counters now."""

    def prove_cache_state(
        self, *, asked_direct: bool, reads: Sequence[Read], resident: ResidentBytes, moved: ReadCounters
    ) -> tuple[CacheState, tuple[str, ...]]:
        """The cache state that the counters allow to claim, and codes of what is suspect."""

    def prove_data_path(
        self,
        *,
        backend: str,
        asked_direct: bool,
        state: CacheState,
        payload_bytes: int,
        moved: ReadCounters,
    ) -> tuple[str, tuple[str, ...]]:
        """The way the bytes took, and codes of what speaks against it."""


class ServerEvidence:
    """What can be said of bytes that a server sends: nothing here tells whether it had them in memory.

    Args:
        link_bytes_per_s: of the interface to the server; None when unknown.
    """

    def __init__(self, link_bytes_per_s: float | None) -> None:
        self._link_bytes_per_s = link_bytes_per_s

    def evict(self, path: Path) -> None:
        """Nothing: the local file is not what is read."""

    def warm(self, path: Path) -> None:
        """Nothing: the local file is not what is read."""

    def resident_bytes(self, path: Path) -> int | None:
        """Not known."""
        return None

    def require_written(self, path: Path) -> None:
        """Nothing: the object was compared with the file when it was placed."""

    def require_plausible(self, num_bytes: int, seconds: float) -> None:
        """Stop on a rate that the interface cannot carry, where its speed is known."""
        require_plausible(num_bytes, seconds, self._link_bytes_per_s)

    def read_counters(self) -> ReadCounters:
        """None: what storage the server read is counted there."""
        return ReadCounters(None, None)

    def prove_cache_state(
        self, *, asked_direct: bool, reads: Sequence[Read], resident: ResidentBytes, moved: ReadCounters
    ) -> tuple[CacheState, tuple[str, ...]]:
        """Never cold, never warm."""
        unknown = () if self._link_bytes_per_s is not None else ("link_rate_unknown",)
        return "unverified", ("server_caches_unknown", *unknown)

    def prove_data_path(
        self,
        *,
        backend: str,
        asked_direct: bool,
        state: CacheState,
        payload_bytes: int,
        moved: ReadCounters,
    ) -> tuple[str, tuple[str, ...]]:
        """What the backend saw itself do."""
        return backend, ()


class KernelEvidence:
    """What this machine's kernel says of files on `storage`, and what the backend's libraries say.

    Args:
        storage: under the files.
        read_path: the counters of the backend's libraries now, `BackendKind.read_path`.
    """

    def __init__(self, storage: Storage, read_path: Callable[[], PathCounters | None] = lambda: None) -> None:
        self._storage = storage
        self._read_path = read_path

    def evict(self, path: Path) -> None:
        """Write the file back and drop its pages."""
        evict(path)

    def warm(self, path: Path) -> None:
        """Bring the file into the page cache."""
        warm(path)

    def resident_bytes(self, path: Path) -> int | None:
        """Bytes of the file in the page cache."""
        return resident_bytes(path)

    def require_written(self, path: Path) -> None:
        """Stop on a file that is sparse or was never written."""
        require_written(path)

    def require_plausible(self, num_bytes: int, seconds: float) -> None:
        """Stop on a rate that the link to the drive cannot carry."""
        require_plausible(num_bytes, seconds, self._storage.link_bytes_per_s)

    def read_counters(self) -> ReadCounters:
        """The counters now."""
        return replace(read_counters(self._storage.device), path=self._read_path())

    def prove_cache_state(
        self, *, asked_direct: bool, reads: Sequence[Read], resident: ResidentBytes, moved: ReadCounters
    ) -> tuple[CacheState, tuple[str, ...]]:
        """The cache state that the counters allow to claim."""
        return prove_cache_state(
            asked_direct=asked_direct,
            payload_bytes=sum(read.num_bytes for read in reads),
            resident_before=resident.before_bytes,
            moved=moved,
            resident_after=resident.after_bytes,
            fresh_bytes=count_fresh_bytes(reads),
            num_files=len({read.path for read in reads}),
            unproved=None if self._storage.device is None else self._storage.device.unproved,
        )

    def prove_data_path(
        self,
        *,
        backend: str,
        asked_direct: bool,
        state: CacheState,
        payload_bytes: int,
        moved: ReadCounters,
    ) -> tuple[str, tuple[str, ...]]:
        """The way the bytes took, and codes of what speaks against it."""
        return prove_data_path(
            backend=backend,
            asked_direct=asked_direct,
            state=state,
            payload_bytes=payload_bytes,
            moved=moved,
        )
