"""Draws a sizing: GPUs and storage bandwidth over the hit ratio, and what reused tokens cost.

Draws capacity: KV against length, users times context, and what a GPU's memory divides into.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.record.units import format_bytes, format_tokens, printable, round_digits
from bench.report.figures.crossover_figure import STYLE
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR, plain_log_axis
from bench.report.result_files import write_calculated
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


PER_MILLION = ", per million reused tokens"


def draw_ratios(axes: Axes, ratios: pd.DataFrame, demand: pd.DataFrame) -> None:
    """GPUs on the left scale (line: unrounded, dots: whole groups, as in the table), read bandwidth right."""
    share = ratios["hit_ratio"].astype(float) * 100
    unrounded, whole = ratios["gpus_unrounded"].astype(float), ratios["gpus_in_groups"].astype(float)
    axes.plot(share, unrounded, color=RECOMPUTE_COLOUR, label="GPUs, unrounded")
    axes.plot(share, whole, "o", color=RECOMPUTE_COLOUR, markersize=4, label="GPUs, in whole groups")
    axes.fill_between(
        share, 0, unrounded, facecolor="none", edgecolor=RECOMPUTE_COLOUR, alpha=0.3, hatch="//"
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("hit ratio [% of prompt tokens]")
    axes.set_ylabel("GPUs")
    right = axes.twinx()
    rates = ratios["read_bytes_per_s"].astype(float) / 1e9
    right.plot(share, rates, color=LOAD_COLOURS[0], linestyle="--", label="storage read bandwidth")
    right.set_ylabel("storage read bandwidth [GB/s, 1 GB = 1e9]")
    right.set_ylim(bottom=0)
    asked = float(demand.set_index("quantity")["value"]["hit ratio"]) * 100
    axes.axvline(asked, color="0.25", linestyle=":", label=f"asked: {asked:.3g} %")
    axes.set_title("GPUs and storage over the hit ratio (modelled)", loc="left", fontsize=10)
    lines = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    axes.legend(handles=lines, fontsize=8, loc="upper center", ncols=2, bbox_to_anchor=(0.5, -0.14))


def draw_cost(axes: Axes, cost: pd.DataFrame) -> None:
    """A dot with its value for each way to have a million reused tokens, log scale: lengths mean nothing there."""
    rows = cost[cost["unit"] == "price"]
    names = [printable(str(name)).removesuffix(PER_MILLION) for name in rows["quantity"]]
    values = rows["value"].astype(float)
    axes.plot(names, values, "o", color=LOAD_COLOURS[0], markerfacecolor="white", markersize=8)
    for name, value in zip(names, values, strict=True):
        axes.annotate(
            round_digits(value),
            (name, value),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yscale("log")
    plain_log_axis(axes.yaxis, lambda value: f"{value:g}")
    axes.margins(x=0.4, y=0.15)
    axes.grid(True, axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylabel("cost of a million reused tokens\n[unit of the prices given]")
    axes.set_title("Cost at the prices given (modelled)", loc="left", fontsize=10)


def write_sizing_figure(path: Path, tables: Tables) -> None:
    """Write both drawings next to each other, or the first alone where no price was given."""
    has_cost = "cost" in tables and (tables["cost"]["unit"] == "price").any()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0 if has_cost else 6.4, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        draw_ratios(figure.add_subplot(1, 2 if has_cost else 1, 1), tables["hit_ratios"], tables["demand"])
        if has_cost:
            draw_cost(figure.add_subplot(1, 2, 2), tables["cost"])
        write_calculated(path, figure)
