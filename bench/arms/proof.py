"""What the load arm asks the operating system, so that it can say which way the bytes took."""

from pathlib import Path
from typing import Protocol

from kvio.blockdev import BlockDevice
from kvio.evidence import CacheState, ReadCounters, prove_cache_state, prove_data_path, read_counters
from kvio.pagecache import evict, resident_bytes, warm


class Counters(Protocol):
    """Bytes fetched from storage so far; None where it cannot be known."""

    @property
    def process_bytes(self) -> int | None:
        """Fetched on behalf of this process, as the kernel says."""

    @property
    def device_bytes(self) -> int | None:
        """Read by the block device under the files."""


class Evidence(Protocol):
    """The page cache, the counters, and what follows from them."""

    def evict(self, path: Path) -> None:
        """Write the file back and drop its pages."""

    def warm(self, path: Path) -> None:
        """Bring the file into the page cache."""

    def resident_bytes(self, path: Path) -> int | None:
        """Bytes of the file in the page cache; None where it cannot be known."""

    def read_counters(self) -> Counters:
        """The counters now."""

    def moved(self, before: Counters, after: Counters) -> Counters:
        """By how much the counters moved."""

    def prove_cache_state(
        self, *, asked_direct: bool, payload_bytes: int, resident_before: int | None, moved: Counters
    ) -> tuple[CacheState, tuple[str, ...]]:
        """The cache state that the counters allow to claim, and codes of what is suspect."""

    def prove_data_path(self, *, backend: str, asked_direct: bool, state: CacheState) -> str:
        """The way the bytes took."""


class KernelEvidence:
    """What this machine's kernel says of files on `device` (None: no block device is known under them)."""

    def __init__(self, device: BlockDevice | None) -> None:
        self._device = device

    def evict(self, path: Path) -> None:
        """Write the file back and drop its pages."""
        evict(path)

    def warm(self, path: Path) -> None:
        """Bring the file into the page cache."""
        warm(path)

    def resident_bytes(self, path: Path) -> int | None:
        """Bytes of the file in the page cache."""
        return resident_bytes(path)

    def read_counters(self) -> ReadCounters:
        """The counters now."""
        return read_counters(self._device)

    def moved(self, before: ReadCounters, after: ReadCounters) -> ReadCounters:
        """By how much the counters moved."""
        return after.moved_since(before)

    def prove_cache_state(
        self, *, asked_direct: bool, payload_bytes: int, resident_before: int | None, moved: ReadCounters
    ) -> tuple[CacheState, tuple[str, ...]]:
        """The cache state that the counters allow to claim."""
        return prove_cache_state(
            asked_direct=asked_direct,
            payload_bytes=payload_bytes,
            resident_before=resident_before,
            moved=moved,
        )

    def prove_data_path(self, *, backend: str, asked_direct: bool, state: CacheState) -> str:
        """The way the bytes took."""
        return prove_data_path(backend=backend, asked_direct=asked_direct, state=state)
