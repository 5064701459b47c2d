"""Figures of modelled answers: the matrix as a heat map, C* against bandwidth, and both arms by length."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.estimate.results import Estimate
from bench.predict.cost_model import LOADING_FROM
from bench.predict.matrix import BandwidthCurve, MatrixCell
from bench.predict.prediction import ModelledAnswer
from bench.record.units import format_tick_seconds, format_tokens, printable, round_digits
from bench.report.figures.crossover_figure import PNG_DPI, STYLE
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR, plain_log_axis
from bench.report.result_files import write_calculated

SHORT = {
    "load_always_wins": "load\nalways",
    "recompute_always_wins": "recompute\nalways",
    "inconclusive": "open",
    None: "—",
}
PLAIN = {
    "load_always_wins": "#FDE725",
    "recompute_always_wins": "#999999",
    "inconclusive": "#FFFFFF",
    None: "#FFFFFF",
}
BEYOND: Any = {"linestyle": "--", "marker": ".", "markersize": 3}
ONLY_BELOW: Any = {
    "linestyle": ":",
    "marker": "v",
    "markersize": 4,
    "markerfacecolor": "white",
    "linewidth": 1.0,
}
KEYS_A_ROW = 3
DASHED = (0, (5, 2))
NORM = LogNorm(64, 131_072)
Row = tuple[str, str, int, str, str]


def draw_matrix(axes: Axes, cells: Sequence[MatrixCell]) -> None:
    """A square per cell: colour and text are C* in tokens, hatched where modelled."""
    rows: list[Row] = list(dict.fromkeys(_row(cell) for cell in cells))
    columns = list(dict.fromkeys(cell.storage for cell in cells))
    colours = mpl.colormaps["viridis_r"]
    for cell in cells:
        x, y = columns.index(cell.storage), rows.index(_row(cell))
        tokens = cell.crossover_tokens
        colour: Any = PLAIN.get(cell.verdict, "#CCCCCC")
        if tokens is not None and cell.load_wins_beyond is not False:
            colour = colours(NORM(tokens))
        hatch = "///" if cell.origin == "modelled" else None
        axes.add_patch(
            Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="0.75", hatch=hatch, linewidth=0.6)
        )
        text = format_cell(cell)
        box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
        axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7, bbox=box)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([i + 0.5 for i in range(len(columns))], map(printable, columns), rotation=30, ha="right")
    axes.set_yticks([i + 0.5 for i in range(len(rows))], [_format_row(row) for row in rows])
    axes.tick_params(length=0, labelsize=8)
    key = _key(cells)
    axes.legend(
        handles=key,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=KEYS_A_ROW,
        frameon=False,
        fontsize=8,
    )
    pad = 8 + 16 * -(-len(key) // KEYS_A_ROW)
    axes.set_title("C* in tokens: loading the whole prefix wins beyond", fontsize=10, pad=pad)


def count_missing(cells: Sequence[MatrixCell]) -> list[tuple[int, str]]:
    """How many modelled cells could not be computed, by reason, the most frequent first."""
    reasons = Counter(cell.reason for cell in cells if cell.origin == "modelled" and cell.verdict is None)
    return [(count, reason) for reason, count in reasons.most_common()]


def format_cell(cell: MatrixCell) -> str:
    """C* in few digits, all of them where there are several, or the verdict; ? where undecided, ! where suspect."""
    turns = cell.turns
    if cell.crossover_tokens is None:
        text = SHORT.get(cell.verdict, "—")
    elif len(turns) > 1:
        text = ",\n".join(f"{'>' if beyond else '<'}{_format_tokens(tokens)}" for beyond, tokens in turns)
    elif cell.load_wins_beyond is False:
        text = f"only below\n{_format_tokens(cell.crossover_tokens)}"
    else:
        text = _format_tokens(cell.crossover_tokens)
    unsure = (cell.undecided and cell.verdict != "inconclusive") or _is_guess(cell)
    return text + ("?" if unsure else "") + ("!" if cell.suspect else "")


def _is_guess(cell: MatrixCell) -> bool:
    return cell.verdict == "inconclusive" and cell.crossover_tokens is not None


def _format_tokens(tokens: float) -> str:
    return round_digits(round(tokens)) if tokens >= 100 else format_tokens(tokens)


def _key(cells: Sequence[MatrixCell]) -> list[Patch]:
    """What hatching and signs mean, of those that are there."""
    texts = [format_cell(cell) for cell in cells]
    plain: Any = {"facecolor": "none", "edgecolor": "none"}
    key = [Patch(facecolor="white", edgecolor="0.4", hatch="///", label="modelled")]
    key.append(Patch(facecolor="white", edgecolor="0.4", label="measured"))
    if any("?" in text for text in texts):
        key.append(Patch(**plain, label="?: undecided, the bounds hold another verdict too"))
    if any("!" in text for text in texts):
        key.append(Patch(**plain, label="!: suspect, reason in matrix.csv"))
    if any(">" in text for text in texts):
        key.append(Patch(**plain, label="<, >: load wins below, beyond"))
    return key + [
        Patch(**plain, label=f"—: {shorten(why, 48, placeholder=' …')}") for _, why in count_missing(cells)
    ]


def _row(cell: MatrixCell) -> Row:
    return cell.model, cell.device, cell.num_gpus, cell.origin, cell.dtype


def _format_row(row: Row) -> str:
    model, device, num_gpus, _, dtype = row
    name = f"{model} ({dtype})" if dtype else model
    return printable(f"{name} on {device}" if num_gpus == 1 else f"{name} on {num_gpus}x {device}")


def draw_curves(axes: Axes, curves: Sequence[BandwidthCurve], drives: Mapping[str, float]) -> None:
    """C* by the storage's rate, modelled: dashed where load wins beyond, dotted where it wins up to; drives are marked."""
    for number, curve in enumerate(curves):
        name = printable(f"{curve.model} ({curve.dtype}) on {curve.device}")
        rates = [rate / 1e9 for rate in curve.bytes_per_s]
        branches, colour = curve.branches(), f"C{number % 10}"
        for wins_beyond, where in branches:
            style = BEYOND if wins_beyond else ONLY_BELOW
            axes.plot(rates[where], curve.tokens[where], color=colour, **style)
        if branches:
            axes.plot([], [], color=colour, **BEYOND, label=f"{name}: load wins beyond")
        if any(not wins_beyond for wins_beyond, _ in branches):
            axes.plot([], [], color=colour, **ONLY_BELOW, label=f"{name}: load wins up to")
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.set_xlabel("rate of the storage, GB/s")
    axes.set_ylabel("C*, tokens")
    _plain_ticks(axes)
    for number, (name, rate) in enumerate(sorted(drives.items(), key=lambda drive: drive[1])):
        axes.axvline(rate / 1e9, color="0.85", linewidth=0.8, zorder=0)
        height = 0.99 - 0.13 * (number % 4)
        place: Any = {"ha": "right", "va": "top", "transform": axes.get_xaxis_transform()}
        axes.text(rate / 1e9, height, printable(name), rotation=90, fontsize=5.5, color="0.4", **place)
    axes.set_title("C* against bandwidth (modelled)", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False)


