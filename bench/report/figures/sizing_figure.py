"""Draws a sizing: GPUs and storage bandwidth over the hit ratio, and what reused tokens cost."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.record.units import printable, round_digits
from bench.report.calculated import write_calculated
from bench.report.figures.crossover_figure import STYLE
from bench.report.figures.log_ticks import plain_log_axis
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR
from bench.report.text.planning_text import Tables

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
