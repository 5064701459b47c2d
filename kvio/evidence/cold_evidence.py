"""Which path did the bytes take, and was the page cache cold?  Decided from counters, never from wishes."""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvio.evidence.allocation import find_hole, find_unwritten
from kvio.evidence.gds_path import PATH_NOTICES, PathCounters
from kvio.evidence.io_counters import read_traffic
from kvio.evidence.storage_device import BlockDevice
from kvio.protocol import PROVING_SHARE, CacheState, KVIOError, Read

# backends whose reads the kernel's counters see; the others need counters of their own
COUNTED_BACKENDS = frozenset(
    {"posix", "uring", "nixl-posix-aio", "nixl-posix-uring", "nixl-posix-posix_aio", "nixl-posix-unknown"}
)
MEMORY_BACKENDS = frozenset({"null", "simulated", "hostmem", "hostmem-pinned"})

# codes of what speaks against a read
NOTICES = PATH_NOTICES | {
    "not_cold",
    "partly_warm",
    "below_page_cache",
    "partly_counted",
    "counters_missing",
    "device_counter_missing",
    "residency_unknown",
    "direct_not_honoured",
    "repeated",
    "server_caches_unknown",
    "link_rate_unknown",
    "device_in_memory",
    "device_on_network",
    "device_virtual",
    "nothing_read",
}


class EvidenceError(KVIOError):
    """The evidence says that a number would be wrong."""


@dataclass(frozen=True, slots=True)
class ReadCounters:
    """Bytes read so far, or between two moments; None where nobody counts.

    Args:
        process_bytes: what the kernel fetched from storage on behalf of all threads of this process.
        device_bytes: what the physical devices read, whoever asked for it.
        path: what the libraries on the way counted, of backends that have such.
    """

    process_bytes: int | None
    device_bytes: int | None
    path: PathCounters | None = None

    def moved_since(self, before: "ReadCounters") -> "ReadCounters":
        """Bytes read between `before` and this."""
        return ReadCounters(
            _difference(self.process_bytes, before.process_bytes),
            _difference(self.device_bytes, before.device_bytes),
            None if self.path is None or before.path is None else self.path.moved_since(before.path),
        )

    def share(self, num_bytes: int, total_bytes: int) -> "ReadCounters":
        """What of it is this process's when it read `num_bytes` of the `total_bytes` of several at once.

        The device counts for all of them, so each is given its share: when a cache answered a part of it,
        whoever's, the share of each falls short.
        """
        if self.device_bytes is None or total_bytes <= 0:
            return self
        return replace(self, device_bytes=self.device_bytes * num_bytes // total_bytes)


def _difference(after: int | None, before: int | None) -> int | None:
    if after is None or before is None or after < before:  # a counter that ran backwards was reset
        return None
    return after - before


def read_counters(device: BlockDevice | None, root: Path = Path("/")) -> ReadCounters:
    """The counters now: /proc/self/io, and /sys/block/X/stat summed over the physical devices.

    Neither on a loop device: the process counter sees the loop, and the loop's file may be cached.
    """
    if device is not None and device.behind_loop:
        return ReadCounters(None, None)
    traffic = None if device is None else read_traffic(device, root)
    return ReadCounters(_read_process_bytes(root), None if traffic is None else traffic.read_bytes)


def _read_process_bytes(root: Path) -> int | None:
    try:
        text = (root / "proc/self/io").read_text()
    except OSError:  # no descriptor is left; a kernel without task I/O accounting; a strict container
        return None
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["read_bytes"]) if "read_bytes" in fields else None


def prove_cache_state(
    *,
    asked_direct: bool,
    payload_bytes: int,
    resident_before: int | None,
    moved: ReadCounters,
    resident_after: int | None = None,
    fresh_bytes: int | None = None,
    num_files: int = 1,
    unproved: str | None = None,
) -> tuple[CacheState, tuple[str, ...]]:
    """What the counters prove about one read, and codes (of `NOTICES`) of what speaks against it.

    Args:
        asked_direct: the files were opened with O_DIRECT.
        payload_bytes: bytes that arrived.
        resident_before: bytes of the files in the page cache before the read, None if unknown.
        moved: what the counters moved by during the read.
        resident_after: the same as `resident_before` after it, where it was looked at: a direct read
            that fills the page cache was none.
        fresh_bytes: `count_fresh_bytes` of the reads, where it was counted: read-ahead moves the counters
            by bytes nobody asked for, which would cover for a part that was read twice.
        num_files: that were read; each may have an odd tail, which goes through the page cache.
        unproved: `BlockDevice.unproved`: only "warm" can be proved above such a device.
    """
    if payload_bytes <= 0:
        return "unverified", ("nothing_read",)
    repeated = fresh_bytes is not None and fresh_bytes < PROVING_SHARE * payload_bytes
    state, codes = _prove_unrepeated(
        asked_direct,
        payload_bytes,
        resident_before=resident_before,
        moved=moved,
        kept_bytes=_grown(resident_before, resident_after) - num_files * mmap.PAGESIZE,
    )
    if unproved is not None and state != "warm":
        state, codes = "unverified", (unproved, *codes)
    if not repeated:
        return state, codes
    return "warm" if state == "cold" else state, ("repeated", *codes)


