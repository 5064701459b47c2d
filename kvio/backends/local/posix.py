"""Reads files with preadv(2), through the page cache or past it (O_DIRECT)."""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from kvio.alignment import DIRECT_ALIGN_BYTES
from kvio.backends.blocking import blocking
from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.local.file_handles import OpenedFiles
from kvio.protocol import KVIOError, Read, ShortReadError

MAX_CALL_BYTES = 0x7FFFF000  # most that one read(2) transfers: MAX_RW_COUNT, include/linux/fs.h


class PosixReader:
    """Reads from one thread; queue depth is the number of threads."""

    name = "posix"

    def __init__(self, setting: BackendConfig) -> None:
        self._direct = setting.direct
        self._files = OpenedFiles(direct=setting.direct)

    def open(self, path: Path) -> None:
        """Open `path`, which then stays open.

        Raises:
            KVIOError: gone, not permitted, too many open files, or O_DIRECT refused.
        """
        self._files.open(path)

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes that arrived in `target`.

        Raises:
            ShortReadError: the file ends before a read does.
            KVIOError: a read failed, or is not aligned as O_DIRECT needs.
        """
        if self._direct:
            require_aligned(reads, ctypes.addressof(ctypes.c_char.from_buffer(target)))
        return sum(
            _read_whole(self._files.descriptor(read.path), read, target, self._direct) for read in reads
        )

    def shut(self, path: Path) -> None:
        """Close one file."""
        self._files.shut(path)

    def close(self) -> None:
        """Close every file."""
        self._files.close()


def require_aligned(reads: Sequence[Read], address: int) -> None:
    """Refuse what O_DIRECT cannot read: file systems differ in whether they fail, or buffer it in silence."""
    for read in reads:
        parts = {
            "offset": read.file_offset,
            "length": read.num_bytes,
            "buffer address": address + read.buffer_offset,
        }
        for name, value in parts.items():
            if value % DIRECT_ALIGN_BYTES:
                raise KVIOError(
                    f"{read.path}: {name} {value} of an O_DIRECT read is not a multiple of "
                    f"{DIRECT_ALIGN_BYTES}; pad the chunks or read buffered"
                )


def require_going_on(read: Read, arrived: int, *, got: int, direct: bool) -> None:
    """Stop where a read that has brought `arrived` bytes, `got` of them last, cannot be continued.

    Raises:
        ShortReadError: the file has ended.
    """
    # past an odd end of file a further O_DIRECT read would be unaligned
    if got == 0 or (direct and got % DIRECT_ALIGN_BYTES and arrived < read.num_bytes):
        raise ShortReadError(
            f"{read.path}: {arrived} of {read.num_bytes} bytes at offset {read.file_offset}, the end"
        )


def _read_whole(descriptor: int, read: Read, target: memoryview, direct: bool) -> int:
    """All bytes of one read, in as many calls as it takes."""
    arrived = 0
    while arrived < read.num_bytes:
        start = read.buffer_offset + arrived
        wanted = min(read.num_bytes - arrived, MAX_CALL_BYTES)
        try:
            got = os.preadv(descriptor, [target[start : start + wanted]], read.file_offset + arrived)
        except OSError as error:
            where = f"{wanted} bytes at offset {read.file_offset + arrived}"
            raise KVIOError(f"{read.path}: reading {where}: {error.strerror}") from error
        arrived += got
        require_going_on(read, arrived, got=got, direct=direct)
    return arrived


POSIX = BackendKind("files, preadv from several threads", blocking(PosixReader))
