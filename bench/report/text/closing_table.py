"""The closing table: both arms at every length, with what is suspect."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from bench.estimate.results import Analysis, Point
from bench.record.notices import kind_of
from bench.record.run import RunRecord
from bench.record.units import format_rate, format_seconds, format_share, format_tokens, printable
from bench.report.notice_text import concerns
from bench.report.run_facts import load_series, points_of, series_label
from bench.report.text.format import format_rate_estimate, format_ratio_estimate, format_seconds_estimate
from bench.report.text.hybrid_text import HYBRID_HEADINGS, hybrid_cells, hybrid_points
from bench.report.text.terminal import render

HEADINGS = (
    "prefix tokens",
    "recompute [95 %]",
    "load [95 %]",
    "recompute / load",
    "first token",  # seconds of the load that are no reading
    "GB/s",
    "break-even",
    "MFU",
)
SCALED = "* scaled from fewer layers; of a load, the first-token step is"
PAIRED = "recompute / load is the median of the rounds' ratios, not the ratio of the medians beside it"
DIFFERENT = 1.1  # from which the two are told apart
NOTICES = "notices"


def point_rows(
    analysis: Analysis, series: str, *, with_notices: bool = True
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and one row for each length of a load series; hybrid columns where that arm was measured."""
    points, hybrids = points_of(analysis, series), hybrid_points(analysis, series)
    numbers = number_notices(points)
    headings = HEADINGS + (HYBRID_HEADINGS if hybrids else ()) + ((NOTICES,) if with_notices else ())
    rows = []
    for point in points:
        cells = point_cells(point) + (hybrid_cells(hybrids.get(point.prefix_tokens)) if hybrids else ())
        marks = " ".join(numbers[code] for code in dict.fromkeys(point.notices))
        rows.append((*cells, marks) if with_notices else cells)
    return headings, rows


def point_cells(point: Point) -> tuple[str, ...]:
    """The cells of one row, in the order of `HEADINGS`."""
    return (
        format_tokens(point.prefix_tokens),
        format_seconds_estimate(point.recompute_s) + (" *" if point.recompute_scaled else ""),
        format_seconds_estimate(point.load_s) + (" *" if point.load_scaled else ""),
        format_ratio_estimate(point.ratio),
        format_seconds(point.first_token_s),
        format_rate_estimate(point.bytes_per_s),
        format_rate(point.break_even_bytes_per_s),
        format_share(point.mfu),
    )


def number_notices(points: Sequence[Point]) -> dict[str, str]:
    """Code of each notice on the points -> its number below the table, from "1"."""
    codes = dict.fromkeys(code for point in points for code in point.notices)
    return {code: str(number) for number, code in enumerate(codes, start=1)}


def footnotes(run: RunRecord, points: Sequence[Point]) -> list[str]:
    """Lines below the table: what the marks mean."""
    lines = [SCALED] if any(point.recompute_scaled or point.load_scaled for point in points) else []
    lines += [PAIRED] if any(map(_ratio_differs, points)) else []
    about = [notice for notice in run.notices if all(concerns(run, notice, point.series) for point in points)]
    known = {notice.kind: notice.text for notice in about}
    for code, number in number_notices(points).items():
        message = known.get(code) or kind_of(code).meaning
        lines.append(f"{number} {printable(code)}: {printable(message)}")
    return lines


def _ratio_differs(point: Point) -> bool:
    if point.ratio is None or point.recompute_s is None or point.load_s is None:
        return False
    shown = point.recompute_s.value / point.load_s.value
    return not 1 / DIFFERENT < point.ratio.value / shown < DIFFERENT


def _title(run: RunRecord, series: str) -> str:
    ranks = run.plan.tensor_parallel
    divided = f" over {ranks} ranks" if ranks > 1 else ""
    suffix = run.plan.suffix_tokens
    asked = f" of the next {format_tokens(suffix)} tokens" if suffix else ""
    return (
        f"{printable(run.model_name)}{divided}: recompute{asked} against load by {series_label(run, series)}"
    )


def closing_table(run: RunRecord, analysis: Analysis) -> RenderableType:
    """One table for each load series; rows where loading wins are green."""
    shown: list[RenderableType] = []
    for series in load_series(run, analysis):
        points = points_of(analysis, series)
        title = _title(run, series)
        shown += [Text("")] if shown else []
        if not points:
            shown.append(Text(f"{title}: nothing measured"))
            continue
        headings, rows = point_rows(analysis, series, with_notices=any(point.notices for point in points))
        wins = ["green" if point.ratio is not None and point.ratio.value > 1 else "" for point in points]
        shown += [Text(title), render(headings, rows, styles=wins), *map(Text, footnotes(run, points))]
    return Group(*shown) if shown else Text("no load series was measured")
