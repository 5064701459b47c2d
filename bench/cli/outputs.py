"""What the verbs that calculate share: where tables and figures go."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bench.cli.options import option, out
from bench.record.atomic_write import require_csv_place, require_figure_name, writing

if TYPE_CHECKING:
    from bench.report.text.planning_text import Tables

Csv = Annotated[Path | None, option("write the tables as CSV: a folder, or one file that ends in .csv")]
Plot = Annotated[Path | None, option("write a figure: a file that ends in .png or .svg")]


def require_places(csv: Path | None, plot: Path | None) -> None:
    """Refuse places that cannot be written before anything is calculated."""
    if csv is not None:
        require_csv_place(csv)
    if plot is not None:
        require_figure_name(plot)


def show_tables(
    tables: "Tables",
    *,
    text: Callable[["Tables"], str],
    draw: Callable[[Path, "Tables"], None],
    csv: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Write what was asked for; print the tables as text, or as JSON alone."""
    from bench.report.text.planning_text import records, write_tables  # pandas, which --help must not cost

    written = []
    if csv is not None:
        with writing(csv):
            written = write_tables(csv, tables)
    if plot is not None:
        with writing(plot):
            draw(plot, tables)
        written.append(plot)
    if as_json:
        shown = {name: records(frame) for name, frame in tables.items()}
        out.print(json.dumps(shown, indent=1), markup=False)
        return
    out.print(text(tables), markup=False)
    for path in written:
        out.print(str(path), markup=False)