def draw_arms(axes: Axes, answers: Sequence[ModelledAnswer]) -> None:
    """Recompute once, a load line for each storage, hatched where loading is faster, C* dotted."""
    first = answers[0]
    tokens = [point.prefix_tokens for point in first.points]
    recompute_s = [_seconds(point.recompute_s) for point in first.points]
    axes.plot(tokens, recompute_s, color=RECOMPUTE_COLOUR, linestyle=DASHED, label="recompute")
    if first.full_attention:
        full_s = [_seconds(point.recompute_s) for point in first.full_attention]
        axes.plot(tokens, full_s, color=RECOMPUTE_COLOUR, linestyle=":", label="recompute, all layers full")
    for number, found in enumerate(answers):
        load_s = [_seconds(point.load_s) for point in found.points]
        colour = LOAD_COLOURS[number % len(LOAD_COLOURS)]
        where = found.label.partition(LOADING_FROM)[2]
        name = printable(f"load from {where}" if where else f"load, {found.label}")
        axes.plot(tokens, load_s, color=colour, linestyle=DASHED, label=name)
        faster = [load < recompute for load, recompute in zip(load_s, recompute_s, strict=True)]
        area: Any = {"facecolor": "none", "edgecolor": colour, "alpha": 0.35, "hatch": "//", "linewidth": 0}
        axes.fill_between(tokens, load_s, recompute_s, where=faster, interpolate=True, **area)
        for crossing in found.spots[0].crossings:
            value, beyond = crossing.tokens.value, crossing.load_wins_beyond
            label = (
                f"C* {format_tokens(value)} tokens, load wins {'beyond' if beyond else 'up to'} (modelled)"
            )
            axes.axvline(value, color=colour, linestyle=":" if beyond else "-.", linewidth=1.2, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_log_axis(axes.xaxis, format_tokens)
    plain_log_axis(axes.yaxis, format_tick_seconds)
    axes.set_xlabel("prefix (tokens)")
    axes.set_ylabel("modelled seconds")
    axes.set_title("Recompute against load (modelled; hatched: load is faster)", loc="left", fontsize=10)
    axes.grid(True, which="major", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="upper left")


def _seconds(estimate: Estimate | None) -> float:
    return nan if estimate is None else estimate.value


def write_prediction_figure(path: Path, answers: Sequence[ModelledAnswer]) -> None:
    """Write both arms by length with the setting below; the ending of `path` decides the form."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 5.4), layout="constrained", dpi=PNG_DPI)
        FigureCanvasAgg(figure)
        draw_arms(figure.add_subplot(), answers)
        setting = printable(answers[0].label.partition(LOADING_FROM)[0])
        caption = "\n".join(wrap(f"Modelled: {setting}.", width=120))
        figure.supxlabel(caption, fontsize=7.5, color="0.35", x=0.01, ha="left", parse_math=False)
        write_calculated(path, figure)


def _plain_ticks(axes: Axes) -> None:
    """Numbers on log axes as they are, not as powers."""
    plain_log_axis(axes.xaxis, lambda value: f"{value:,.10g}")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8)


def png_of(draw: Any, size_inches: tuple[float, float]) -> bytes:  # noqa: ANN401 — any function of axes
    """The PNG of what `draw` puts on fresh axes; equal inputs give equal bytes."""
    stream = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size_inches, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot())
        figure.savefig(stream, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return stream.getvalue()
