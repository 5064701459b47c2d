"""Tries a small file in a folder: can reads be proved cold there, and does O_DIRECT bypass the cache?"""

import errno
import fcntl
import mmap
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kvio.evidence.cold_evidence import prove_cache_state, read_counters
from kvio.evidence.page_cache import evict, resident_bytes
from kvio.evidence.storage_device import BlockDevice, find_block_device
from kvio.protocol import CacheState

PROBE_BYTES = 1 << 20  # a multiple of every block size that O_DIRECT has to be aligned to


@dataclass(frozen=True, slots=True)
class ProbeProof:
    """What one probing read proved."""

    state: CacheState  # of the page cache before it, as the counters prove
    notices: tuple[str, ...] = ()  # codes of `kvio.evidence.cold_evidence.NOTICES`
    refused: str | None = None  # why the read could not be made at all, None when it was


@dataclass(frozen=True, slots=True)
class StorageProbe:
    """What a folder's storage lets us prove."""

    residency_known: bool  # cachestat(2) or mincore(2) answers
    left_bytes: int | None  # what stayed in the page cache after it was asked to drop the file
    process_counted: bool  # the two counters exist
    device_counted: bool
    buffered: ProbeProof  # of a read after eviction, without and with O_DIRECT
    direct: ProbeProof


def probe_storage(folder: Path) -> StorageProbe:
    """Write, evict and read a file of 1 MiB in `folder`, twice; the file is gone afterwards.

    Raises:
        OSError: the folder cannot be written.
    """
    device = find_block_device(folder)
    counters = read_counters(device)
    content = secrets.token_bytes(PROBE_BYTES)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="kvcross-probe-") as stream:
        stream.write(content)
        stream.flush()
        path = Path(stream.name)
        evict(path)
        left = resident_bytes(path)
        buffered = _probe_read(path, content, device, direct=False)
        evict(path)
        direct = _probe_read(path, content, device, direct=True)
    return StorageProbe(
        residency_known=left is not None,
        left_bytes=left,
        process_counted=counters.process_bytes is not None,
        device_counted=counters.device_bytes is not None,
        buffered=buffered,
        direct=direct,
    )


def _probe_read(path: Path, content: bytes, device: BlockDevice | None, *, direct: bool) -> ProbeProof:
    resident_before = resident_bytes(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0))
    except OSError as error:
        return ProbeProof("unverified", refused=f"open: {error.strerror}")
    try:
        if direct and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            return ProbeProof("unverified", refused="open dropped O_DIRECT in silence")
        with mmap.mmap(-1, PROBE_BYTES) as target:  # page-aligned
            before = read_counters(device)
            arrived = os.preadv(descriptor, [target], 0)
            moved = read_counters(device).moved_since(before)
            if arrived != PROBE_BYTES or target[:] != content:
                return ProbeProof(
                    "unverified", refused=f"{arrived} of {PROBE_BYTES} bytes arrived, or wrong ones"
                )
    except OSError as error:  # some file systems accept the flag and refuse the read
        return ProbeProof(
            "unverified", refused=f"read: {error.strerror or errno.errorcode.get(error.errno or 0)}"
        )
    finally:
        os.close(descriptor)
    state, notices = prove_cache_state(
        asked_direct=direct,
        payload_bytes=PROBE_BYTES,
        resident_before=resident_before,
        moved=moved,
        resident_after=resident_bytes(path),
        unproved=None if device is None else device.unproved,
    )
    return ProbeProof(state, notices)
