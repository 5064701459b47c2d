"""The closing table: both arms at every length, with what is suspect, for a terminal or a log."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.analyse.answer import Analysis, Point
from bench.measure.record import RunRecord
from bench.show.explain import explain
from bench.show.facts import load_series, points_of, series_label
from bench.show.numbers import (
    format_rate_estimate,
    format_ratio_estimate,
    format_seconds_estimate,
    format_share,
    format_tokens,
    printable,
)

HEADINGS = ("prefix tokens", "recompute [95 %]", "load [95 %]", "recompute/load", "GB/s", "MFU", "notices")


def point_cells(point: Point, marks: Sequence[str]) -> tuple[str, ...]:
    """The cells of one row, in the order of `HEADINGS`; `marks` name notices below the table."""
    scaled = " *" if point.recompute_scaled else ""
    return (
        format_tokens(point.prefix_tokens),
        format_seconds_estimate(point.recompute_s) + scaled,
        format_seconds_estimate(point.load_s),
        format_ratio_estimate(point.ratio),
        format_rate_estimate(point.bytes_per_s),
        format_share(point.mfu),
        " ".join(marks),
    )


def number_notices(points: Sequence[Point]) -> dict[str, str]:
    """Code of each notice on the points -> its number below the table, from "1"."""
    codes = dict.fromkeys(code for point in points for code in point.notices)
    return {code: str(number) for number, code in enumerate(codes, start=1)}


def footnotes(run: RunRecord, points: Sequence[Point]) -> list[str]:
    """Lines below the table: what the marks mean."""
    lines = ["* scaled from fewer layers"] if any(point.recompute_scaled for point in points) else []
    known = {notice.code: notice.message for notice in run.notices}
    for code, number in number_notices(points).items():
        message = known.get(code) or explain(code)
        lines.append(f"{number} {printable(code)}: {printable(message)}")
    return lines


def _rows(points: Sequence[Point]) -> list[tuple[str, ...]]:
    numbers = number_notices(points)
    return [point_cells(point, [numbers[code] for code in dict.fromkeys(point.notices)]) for point in points]


def _title(run: RunRecord, series: str) -> str:
    ranks = run.plan.tensor_parallel
    divided = f" over {ranks} ranks" if ranks > 1 else ""
    return f"{printable(run.model_name)}{divided}: recompute against load by {series_label(run, series)}"


def closing_table(run: RunRecord, analysis: Analysis) -> RenderableType:
    """One table for each load series, for a terminal."""
    shown: list[RenderableType] = []
    for series in load_series(run, analysis):
        points = points_of(analysis, series)
        # Text, not str: names from outside must not be read as markup
        table = Table(
            title=Text(_title(run, series)), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
        )
        for heading in HEADINGS:
            table.add_column(Text(heading), justify="right")
        for point, row in zip(points, _rows(points), strict=True):
            wins = point.ratio is not None and point.ratio.value > 1
            table.add_row(*(Text(cell) for cell in row), style="green" if wins else None)
        shown.append(table if points else Text(f"{_title(run, series)}: nothing measured"))
        shown.extend(Text(line) for line in footnotes(run, points))
    return Group(*shown) if shown else Text("no load series was measured")


def plain_table(run: RunRecord, analysis: Analysis) -> str:
    """The same tables as lines of text, for logs: no colours, no control characters, no wrapping."""
    blocks = []
    for series in load_series(run, analysis):
        points = points_of(analysis, series)
        lines = [_title(run, series), *align([HEADINGS, *_rows(points)]), *footnotes(run, points)]
        blocks.append("\n".join(lines) if points else f"{_title(run, series)}: nothing measured")
    return "\n\n".join(blocks) if blocks else "no load series was measured"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with columns right-aligned, two spaces apart."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
