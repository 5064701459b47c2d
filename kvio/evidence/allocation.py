"""Has a file really been written everywhere?  From SEEK_HOLE and FIEMAP, which st_blocks cannot replace."""

import array
import errno
import fcntl
import os
import struct
from collections.abc import Iterator

# include/uapi/linux/fs.h: FS_IOC_FIEMAP = _IOWR('f', 11, struct fiemap), the struct being 32 bytes
FS_IOC_FIEMAP = 0xC020660B
# include/uapi/linux/fiemap.h
FIEMAP_FLAG_SYNC = 0x1
FIEMAP_EXTENT_LAST = 0x1
FIEMAP_EXTENT_UNWRITTEN = 0x800
FIEMAP_MAX_OFFSET = 0xFFFF_FFFF_FFFF_FFFF
_HEADER = struct.Struct("=QQIIII")  # start, length, flags, mapped extents, extent count, reserved
_EXTENT = struct.Struct("=QQQQQIIII")  # logical, physical, length, 2 reserved, flags, 3 reserved
_EXTENTS_PER_CALL = 256
_NOT_OFFERED = frozenset({errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def find_hole(descriptor: int, size_bytes: int) -> int | None:
    """Offset in bytes of the first hole before the end of the file, None when there is none.

    Call fsync first: until then, some file systems call what they have not yet allocated data.
    """
    try:
        first_hole = os.lseek(descriptor, 0, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but the end: an empty file
            return None
        raise
    return first_hole if first_hole < size_bytes else None


def find_unwritten(descriptor: int) -> int | None:
    """Offset in bytes of the first allocated extent that was never written, None when there is none.

    None also where the file system offers no FIEMAP; SEEK_HOLE has to do there.
    """
    for logical, flags in _extents(descriptor):
        if flags & FIEMAP_EXTENT_UNWRITTEN:
            return logical
    return None


def _extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """Offset in bytes and flags of every extent."""
    start = 0
    while True:
        room = bytes(_EXTENT.size * _EXTENTS_PER_CALL)
        head = _HEADER.pack(start, FIEMAP_MAX_OFFSET - start, FIEMAP_FLAG_SYNC, 0, _EXTENTS_PER_CALL, 0)
        answer = array.array("B", head + room)
        try:
            fcntl.ioctl(descriptor, FS_IOC_FIEMAP, answer)
        except OSError as error:
            if error.errno in _NOT_OFFERED:
                return
            raise
        num_mapped = _HEADER.unpack_from(answer)[3]
        if num_mapped == 0:
            return
        for number in range(num_mapped):
            fields = _EXTENT.unpack_from(answer, _HEADER.size + number * _EXTENT.size)
            logical, length, flags = fields[0], fields[2], fields[5]
            yield logical, flags
            if flags & FIEMAP_EXTENT_LAST:
                return
            start = logical + length
