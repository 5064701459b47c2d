"""Files that a kill leaves whole, and what it is called when they cannot be written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvio.errors import FailedError


class WriteError(FailedError):
    """A result folder cannot be written, or no more."""


@contextmanager
def writing_results(folder: Path) -> Iterator[None]:
    """Tell a full, read-only or lost results folder as what it is."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write results: {folder}: {error.strerror or error}") from None


def write_text_safely(path: Path, text: str) -> None:
    """Replace `path` by `text` so that a kill leaves either the old or the new content."""
    write_bytes_safely(path, text.encode())


def write_bytes_safely(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step, on the disk before it returns; where that fails, all is as before.

    Another process may do the same at the same time: each has a half of its own, and the last whole one stays.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:  # an interrupt too
        with suppress(OSError):  # the first failure is the one to tell
            part.unlink(missing_ok=True)
        raise
