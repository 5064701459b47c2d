"""Evict, warm and measure: which bytes of a file does the page cache hold?"""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np

CACHESTAT_SYSCALL = 451  # every architecture but alpha; Linux >= 6.5, include/uapi/asm-generic/unistd.h
WARM_READ_BYTES = 1 << 20

_LIBC = ctypes.CDLL(None, use_errno=True)


class _CachestatRange(ctypes.Structure):
    """struct cachestat_range of linux/mman.h; a length of 0 means to the end of the file."""

    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Cachestat(ctypes.Structure):
    """struct cachestat of linux/mman.h; all are counts of pages."""

    _fields_ = (
        ("num_cached", ctypes.c_uint64),
        ("num_dirty", ctypes.c_uint64),
        ("num_writeback", ctypes.c_uint64),
        ("num_evicted", ctypes.c_uint64),
        ("num_recently_evicted", ctypes.c_uint64),
    )


def evict(path: Path) -> None:
    """Ask the kernel to drop the file's pages; whether it did, only `resident_bytes` tells.

    Dirty pages cannot be dropped, hence the fsync.  Mapped pages stay, and tmpfs ignores the request.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def warm(path: Path) -> None:
    """Bring the whole file into the page cache by reading it."""
    buffer = bytearray(WARM_READ_BYTES)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def resident_bytes(path: Path) -> int | None:
    """Bytes of the file that the page cache holds; None where this cannot be known.

    Asks cachestat(2), else mincore(2).  Neither reads the file, so asking does not warm it
    (a read with RWF_NOWAIT would).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(descriptor).st_size
        num_pages = _count_by_cachestat(descriptor)
        if num_pages is None:
            num_pages = _count_by_mincore(descriptor, size_bytes)
    finally:
        os.close(descriptor)
    # the last page may be part of a page only
    return None if num_pages is None else min(num_pages * mmap.PAGESIZE, size_bytes)


def _count_by_cachestat(descriptor: int) -> int | None:
    """Pages in the cache, None where the kernel has no cachestat, or refuses it for this file."""
    wanted, found = _CachestatRange(0, 0), _Cachestat()
    failed = _LIBC.syscall(
        ctypes.c_long(CACHESTAT_SYSCALL),
        ctypes.c_uint(descriptor),
        ctypes.byref(wanted),
        ctypes.byref(found),
        ctypes.c_uint(0),
    )
    if not failed:
        return int(found.num_cached)
    code = ctypes.get_errno()
    if code in {errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EACCES}:
        return None
    raise OSError(code, f"cachestat: {os.strerror(code)}")


def _count_by_mincore(descriptor: int, size_bytes: int) -> int | None:
    """Pages in the cache, None where the kernel would not say.

    To a caller who neither owns nor may write the file, mincore calls every page resident.
    """
    if size_bytes == 0:
        return 0
    if not _may_ask_mincore(descriptor):
        return None
    with mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ) as mapping:
        view = np.frombuffer(mapping, dtype=np.uint8)
        vector = np.zeros(-(-size_bytes // mmap.PAGESIZE), dtype=np.uint8)
        failed = _LIBC.mincore(
            ctypes.c_void_p(view.ctypes.data),
            ctypes.c_size_t(size_bytes),
            ctypes.c_void_p(vector.ctypes.data),
        )
        del view  # a mapping with a view of it cannot be closed
    return None if failed else int((vector & 1).sum())


def _may_ask_mincore(descriptor: int) -> bool:
    """True for the owner, root and whoever may write the file: the kernel's own rule (mm/mincore.c)."""
    owner = os.fstat(descriptor).st_uid
    return os.geteuid() in {0, owner} or os.access(f"/proc/self/fd/{descriptor}", os.W_OK)
