"""Write files atomically, so that a kill leaves them whole; check that a place can be written to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvio.errors import FailedError, UserError

FIGURE_FORMS = (".png", ".svg")


class WriteError(FailedError):
    """A result folder cannot be written."""


class PlaceError(UserError, ValueError):
    """A file or folder that cannot be written, and why."""


@contextmanager
def writing_results(folder: Path) -> Iterator[None]:
    """Turn an OSError in the block into a WriteError that names the folder."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write results: {folder}: {error.strerror or error}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What is written to `path` inside this is written, or refused in one line."""
    try:
        yield
    except OSError as error:
        raise PlaceError(f"{path}: cannot be written: {error.strerror}") from error


def require_figure_name(path: Path) -> None:
    """Stop on a file name that is not .png or .svg, or whose folder is not there.

    Raises:
        PlaceError: says which of the two.
    """
    if path.suffix not in FIGURE_FORMS:
        raise PlaceError(f"{path}: a figure is written as .png or .svg; try {path.stem or 'figure'}.png")
    _require_file_place(path)


def require_csv_place(path: Path) -> None:
    """Stop on a place where neither a .csv file nor a folder of them can be.

    Raises:
        PlaceError: says why.
    """
    if path.suffix != ".csv" and path.exists() and not path.is_dir():
        raise PlaceError(f"{path}: is a file; name a folder, or a file that ends in .csv")
    _require_file_place(path, folder_allowed=path.suffix != ".csv")


def _require_file_place(path: Path, *, folder_allowed: bool = False) -> None:
    if not path.parent.is_dir():
        raise PlaceError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir() and not folder_allowed:
        raise PlaceError(f"{path}: is a folder, not a {path.suffix} file")


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
