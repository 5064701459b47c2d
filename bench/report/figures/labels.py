"""What the crossover figure writes above its axes, and the crossovers of several load series on the recompute curve."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bench.estimate.results import Crossing, SweetSpot
from bench.report.text.sentence import crossover_name, format_places

FONT_POINTS = 8.0
ENTRY_INCHES = 0.19  # height of one line of the legend
FREE_LINES = 3  # of the legend, that an ordinary figure is high enough for
WIDE_FROM_INCHES = 6.0
ENTRY_CHARACTERS = {True: 60, False: 46}  # by whether the figure is wide
NUM_COLUMNS = {True: 2, False: 1}


def is_wide(axes: Axes) -> bool:
    """Whether the figure of these axes has room for two columns."""
    figure = axes.get_figure()
    return figure is None or figure.get_figwidth() >= WIDE_FROM_INCHES  # type: ignore[union-attr]


def room_for(num_curves: int, size_inches: tuple[float, float]) -> tuple[float, float]:
    """`size_inches`, higher where the legend has many lines."""
    width, height = size_inches
    num_lines = num_curves / 2 + 2 if width >= WIDE_FROM_INCHES else 2 * num_curves
    return width, height + ENTRY_INCHES * max(0, num_lines - FREE_LINES)


def draw_legend(axes: Axes, *, fits: bool, rounds: bool) -> None:
    """The legend above the axes, where no data is: the lines with a label, and the other kinds that are drawn."""
    handles = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    if not handles:
        return
    if fits:
        dashes: Any = (0, (4, 3))
        handles += axes.plot([], [], color="0.4", linestyle=dashes, linewidth=1.0, label="fits (diagnostic)")
    if rounds:
        handles += axes.plot([], [], color="0.4", alpha=0.4, marker=".", linewidth=0.7, label="single rounds")
    wide = is_wide(axes)
    legend = axes.legend(
        handles=handles, ncols=NUM_COLUMNS[wide], loc="lower left", bbox_to_anchor=(-0.1 if wide else -0.3, 1.0),
        borderaxespad=0.2, fontsize=FONT_POINTS, frameon=False,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_text("\n".join(textwrap.wrap(text.get_text(), ENTRY_CHARACTERS[wide])))


def format_spot(spot: SweetSpot) -> str:
    """The answer of one series beside its name: "C* = 7,208", "load always wins"."""
    if spot.verdict in {"crossover", "multiple_crossings"}:
        return f"{crossover_name(spot)}{format_places(spot)}".replace(" tokens", "")
    if spot.verdict == "inconclusive":
        return f"{crossover_name(spot)} inconclusive"
    return spot.verdict.replace("_", " ")


def mark_crossings(
    axes: Axes, spots: Sequence[tuple[SweetSpot, str]], recompute: Mapping[int, float]
) -> None:
    """Draw each crossover, with its interval, where it lies on the recompute curve.

    Args:
        spots: each with the colour of its load series.
        recompute: seconds of the recompute arm by length.
    """
    found = [
        (crossing, colour)
        for spot, colour in spots
        for crossing in spot.crossings
        if recompute and not crossing.extrapolated
    ]
    lengths, seconds = np.log(list(recompute)), np.log(list(recompute.values()))
    for crossing, colour in found:
        height = float(np.exp(np.interp(np.log(crossing.tokens.value), lengths, seconds)))
        _mark(axes, crossing, height=height, colour=colour)
    if found:
        axes.plot(
            [], [], color="0.4", marker="o", markerfacecolor="none", markersize=8, linewidth=3, alpha=0.6,
            label="crossover and its 95 % interval",
        )  # fmt: skip


def _mark(axes: Axes, crossing: Crossing, *, height: float, colour: str) -> None:
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is not None and high is not None:
        axes.plot([low, high], [height, height], color=colour, linewidth=3.0, alpha=0.6, zorder=5)
    axes.plot(
        [crossing.tokens.value], [height], marker="o", markersize=9, markerfacecolor="none",
        markeredgewidth=1.8, color=colour, zorder=6, linestyle="none",
    )  # fmt: skip
