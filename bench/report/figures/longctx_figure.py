"""Draws recompute against load to a million tokens, log-log, in dashes and hatches: nothing of it was measured."""

import textwrap
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.record.units import format_rate, format_tick_seconds, format_tokens, printable
from bench.report.figures.crossover_figure import PNG_DPI, STYLE
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR, plain_log_axis
from bench.report.result_files import write_calculated
from bench.report.text.planning_text import Tables, records

DASHED = (0, (5, 2))


def draw_longctx(axes: Axes, times: pd.DataFrame, crossovers: pd.DataFrame) -> None:
    """Recompute once, a load line for each storage, hatched where loading is faster, C* dotted."""
    groups = list(times.groupby("bytes_per_s", sort=False))
    first = groups[0][1].drop(columns="origin").astype(float)
    axes.plot(
        first["tokens"], first["recompute_s"], color=RECOMPUTE_COLOUR, linestyle=DASHED, label="recompute"
    )
    if (first["recompute_all_full_s"] != first["recompute_s"]).any():
        axes.plot(first["tokens"], first["recompute_all_full_s"], color=RECOMPUTE_COLOUR, linestyle=":",
                  label="recompute, if every layer attended to everything")  # fmt: skip
    for number, (rate, rows) in enumerate(groups):
        line = rows.drop(columns="origin").astype(float)
        colour = LOAD_COLOURS[number % len(LOAD_COLOURS)]
        axes.plot(line["tokens"], line["load_s"], color=colour, linestyle=DASHED,
                  label=f"load at {format_rate(float(str(rate)))}")  # fmt: skip
        axes.fill_between(line["tokens"], line["load_s"], line["recompute_s"],
                          where=line["load_s"] < line["recompute_s"], interpolate=True, facecolor="none", edgecolor=colour,
                          alpha=0.35, hatch="//", linewidth=0)  # fmt: skip
        _draw_crossing(axes, crossovers[crossovers["bytes_per_s"] == rate], colour)
    _scale(axes)


def _draw_crossing(axes: Axes, crossovers: pd.DataFrame, colour: str) -> None:
    for row in records(crossovers):
        if row["crossover"] == "C*" and row["tokens"] is not None:
            side = "beyond" if row["load_wins_beyond"] else "up to"
            label = f"C* {format_tokens(row['tokens'])} tokens, load wins {side} (modelled)"
            style = ":" if row["load_wins_beyond"] else "-."
            axes.axvline(row["tokens"], color=colour, linestyle=style, linewidth=1.2, label=label)


def _scale(axes: Axes) -> None:
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


def write_longctx_figure(path: Path, tables: Tables) -> None:
    """Write the figure with its setting below; the ending of `path` decides the form."""
    (setting,) = records(tables["setting"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 5.4), layout="constrained", dpi=PNG_DPI)
        FigureCanvasAgg(figure)
        draw_longctx(figure.add_subplot(), tables["times"], tables["crossovers"])
        caption = "\n".join(textwrap.wrap(f"Modelled: {printable(setting['label'])}.", width=120))
        figure.supxlabel(caption, fontsize=7.5, color="0.35", x=0.01, ha="left", parse_math=False)
        write_calculated(path, figure)