def count_fresh_bytes(reads: Sequence[Read]) -> int:
    """Bytes that the reads ask for, each byte of each file counted once however often it is read."""
    fresh, end_by_path = 0, dict[Path, int]()
    for read in sorted(reads, key=lambda read: read.file_offset):
        start = max(read.file_offset, end_by_path.get(read.path, 0))
        end = read.file_offset + read.num_bytes
        fresh += max(0, end - start)
        end_by_path[read.path] = max(end, end_by_path.get(read.path, 0))
    return fresh


def _prove_unrepeated(
    asked_direct: bool,
    payload_bytes: int,
    *,
    resident_before: int | None,
    moved: ReadCounters,
    kept_bytes: int,
) -> tuple[CacheState, tuple[str, ...]]:
    fetched = _share(moved.process_bytes, payload_bytes)
    delivered = _share(moved.device_bytes, payload_bytes)
    if not asked_direct or fetched is None:
        return _buffered_state(fetched, delivered, resident_before)
    kept = kept_bytes > (1 - PROVING_SHARE) * payload_bytes
    if fetched >= PROVING_SHARE and not kept:
        return _direct_state(delivered)
    state, codes = _buffered_state(fetched, delivered, resident_before)
    return state, ("direct_not_honoured", *codes)


def _share(moved_bytes: int | None, payload_bytes: int) -> float | None:
    return None if moved_bytes is None else moved_bytes / payload_bytes


def _grown(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def _direct_state(delivered: float | None) -> tuple[CacheState, tuple[str, ...]]:
    if delivered is None:
        return "unverified", ("device_counter_missing",)
    return ("direct", ()) if delivered >= PROVING_SHARE else ("unverified", ("below_page_cache",))


def _buffered_state(
    fetched: float | None, delivered: float | None, resident_before: int | None
) -> tuple[CacheState, tuple[str, ...]]:
    """Of a read through the page cache; shares of the payload that process and device account for."""
    if fetched is not None and fetched >= PROVING_SHARE:
        return _fetched_state(delivered, resident_before)
    if delivered is not None and delivered < PROVING_SHARE:
        return "warm", (_warm_code(min(share for share in (fetched, delivered) if share is not None)),)
    if fetched is None:
        return "unverified", ("counters_missing",)
    if resident_before == 0:
        # an empty page cache before, and less fetched than arrived: somebody else fetched, seen by no counter of ours
        partly = fetched > 1 - PROVING_SHARE
        return "unverified", ("partly_counted" if partly else "counters_missing",)
    return "warm", (_warm_code(fetched),)


def _warm_code(share: float) -> str:
    return "partly_warm" if share > 1 - PROVING_SHARE else "not_cold"


def _fetched_state(
    delivered: float | None, resident_before: int | None
) -> tuple[CacheState, tuple[str, ...]]:
    """Of a read all of whose bytes the process fetched."""
    if delivered is not None and delivered < PROVING_SHARE:
        return "warm", ("below_page_cache",)
    if resident_before is None:
        return "unverified", ("residency_unknown",)
    if resident_before > 0:
        return "unverified", ("partly_warm",)
    return ("cold", ()) if delivered is not None else ("unverified", ("device_counter_missing",))


def prove_data_path(
    *, backend: str, asked_direct: bool, state: CacheState, payload_bytes: int, moved: ReadCounters
) -> tuple[str, tuple[str, ...]]:
    """The way the bytes took, and codes of what speaks against it.

    "posix-direct", "posix-buffered", "gds-p2pdma" …, or "…-unverified" where nothing proves it.
    """
    if backend in MEMORY_BACKENDS:
        return backend, ()
    if moved.path is not None:
        return moved.path.decide(payload_bytes=payload_bytes, device_bytes=moved.device_bytes)
    if backend not in COUNTED_BACKENDS:
        return f"{backend}-unverified", ()
    if not asked_direct:
        return f"{backend}-buffered", ()
    return f"{backend}-{'buffered' if state in {'cold', 'warm'} else state}", ()


def require_written(path: Path) -> None:
    """Stop on a file with holes or unwritten extents: it reads at memory speed and shows a false rate.

    Raises:
        EvidenceError: empty, sparse, or allocated without having been written.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        size_bytes = os.fstat(descriptor).st_size
        hole, unwritten = find_hole(descriptor, size_bytes), find_unwritten(descriptor)
    finally:
        os.close(descriptor)
    if size_bytes == 0:
        raise EvidenceError(f"{path}: empty, nothing to read; write the chunks again")
    if unwritten is not None:
        raise EvidenceError(
            f"{path}: allocated but never written at byte {unwritten}; write the chunks again"
        )
    if hole is not None:
        raise EvidenceError(f"{path}: sparse, a hole at byte {hole} of {size_bytes}; write the chunks again")


def require_plausible(num_bytes: int, seconds: float, link_bytes_per_s: float | None) -> None:
    """Stop on a read faster than the link to the drive allows: a cache served it.

    Raises:
        EvidenceError: no time passed, or more bytes per second than the link carries.
    """
    if seconds <= 0:
        raise EvidenceError(f"{num_bytes} bytes in {seconds} s: no time passed; check the clock")
    rate = num_bytes / seconds
    if link_bytes_per_s is not None and rate > link_bytes_per_s:
        raise EvidenceError(
            f"{rate / 1e9:.2f} GB/s read over a link of {link_bytes_per_s / 1e9:.2f} GB/s: "
            "a cache served it; evict the files or use more of them"
        )
