"""Frames of calculated figures as text, JSON and CSV; each says that it was not measured."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench.record.atomic_write import write_text_safely
from bench.report.text.terminal import align

Tables = Mapping[str, pd.DataFrame]


def text_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as lines: title, headings, rows; the first column is text, the others are numbers."""
    return "\n".join([title, *align([headings, *rows], left_columns={0})])


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values; a missing cell is None."""
    return [
        {str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict(orient="records")
    ]


def write_tables(path: Path, tables: Tables) -> list[Path]:
    """Write the tables as CSV: one file each into the folder `path`, or all into the one file `path`.

    A name that ends in .csv is a file: its first column names the table, and cells that a table does not
    have are empty.  A folder is made where its parent exists.
    """
    if path.suffix == ".csv":
        write_text_safely(
            path, _csv([{"table": name} | row for name in tables for row in records(tables[name])])
        )
        return [path]
    path.mkdir(exist_ok=True)
    paths = [path / f"{name}.csv" for name in tables]
    for place, frame in zip(paths, tables.values(), strict=True):
        write_text_safely(place, _csv(records(frame)))
    return paths


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(value: Any) -> Any:  # noqa: ANN401 — a cell of any kind
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return None
    return value.item() if hasattr(value, "item") else value
