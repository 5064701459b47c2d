"""Evidence of the cache state and the data path of a load, from the operating system's counters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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

    After them only where O_DIRECT was asked for: a direct read leaves nothing in the page cache.
    """

    before_bytes: int | None
    after_bytes: int | None = None


class ReadEvidence:
    """The page cache, the counters, and what they prove about a read.

    Args:
        storage: under the files; None where a server sends the bytes: nothing here shows whether it cached them.
        server_bytes_per_s: of the interface to the server; None where it is unknown.
        read_path: the counters of the backend's libraries now, `BackendKind.read_path`.
    """

    def __init__(
        self,
        storage: Storage | None,
        *,
        server_bytes_per_s: float | None = None,
        read_path: Callable[[], PathCounters | None] = lambda: None,
    ) -> None:
        self._storage = storage
        self._link_bytes_per_s = server_bytes_per_s if storage is None else storage.link_bytes_per_s
        self._read_path = read_path

    def evict(self, path: Path) -> None:
        """Write the file back and drop its pages; nothing where a server is read."""
        if self._storage is not None:
            evict(path)

    def warm(self, path: Path) -> None:
        """Read the file into the page cache; nothing where a server is read."""
        if self._storage is not None:
            warm(path)

    def resident_bytes(self, path: Path) -> int | None:
        """Bytes of the file in the page cache; None where it cannot be known."""
        return None if self._storage is None else resident_bytes(path)

    def require_written(self, path: Path) -> None:
        """Stop on a file that is sparse or was never written; EvidenceError.

        An object was compared with its file when it was uploaded.
        """
        if self._storage is not None:
            require_written(path)

    def require_plausible(self, num_bytes: int, seconds: float) -> None:
        """Stop on a rate that the link cannot carry; EvidenceError."""
        require_plausible(num_bytes, seconds, self._link_bytes_per_s)

    def read_counters(self) -> ReadCounters:
        """The counters now; the storage of a server is counted there."""
        if self._storage is None:
            return ReadCounters(None, None)
        return replace(read_counters(self._storage.device), path=self._read_path())

    def prove_cache_state(
        self, *, asked_direct: bool, reads: Sequence[Read], resident: ResidentBytes, moved: ReadCounters
    ) -> tuple[CacheState, tuple[str, ...]]:
        """The cache state that the counters prove, and codes of what is suspect; a server's is never known."""
        if self._storage is None:
            unknown = () if self._link_bytes_per_s is not None else ("link_rate_unknown",)
            return "unverified", ("server_caches_unknown", *unknown)
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
        """The data path, and codes of what speaks against it; of a server, what the backend observed."""
        if self._storage is None:
            return backend, ()
        return prove_data_path(
            backend=backend,
            asked_direct=asked_direct,
            state=state,
            payload_bytes=payload_bytes,
            moved=moved,
        )
