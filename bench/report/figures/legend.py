"""The legend of the crossover figure: what its lines are."""

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

Place = tuple[float, float]
FONT_POINTS = 8.0
ENTRY_POINTS = 13.5  # of one row


@dataclass(frozen=True, slots=True)
class Drawn:
    """What kinds of marks a figure has beside its curves: the legend explains no other."""

    fits: bool
    rounds: bool
    crossings: bool


def draw_legend(
    axes: Axes, drawn: Drawn, *, above: Place, num_columns: int = 1, only_kinds: bool = False
) -> float:
    """The legend from the point `above` upwards, in shares of the axes, where no data is; its height in points.

    With `only_kinds` it tells what kinds of lines there are, where each curve has its label beside it.
    """
    handles = [] if only_kinds else [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    if only_kinds and drawn.crossings:
        handles += axes.plot(
            [], [], color="0.4", marker="o", markerfacecolor="none", markersize=8, linewidth=3, alpha=0.6,
            label="crossover and its 95 % interval",
        )  # fmt: skip
    if drawn.fits:
        dashes: Any = (0, (4, 3))
        handles += axes.plot([], [], color="0.4", linestyle=dashes, linewidth=1.0, label="fits (diagnostic)")
    if drawn.rounds:
        handles += axes.plot([], [], color="0.4", alpha=0.4, marker=".", linewidth=0.7, label="single rounds")
    if not handles:
        return 0.0
    legend = axes.legend(
        handles=handles, ncols=num_columns, loc="lower left", bbox_to_anchor=above, borderaxespad=0.2,
        fontsize=FONT_POINTS, framealpha=0.9, edgecolor="none",
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    lines = sum(1 + text.get_text().count("\n") for text in legend.get_texts())
    return ENTRY_POINTS * math.ceil(lines / num_columns)
