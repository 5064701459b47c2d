"""Reads files with preadv(2), through the page cache or past it (O_DIRECT)."""

import ctypes
import errno
import fcntl
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from kvio.alignment import DIRECT_ALIGN_BYTES
from kvio.backends.protocol import KVIOError, Read, ShortReadError
from kvio.backends.setting import BackendSetting

MAX_CALL_BYTES = 0x7FFFF000  # most that one read(2) transfers: MAX_RW_COUNT, include/linux/fs.h
MAX_OPEN_FILES = 32  # per thread; the usual limit of a process is 1024
REMEDIES = {
    errno.EMFILE: "; too many open files: raise ulimit -n or use fewer threads",
    errno.ENFILE: "; the system has no more open files",
    errno.EINVAL: "; this file system refuses O_DIRECT: read buffered, or use another directory",
}


class PosixBackend:
    """Reads from one thread; queue depth is the number of threads.

    Files stay open until `close`, the least recently used are closed first.
    """

    name = "posix"

    def __init__(self, setting: BackendSetting) -> None:
        self._direct = setting.direct
        self._opened: OrderedDict[Path, int] = OrderedDict()

    def open(self, path: Path) -> None:
        """Open `path`, and under O_DIRECT check that the descriptor really has it.

        Raises:
            KVIOError: gone, not permitted, too many open files, or O_DIRECT refused.
        """
        if path in self._opened:
            self._opened.move_to_end(path)
            return
        if len(self._opened) >= MAX_OPEN_FILES:
            os.close(self._opened.popitem(last=False)[1])
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self._direct else 0)
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}{REMEDIES.get(error.errno or 0, '')}") from error
        self._opened[path] = descriptor
        if self._direct and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise KVIOError(f"{path}: opened, but without O_DIRECT; read buffered, or use another directory")

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes that arrived in `target`.

        Raises:
            ShortReadError: the file ends before a read does.
            KVIOError: a read failed, or is not aligned as O_DIRECT needs.
        """
        if self._direct:
            require_aligned(reads, target)
        return sum(_read_whole(self._opened[read.path], read, target, self._direct) for read in reads)

    def close(self) -> None:
        """Close every file."""
        while self._opened:
            os.close(self._opened.popitem()[1])


def require_aligned(reads: Sequence[Read], target: memoryview) -> None:
    """Refuse what O_DIRECT cannot read: file systems differ in whether they fail, or buffer it in silence."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(target))
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
        # past an odd end of file a further O_DIRECT read would be unaligned
        if got == 0 or (direct and got % DIRECT_ALIGN_BYTES and arrived < read.num_bytes):
            raise ShortReadError(
                f"{read.path}: {arrived} of {read.num_bytes} bytes at offset {read.file_offset}, the end"
            )
    return arrived
