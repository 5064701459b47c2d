"""Everything that is derived from a run's samples, as files in its folder; again and again if need be.

Writes figures of calculated values: equal inputs give equal bytes.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from bench.estimate.results import Analysis
from bench.estimate.tiers import make_tiers
from bench.record.atomic_write import write_bytes_safely, write_text_safely
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.report.figures.crossover_figure import PNG_DPI, write_figure
from bench.report.figures.tiers_figure import write_figure as write_tier_figure
from bench.report.frames import crossover_frame, summary_frame, tier_frame
from bench.report.html import write_report
from bench.report.text.tier_text import has_choice
from kvio.errors import UserError

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
METADATA: dict[str, dict[str, None]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}


class PlaceError(UserError, ValueError):
    """A file or folder that cannot be written, and why."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What is written to `path` inside this is written, or refused in one line."""
    try:
        yield
    except OSError as error:
        raise PlaceError(f"{path}: cannot be written: {error.strerror}") from error


def require_figure_name(path: Path) -> None:
    """Stop on a file name that is not .png or .svg, or whose folder is not there."""
    if path.suffix not in METADATA:
        raise PlaceError(f"{path}: a figure is written as .png or .svg; try {path.stem or 'figure'}.png")
    _require_file_place(path)


def require_csv_place(path: Path) -> None:
    """Stop on a place where neither a .csv file nor a folder of them can be."""
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


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame as CSV in one step; missing cells are empty, never 0, and no text is a formula."""
    texts = frame.select_dtypes(["object", "string"]).columns
    safe = frame.assign(**{str(name): frame[name].map(_escape, na_action="ignore") for name in texts})
    write_text_safely(path, safe.to_csv(index=False, lineterminator="\n"))


def _escape(cell: object) -> object:
    """A text as a text: what begins like a formula gets an apostrophe, which spreadsheets do not show."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def write_results(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis
) -> tuple[Path, ...]:
    """Write summary.csv, crossover.csv, crossover.png, crossover.svg and report.html; their paths.

    Of several load series also tiers.csv, tiers.png and tiers.svg.  Each file is replaced in one step, and equal
    inputs give equal bytes.
    """
    write_frame(folder / "summary.csv", summary_frame(analysis))
    write_frame(folder / "crossover.csv", crossover_frame(analysis))
    figures = write_figure(folder, run, samples, analysis=analysis)
    report = write_report(folder, run, samples, analysis=analysis)
    tiers = _write_tiers(folder, run, samples, analysis=analysis)
    return folder / "summary.csv", folder / "crossover.csv", *figures, report, *tiers


def _write_tiers(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis
) -> tuple[Path, ...]:
    table = make_tiers(run, samples, analysis)
    if not has_choice(table):
        return ()
    write_frame(folder / "tiers.csv", tier_frame(table))
    return folder / "tiers.csv", *write_tier_figure(folder, run, table)
