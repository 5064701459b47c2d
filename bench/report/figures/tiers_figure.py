"""The tier figure: a row for each tier, fastest on top, and along the prefix length who wins there."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from bench.estimate.results import Crossing, Point
from bench.estimate.tiers import Standing, Tier, TierTable, asked_spot, judge
from bench.record.atomic_write import write_bytes_safely
from bench.record.run import RunRecord
from bench.record.units import format_rate, format_tokens
from bench.report.figures.crossover_figure import PNG_DPI, STYLE
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR
from bench.report.run_facts import device_name, format_model, format_state, in_virtual_machine, series_label
from bench.report.text.sentence import SYMBOLS, format_crossing
from bench.report.text.tier_text import format_order

WIDE_INCHES, NARROW_INCHES = 9.0, 4.2
ROW_INCHES, FRAME_INCHES = 0.62, 1.9
WINS_COLOUR, UNDECIDED_COLOUR = LOAD_COLOURS[0], "0.6"
COLOURS: dict[Standing, str] = {
    "beats": WINS_COLOUR,
    "undecided": UNDECIDED_COLOUR,
    "loses": RECOMPUTE_COLOUR,
}
MARKERS: dict[Standing, str] = {"beats": "o", "undecided": "D", "loses": "x"}
MEANINGS: dict[Standing, str] = {
    "beats": "load is faster",
    "undecided": "rounds disagree, or too few",
    "loses": "recompute is faster",
}
LABEL_CHARACTERS = 30


def draw_tiers(axes: Axes, run: RunRecord, table: TierTable) -> None:
    """Draw every tier as a row of `axes` over the prefix length."""
    axes.set_xscale("log", base=2)
    axes.set_ylim(len(table.tiers) - 0.4, -0.6)
    lengths = table.lengths
    homes = {(series, home.prefix_tokens) for home in table.homes for series in home.all_series}
    for row, tier in enumerate(table.tiers):
        _draw_row(axes, row, tier)
        for point in tier.points:
            _draw_point(axes, row, point, is_home=(tier.series, point.prefix_tokens) in homes)
        spot = asked_spot(tier, table.suffix_tokens)
        for crossing in () if spot is None else spot.crossings:
            if not crossing.extrapolated:
                _draw_crossing(axes, row, crossing, symbol=SYMBOLS[spot.kind] if spot else "")
        if not tier.points:
            why = "no samples that count" if tier.left_out else "nothing measured"
            axes.text(
                0.5, row, why, transform=axes.get_yaxis_transform(), ha="center",
                va="center", fontsize=8, style="italic", color="#8a1c1c",
            )  # fmt: skip
    _scale(axes, lengths)
    axes.set_yticks(range(len(table.tiers)), [_format_tier(run, tier) for tier in table.tiers], fontsize=8)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)


def _draw_row(axes: Axes, row: int, tier: Tier) -> None:
    """Between neighbouring lengths with the same winner, a bar of its colour."""
    axes.axhline(row, color="0.9", linewidth=0.8, zorder=0)
    for left, right in zip(tier.points, tier.points[1:], strict=False):
        standing = judge(left)
        if standing == judge(right):
            axes.plot(
                [left.prefix_tokens, right.prefix_tokens], [row, row],
                color=COLOURS[standing], alpha=0.3, linewidth=7, solid_capstyle="butt", zorder=1,
            )  # fmt: skip


def _draw_point(axes: Axes, row: int, point: Point, *, is_home: bool) -> None:
    standing = judge(point)
    place = [point.prefix_tokens], [row]
    if is_home:
        axes.plot(*place, marker="o", markersize=12, markerfacecolor="none", color="0.15", zorder=4)
    axes.plot(*place, marker=MARKERS[standing], markersize=6, color=COLOURS[standing], zorder=3)


def _draw_crossing(axes: Axes, row: int, crossing: Crossing, *, symbol: str) -> None:
    low, high = crossing.tokens.low, crossing.tokens.high
    value = crossing.tokens.value
    if low is not None and high is not None:
        axes.plot([low, high], [row, row], color="0.15", linewidth=2.2, zorder=2)
    axes.plot([value], [row], marker="|", markersize=15, markeredgewidth=1.6, color="0.15", zorder=5)
    axes.annotate(
        f"{symbol} = {format_crossing(crossing)}", (value, row), (0, 9),
        textcoords="offset points", ha="center", va="bottom", fontsize=7.5, parse_math=False,
        annotation_clip=False,
    )  # fmt: skip


def _scale(axes: Axes, lengths: Sequence[int]) -> None:
    axes.set_xlabel("prefix (tokens)")
    if lengths:
        axes.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)
        powers = [2**p for p in range(40) if lengths[0] <= 2**p <= lengths[-1]]
        most = 8 if figure_is_wide(axes) else 3
        axes.set_xticks(powers[:: -(1 + max(0, len(powers) - 1) // most)][::-1] or list(lengths))
    else:
        axes.set_xticks([])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tokens(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def figure_is_wide(axes: Axes) -> bool:
    """Whether there is room for a label at every power of two."""
    figure = axes.get_figure()
    return figure is None or figure.get_figwidth() > NARROW_INCHES  # type: ignore[union-attr]


def _format_tier(run: RunRecord, tier: Tier) -> str:
    """Two lines: the series; its place, speed and cache state."""
    state = tier.cache_state
    cache = None if state is None else format_state(state, guest=in_virtual_machine(run))
    rate = None if tier.bytes_per_s is None else format_rate(tier.bytes_per_s.value)
    below = ", ".join(part for part in (tier.place, rate, cache) if part)
    name = textwrap.shorten(series_label(run, tier.series), 2 * LABEL_CHARACTERS, placeholder=" …")
    return f"{name}\n{textwrap.shorten(below, 2 * LABEL_CHARACTERS, placeholder=' …')}"


def _legend(figure: Figure, table: TierTable) -> None:
    """What the marks that occur mean."""
    standings = {judge(point) for tier in table.tiers for point in tier.points}
    marks = [
        Line2D([], [], color=COLOURS[standing], marker=MARKERS[standing], linewidth=0, label=meaning)
        for standing, meaning in MEANINGS.items()
        if standing in standings
    ]
    ring = Line2D(
        [], [], color="0.15", marker="o", markersize=11, markerfacecolor="none", linewidth=0,
        label="cheapest tier that beats recompute here",
    )  # fmt: skip
    figure.legend(
        handles=[*marks, *([ring] if any(home.series for home in table.homes) else [])],
        loc="outside lower left",
        ncols=2 if figure.get_figwidth() < WIDE_INCHES else 4,
        fontsize=8,
        frameon=False,
    )


def make_figure(run: RunRecord, table: TierTable, *, width_inches: float = WIDE_INCHES) -> Figure:
    """The whole figure, as high as it has tiers.  Call inside `STYLE`."""
    height = FRAME_INCHES + ROW_INCHES * max(len(table.tiers), 1)
    figure = Figure(figsize=(width_inches, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_tiers(axes, run, table)
    suffix = table.suffix_tokens
    asked = f"the next {format_tokens(suffix)} tokens" if suffix else "a prefix"
    title = f"Where {asked} may live, by {format_order(table)}, fastest on top: {format_model(run)} on {device_name(run)}"
    lines = textwrap.wrap(title, width=int(width_inches * 11.5))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10.5, fontweight="bold", parse_math=False)
    _legend(figure, table)
    return figure


def figure_content(
    run: RunRecord, table: TierTable, *, form: Literal["png", "svg"], width_inches: float = WIDE_INCHES
) -> bytes:
    """The figure as a file's content; equal inputs give equal bytes, no time and no path inside."""
    metadata = {"Software": None} if form == "png" else {"Date": None, "Creator": None}
    stream = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = make_figure(run, table, width_inches=width_inches)
        figure.savefig(stream, format=form, dpi=PNG_DPI, metadata=metadata)
    return stream.getvalue()


def write_figure(folder: Path, run: RunRecord, table: TierTable) -> tuple[Path, Path]:
    """Write tiers.png and tiers.svg into `folder`; the two paths."""
    paths = folder / "tiers.png", folder / "tiers.svg"
    write_bytes_safely(paths[0], figure_content(run, table, form="png"))
    write_bytes_safely(paths[1], figure_content(run, table, form="svg"))
    return paths
