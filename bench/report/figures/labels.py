"""Several ways to load in one figure: a label beside each curve, and its crossover on the recompute curve.

The legend of the crossover figure: what its lines are.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bench.estimate.results import Crossing, SweetSpot
from bench.report.text.sentence import crossover_name, format_places

Place = tuple[float, float]
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


FONT_POINTS = 8.0
LINE_HEIGHT = 1.3  # of the font size
AXES_SHARE = 0.6  # of the figure's height that the axes keep, beside title and caption
GAP_X = 1.03  # where labels begin, in widths of the axes
MAX_IN_LEGEND = 2  # curves; with more, each has its label beside it
WIDE_FROM_INCHES = 6.0  # narrower figures have no room beside the axes
CURVES_IN_WIDE = 8  # that an ordinary wide figure is high enough for
LABEL_INCHES = 0.3  # of two lines
TITLES = {True: "Recompute against load", False: "Recompute or load?"}
TITLE_PAD = 10.5  # beside the height of the legend above the axes
NARROW_CHARACTERS = 46


@dataclass(frozen=True, slots=True)
class Curve:
    """One drawn series.

    Args:
        name, answer: the lines of its label; the answer may be empty.
        last: length and seconds of its last point; None where it has none.
        spot: its crossover with recompute.
    """

    name: str
    answer: str
    colour: str
    last: tuple[float, float] | None
    spot: SweetSpot | None = None

    @property
    def label(self) -> str:
        """Name and answer, a line each."""
        return "\n".join(part for part in (self.name, self.answer) if part)


def room_for(num_curves: int, size_inches: tuple[float, float]) -> tuple[float, float]:
    """`size_inches`, higher where it has to hold many labels."""
    width, height = size_inches
    if num_curves <= MAX_IN_LEGEND:
        return size_inches
    if width < WIDE_FROM_INCHES:
        return width, height + LABEL_INCHES * num_curves
    return width, height + LABEL_INCHES * 1.2 * max(0, num_curves - CURVES_IN_WIDE)


def draw_many(
    axes: Axes, curves: Sequence[Curve], recompute: Mapping[int, float], *, fits: bool, rounds: bool
) -> None:
    """The answer of each curve beside it, or in a legend above where the figure is narrow.

    Args:
        axes: with all curves drawn.
        curves: of every series.
        recompute: seconds of the recompute arm by length.
        fits, rounds: whether any are drawn.
    """
    figure = axes.get_figure()
    wide = figure is None or figure.get_figwidth() >= WIDE_FROM_INCHES  # type: ignore[union-attr]
    drawn = Drawn(fits=fits, rounds=rounds, crossings=mark_crossings(axes, curves, recompute))
    if wide:
        label_curves(axes, curves)
        height = draw_legend(axes, drawn, above=(0.0, 1.0), num_columns=3, only_kinds=True)
    else:
        _name_lines(axes, curves)
        height = draw_legend(axes, drawn, above=(-0.3, 1.0))
    pad = TITLE_PAD + height
    axes.set_title(TITLES[wide], fontsize=11, fontweight="bold", loc="left", pad=pad, parse_math=False)


def _name_lines(axes: Axes, curves: Sequence[Curve]) -> None:
    """Put name and answer of each curve into its entry of the legend."""
    said = {curve.name: f"{curve.name}: {curve.answer}".removesuffix(": ") for curve in curves}
    for line in axes.lines:
        name = str(line.get_label()).removeprefix("load: ")
        if name in said:
            line.set_label("\n".join(textwrap.wrap(said[name], NARROW_CHARACTERS)))


def format_spot(spot: SweetSpot) -> str:
    """The answer of one series beside its name: "C* = 7,208", "load always wins"."""
    if spot.verdict in {"crossover", "multiple_crossings"}:
        return f"{crossover_name(spot)}{format_places(spot)}".replace(" tokens", "")
    if spot.verdict == "inconclusive":
        return f"{crossover_name(spot)} inconclusive"
    return spot.verdict.replace("_", " ")


def spread(places: Sequence[float], gaps: Sequence[float], *, top: float = 1.0) -> list[float]:
    """`places` moved apart so that each keeps half its gap to both sides, in their order, as little as need be.

    Args:
        places: ascending.
        gaps: the room that each needs.
        top: no label's room ends above this, as far as they all fit below it.
    """
    moved: list[float] = []
    for number, (place, gap) in enumerate(zip(places, gaps, strict=True)):
        floor = moved[-1] + (gaps[number - 1] + gap) / 2 if moved else gap / 2
        moved.append(max(place, floor))
    for number in reversed(range(len(moved))):
        ceiling = top - gaps[number] / 2
        if number + 1 < len(moved):
            ceiling = moved[number + 1] - (gaps[number + 1] + gaps[number]) / 2
        moved[number] = min(moved[number], ceiling)
    return moved


def label_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Write each label to the right of `axes`, at the height of its curve's end where there is room."""
    low, high = np.log(axes.get_ylim())
    ending = sorted((c for c in curves if c.last), key=lambda curve: curve.last[1] if curve.last else 0.0)
    figure = axes.get_figure()
    points = 72.0 * AXES_SHARE * (5.0 if figure is None else float(figure.get_figheight()))  # type: ignore[union-attr]
    lines = [1 + curve.label.count("\n") for curve in ending]
    gaps = [FONT_POINTS * (LINE_HEIGHT * count + 0.4) / points for count in lines]
    heights = [(np.log(curve.last[1]) - low) / (high - low) for curve in ending if curve.last is not None]
    for curve, height in zip(ending, spread([float(h) for h in heights], gaps), strict=True):
        if curve.last is None:
            continue
        axes.annotate(
            curve.label, curve.last, (GAP_X, height), textcoords="axes fraction", color=curve.colour,
            fontsize=FONT_POINTS, va="center", ha="left", parse_math=False, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": curve.colour, "linewidth": 0.7, "linestyle": ":", "relpos": (0, 0.5)},
        )  # fmt: skip


def mark_crossings(axes: Axes, curves: Sequence[Curve], recompute: Mapping[int, float]) -> bool:
    """Draw each crossover, with its interval, where it lies on the recompute curve; whether there is any."""
    if not recompute:
        return False
    drawn = False
    lengths, seconds = np.log(list(recompute)), np.log(list(recompute.values()))
    for curve in curves:
        for crossing in () if curve.spot is None else curve.spot.crossings:
            if not crossing.extrapolated:
                height = float(np.exp(np.interp(np.log(crossing.tokens.value), lengths, seconds)))
                _mark(axes, crossing, height=height, colour=curve.colour)
                drawn = True
    return drawn


def _mark(axes: Axes, crossing: Crossing, *, height: float, colour: str) -> None:
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is not None and high is not None:
        axes.plot([low, high], [height, height], color=colour, linewidth=3.0, alpha=0.6, zorder=5)
    axes.plot(
        [crossing.tokens.value], [height], marker="o", markersize=9, markerfacecolor="none",
        markeredgewidth=1.8, color=colour, zorder=6, linestyle="none",
    )  # fmt: skip
