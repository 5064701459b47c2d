"""Draws capacity: KV against length, users times context, and what a GPU's memory divides into."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.record.units import format_bytes, format_tokens, printable
from bench.report.calculated import write_calculated
from bench.report.figures.crossover_figure import STYLE
from bench.report.figures.log_ticks import plain_log_axis
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR
from bench.report.text.planning_text import Tables

COLOURS = (RECOMPUTE_COLOUR, *LOAD_COLOURS)


def draw_lengths(axes: Axes, table: pd.DataFrame) -> None:
    """KV bytes of one sequence over its length, log-log, a line per model; of `length_table`."""
    for number, (model, rows) in enumerate(table.groupby("model", sort=False)):
        line = rows.astype({"tokens": float, "kv_bytes": float}).sort_values("tokens")
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            line["tokens"], line["kv_bytes"], "o-", color=colour, markersize=4, label=printable(str(model))
        )
    _scale_bytes(axes, "tokens of one sequence")
    axes.set_title("KV against length (arithmetic)", loc="left", fontsize=10)
    axes.legend(fontsize=8)


def draw_users(axes: Axes, table: pd.DataFrame) -> None:
    """KV bytes of all users over their number, log-log, a line per model and context; of `users_table`."""
    groups = table.groupby(["model", "tokens"], sort=False)
    for number, ((model, tokens), rows) in enumerate(groups):
        line = rows.astype({"users": float, "kv_bytes": float}).sort_values("users")
        name = f"{printable(str(model))}, {format_tokens(float(str(tokens)))} tokens"
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(line["users"], line["kv_bytes"], "s-", color=colour, markersize=4, label=name)
    _scale_bytes(axes, "users, nothing shared")
    axes.set_title("Users x context (arithmetic)", loc="left", fontsize=10)
    axes.legend(fontsize=8)


def draw_gpu(axes: Axes, table: pd.DataFrame) -> None:
    """One bar per model: weights, reserve and what is left for KV, as shares of the memory; of `gpu_table`."""
    rows = table.drop_duplicates("model")
    names = [printable(str(name)) for name in rows["model"]]
    memory = rows["memory_bytes"].astype(float)
    start = memory * 0.0
    for name, colour, hatch in (
        ("weight", "0.55", ""),
        ("reserve", "0.8", ""),
        ("kv", LOAD_COLOURS[0], "//"),
    ):
        share = (rows[f"{name}_bytes"].astype(float) / memory).clip(lower=0.0)
        axes.barh(names, share * 100, height=0.5, left=start * 100, color=colour, hatch=hatch, edgecolor="white",
                  label={"weight": "weights", "kv": "KV"}.get(name, name))  # fmt: skip
        start = start + share
    axes.axvline(100, color="0.2", linewidth=1)
    axes.set_xlabel("share of GPU memory [%]")
    axes.set_title("GPU memory (arithmetic)", loc="left", fontsize=10)
    axes.legend(fontsize=8, loc="upper center", ncols=3, bbox_to_anchor=(0.5, -0.14))


DRAWERS = {"lengths": draw_lengths, "users": draw_users, "gpu": draw_gpu}


def write_capacity_figure(path: Path, tables: Tables) -> None:
    """Write the tables that have a drawing next to each other; the ending of `path` decides the form."""
    drawn = [(DRAWERS[name], frame) for name, frame in tables.items() if name in DRAWERS]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4 * len(drawn), 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        for number, (draw, frame) in enumerate(drawn, start=1):
            draw(figure.add_subplot(1, len(drawn), number), frame)
        write_calculated(path, figure)


def _scale_bytes(axes: Axes, xlabel: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_log_axis(axes.xaxis, format_tokens)
    plain_log_axis(axes.yaxis, format_bytes)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("KV bytes (1 GB = 1e9)")
    axes.grid(True, which="major", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
