"""Draws a reuse simulation: hit ratio against the capacity of the cache, or hit ratio and seconds per round."""

import io
import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bench.record.atomic_write import write_bytes_safely
from bench.record.units import format_tokens
from bench.report.figures.style import layer, plain_log_axis
from bench.reuse.savings import HitPrices

WHERE_FASTER = "load where faster"
LABELS = {"lru": "LRU", "lfu": "LFU", "fifo": "FIFO", "optimal": "optimal (Belady)"}


def draw_reuse(axes: Axes, table: pd.DataFrame) -> None:
    """Hit ratio on the left scale, share of the maximum on the right one, capacity on a log scale.

    Args:
        axes: to draw on.
        table: of `bench.reuse.hit_tables.hit_table`, with its attrs.
    """
    if table.empty:
        raise ValueError("nothing to draw: the table has no row")
    most = float(table.attrs["max_hit_ratio"])
    several = table["pool"].nunique() > 1
    groups = table.groupby(["pool", "policy"], sort=False)
    for number, ((pool, policy), rows) in enumerate(groups):
        points = rows.sort_values("capacity_tokens")
        points = points[points["capacity_tokens"] > 0]
        name = LABELS.get(str(policy), str(policy)) + (f", {pool}" if several else "")
        style = "--" if pool == "per-instance" else "-"
        look = layer(number, len(groups))
        axes.plot(points["capacity_tokens"], points["hit_ratio"], linestyle=style, label=name, **look)
    axes.axhline(most, color="0.5", linestyle=":", label=f"never drops a block: {most:.3f}")
    axes.set_xscale("log")
    plain_log_axis(axes.xaxis, format_tokens)
    axes.set_ylim(0.0, max(most, 0.01) * 1.08)
    axes.set_xlabel(f"capacity [tokens], counted in {table.attrs['unit']}")
    axes.set_ylabel("hit ratio [hit tokens / input tokens]")
    axes.set_title(f"Prefix reuse, {table.attrs['origin']}")
    axes.legend(fontsize="small")
    if most > 0:
        _add_scale(axes, 1 / most, "share of the maximum")


def _add_scale(axes: Axes, factor: float, label: str) -> None:
    """A right scale that is `factor` times the left one."""

    def to_right(left: ArrayLike) -> ArrayLike:
        return np.asarray(left) * factor

    def to_left(right: ArrayLike) -> ArrayLike:
        return np.asarray(right) / factor

    axes.secondary_yaxis("right", functions=(to_right, to_left)).set_ylabel(label)


def draw_savings(axes: Axes, table: pd.DataFrame, prices: HitPrices) -> None:
    """Share of the prefill seconds that hits save over the capacity: free hits as the bound, and hits that are loaded.

    Args:
        axes: to draw on.
        table: of one policy and pool, made by `bench.reuse.hit_tables.hit_table` with `prices`.
        prices: what recomputing and loading cost.
    """
    points = table[table["capacity_tokens"] > 0].sort_values("capacity_tokens")
    styles = {"free_hit": ":", "always_load": "--", "beyond_crossover": "-.", "where_faster": "-"}
    names = strategy_names(prices)
    for number, (strategy, name) in enumerate(names.items()):
        style, label = styles[strategy], f"{name} (bound)" if strategy == "free_hit" else name
        share = points[f"{strategy}_saved_s"] / points["recompute_s"] * 100
        look = layer(number, len(names))
        axes.plot(points["capacity_tokens"], share, linestyle=style, label=label, **look)
    axes.axhline(0.0, color="0.7", linewidth=0.8)
    whole_s = float(table["recompute_s"].iloc[0])
    if whole_s > 0:
        _add_scale(axes, whole_s / 100, "prefill seconds saved [s]")
    axes.set_xscale("log")
    plain_log_axis(axes.xaxis, format_tokens)
    axes.set_xlabel("capacity [tokens]")
    axes.set_ylabel("prefill seconds saved [%]")
    axes.set_title("What hits are worth, modelled: no queueing, no batching")
    axes.legend(fontsize="small")


def loaded_rule(prices: HitPrices) -> str:
    """Which hits are loaded by C*, and in words where there is none."""
    tokens = prices.crossover_tokens
    if tokens is None:
        return WHERE_FASTER
    name = "modelled C*" if prices.modelled else "C*"
    if math.isinf(tokens):
        return f"never load, no {name}: recompute always wins"
    if tokens == 0:
        return f"always load, no {name}: load always wins"
    return f"load from {name} = {format_tokens(tokens)} tokens"


def strategy_names(prices: HitPrices) -> dict[str, str]:
    """What a person calls each strategy that saves seconds; loading from C* only where there is a rule of C*."""
    names = {"free_hit": "if a hit is free", "always_load": "load every hit"}
    if prices.crossover_tokens is not None:
        names["beyond_crossover"] = loaded_rule(prices)
    return {**names, "where_faster": WHERE_FASTER}


def draw_rounds(axes: Axes, table: pd.DataFrame, column: str, *, label: str) -> None:
    """One line over the rounds for each stack of tiers.

    Args:
        axes: to draw on.
        table: of `bench.reuse.hit_tables.depth_table`, with rounds.
        column: what to draw.
        label: its axis label, with the unit.
    """
    groups = table.groupby("tiers", sort=False)
    for number, (tiers, rows) in enumerate(groups):
        axes.plot(rows["round"], rows[column], label=str(tiers), **layer(number, len(groups)))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    axes.legend(fontsize="small")


def _draw_priced(figure: Figure, table: pd.DataFrame, prices: HitPrices) -> None:
    """Hit ratios of all policies and pools, and beside them what the hits of the first are worth."""
    left, right = figure.subplots(1, 2)
    draw_reuse(left, table)
    pool, policy = table["pool"].iloc[0], table["policy"].iloc[0]
    draw_savings(right, table[(table["pool"] == pool) & (table["policy"] == policy)], prices)
    several = f", {pool}" if table["pool"].nunique() > 1 else ""
    if several or table["policy"].nunique() > 1:
        right.set_title(f"{right.get_title()} ({LABELS.get(str(policy), policy)}{several})")
    for axes in (left, right):
        axes.title.set_fontsize(10)


def write_reuse_figure(path: Path, table: pd.DataFrame, prices: HitPrices | None = None) -> None:
    """Write the figure of a table of either kind; the form follows the name's ending (png, svg, pdf).

    Args:
        path: to write to.
        table: of hits, or of rounds of tiers.
        prices: that the table's savings are counted with, which are then drawn beside the hits.
    """
    priced = prices is not None and "round" not in table and not table.empty
    figure = Figure(figsize=(12.0 if priced else 7.5, 4.5), layout="constrained")
    if priced and prices is not None:
        _draw_priced(figure, table, prices)
    elif "round" not in table:
        draw_reuse(figure.subplots(), table)
    elif "where_faster_s" not in table:
        draw_rounds(figure.subplots(), table, "hit_ratio", label="hit ratio, modelled")
    else:
        left, right = figure.subplots(1, 2)
        draw_rounds(left, table, "hit_ratio", label="hit ratio, modelled")
        draw_rounds(right, table, "where_faster_s", label="mean prefill seconds, no queueing, modelled [s]")
    content = io.BytesIO()
    form = path.suffix.removeprefix(".")
    with mpl.rc_context({"svg.hashsalt": "kvcross"}):
        figure.savefig(content, format=form, metadata={"Date": None} if form == "svg" else None)
    write_bytes_safely(path, content.getvalue())
