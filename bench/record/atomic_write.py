"""Write files atomically, so that a kill leaves them whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvio.errors import FailedError


class WriteError(FailedError):
    """A result folder cannot be written."""


@contextmanager
def writing_results(folder: Path) -> Iterator[None]:
    """Turn an OSError in the block into a WriteError that names the folder."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write results: {folder}: {error.strerror or error}") from None


def write_text_safely(path: Path, text: str) -> None:
    """Replace `path` by `text` so that a kill leaves either the old or the new content."""
    write_bytes_safely(path, text.encode())


def write_bytes_safely(path: Path, content: bytes) -> None:
    """Replace `path` by `content` atomically and fsync it; on failure the old file stays.

    Safe with concurrent writers: each has its own partial file, and the last complete one wins.
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
