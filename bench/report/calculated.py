"""Writes figures of calculated values: equal inputs give equal bytes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure

from bench.record.atomic_write import write_bytes_safely
from bench.report.figures.crossover_figure import PNG_DPI
from kvio.errors import UserError

METADATA: dict[str, dict[str, None]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}


class PlaceError(UserError, ValueError):
    """A place where nothing can be written; one line that says why."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What is written to `path` inside this is written, or refused in one line.

    Raises:
        PlaceError: the system does not let us; says why.
    """
    try:
        yield
    except OSError as error:
        raise PlaceError(f"{path}: cannot be written: {error.strerror}") from error


def require_figure_name(path: Path) -> None:
    """Stop on a file name that is not .png or .svg, or whose folder is not there.

    Raises:
        PlaceError: says which of the two.
    """
    if path.suffix not in METADATA:
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


def write_calculated(path: Path, figure: Figure) -> None:
    """Write the figure in the form that the ending names, in one step."""
    require_figure_name(path)
    stream = io.BytesIO()
    figure.savefig(stream, format=path.suffix[1:], dpi=PNG_DPI, metadata=METADATA[path.suffix])
    write_bytes_safely(path, stream.getvalue())


def _require_file_place(path: Path, *, folder_allowed: bool = False) -> None:
    if not path.parent.is_dir():
        raise PlaceError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir() and not folder_allowed:
        raise PlaceError(f"{path}: is a folder, not a {path.suffix} file")
