"""Writes whole files, or says in one line why not."""

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvio.errors import KVIOError

Bytes = npt.NDArray[np.uint8]


class StoreError(KVIOError):
    """The store of chunks cannot be written, opened or believed."""


@contextmanager
def os_errors_as_store_errors(where: Path) -> Iterator[None]:
    """Say in one line what the system refuses, with the path that it names, else `where`.

    Raises:
        StoreError: a directory or file is gone, full, read-only or not permitted.
    """
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else where
        raise StoreError(f"{path}: {_reason(error, where)}") from error


@contextmanager
def temporary_directory(parent: Path) -> Iterator[Path]:
    """A directory in `parent` that is gone when the block ends, as far as it still can be removed.

    Raises:
        StoreError: it cannot be made.
    """
    with os_errors_as_store_errors(parent):
        made = tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True)
    with made as directory:
        yield Path(directory)


def make_directory(path: Path, *, exist_ok: bool = False) -> Path:
    """A directory that only its owner may enter.

    Raises:
        StoreError: it cannot be made.
    """
    with os_errors_as_store_errors(path.parent):
        path.mkdir(mode=0o700, exist_ok=exist_ok)
    return path


def require_space(directory: Path, needed_bytes: int) -> None:
    """Stop before writing what does not fit.

    Raises:
        StoreError: too little free space, or no such directory.
    """
    with os_errors_as_store_errors(directory):
        found = os.statvfs(directory)
    free_bytes = found.f_bavail * found.f_frsize
    if needed_bytes > free_bytes:
        raise StoreError(
            f"{directory}: needs {needed_bytes} bytes, {free_bytes} are free; "
            f"use a smaller working set or another directory"
        )


def write_file(path: Path, parts: Sequence[memoryview | bytes]) -> None:
    """Replace `path` by `parts` one after another: mode 0600, every byte written, on the disk, no holes.

    Raises:
        StoreError: the disk is full, the directory is read-only or gone; `path` is then as it was before.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            num_bytes = sum(_write_whole(descriptor, memoryview(part)) for part in parts)
            os.fsync(descriptor)
            _require_no_holes(descriptor, path, num_bytes)
        finally:
            os.close(descriptor)
        unfinished.replace(path)
    except OSError as error:
        _discard(unfinished)
        raise StoreError(f"{path}: {_reason(error, path.parent)}") from error
    except BaseException:
        _discard(unfinished)
        raise


def make_file(path: Path, num_bytes: int) -> None:
    """A file of that size that is yet to be written (with `write_at`): mode 0600.

    Raises:
        StoreError: it is there already, or it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, num_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{path}: {_reason(error, path.parent)}") from error


def write_at(path: Path, offset: int, content: memoryview) -> None:
    """Overwrite a part of a file; every byte written and on the disk.

    Raises:
        StoreError: there is no such file, or it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], offset + written)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{path}: {_reason(error, path.parent)}") from error


def _write_whole(descriptor: int, piece: memoryview) -> int:
    """All bytes of `piece`; a disk that fills up gives a short write first, and the error at the next."""
    written = 0
    while written < len(piece):
        written += os.write(descriptor, piece[written:])
    return written


def _require_no_holes(descriptor: int, path: Path, num_bytes: int) -> None:
    """A hole would be read at the speed of memory; st_blocks does not show it, SEEK_HOLE does."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes != num_bytes:
        raise StoreError(f"{path}: {num_bytes} bytes written, {size_bytes} in the file")
    if num_bytes and (hole := os.lseek(descriptor, 0, os.SEEK_HOLE)) != num_bytes:
        raise StoreError(f"{path}: the file system left a hole at offset {hole} of {num_bytes}")


def _reason(error: OSError, directory: Path) -> str:
    if error.errno != errno.ENOSPC:
        return error.strerror or str(error)
    try:
        found = os.statvfs(directory)
    except OSError:
        return "no space left"
    return (
        f"no space left ({found.f_bavail * found.f_frsize} bytes free); another program may be writing here"
    )


def _discard(path: Path) -> None:
    with suppress(OSError):  # the error that led here says more
        path.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` outlive a power failure.

    Raises:
        StoreError: it is gone, or its disk fails.
    """
    with os_errors_as_store_errors(directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
