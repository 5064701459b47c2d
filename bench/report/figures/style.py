"""Colours and markers of series: no two alike, and all to be told apart without colour.

Ticks of log axes as plain numbers: 1, 2 and 5 of each decade where few decades show, never raw TeX.
"""

import math
from collections.abc import Callable
from typing import Any

from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

FEW_DECADES = {"x": 1.7, "y": 3.0}  # up to so many, 2 and 5 are labelled too: labels of x stand side by side
MANY_DECADES = 9  # beyond, labels would touch: the locator leaves some out


def plain_log_axis(axis: Axis, say: Callable[[float], str]) -> None:
    """Label a log axis, its scale already set, with `say` of each tick and nothing between.

    Matplotlib's own minor labels, which appear where an axis spans less than a decade, are TeX; with
    `text.parse_math` off they would be printed as they are.
    """
    low, high = sorted(axis.get_data_interval())
    decades = math.log10(high / low) if 0 < low < high < math.inf else 0.0
    subs: tuple[float, ...] = (
        (1.0, 2.0, 5.0) if decades <= FEW_DECADES["x" if isinstance(axis, XAxis) else "y"] else (1.0,)
    )
    if decades < 0.3:
        subs = tuple(step / 2 for step in range(2, 20))
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=20 if decades <= MANY_DECADES else 9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: say(value)))
    axis.set_minor_locator(FixedLocator([]))
    axis.set_minor_formatter(NullFormatter())


# Okabe and Ito's colours for all kinds of colour vision (https://jfly.uni-koeln.de/color/)
RECOMPUTE_COLOUR = "#D55E00"
# after theirs, three of Paul Tol's muted scheme (https://sronpersonalpages.nl/~pault/): indigo, wine, olive
LOAD_COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#332288", "#882255", "#999933")
LOAD_MARKERS = (
    "s",
    "^",
    "D",
    "v",
    "P",
    "X",
    "*",
    "<",
    "p",
)  # their number and that of the colours share no divisor
LAYER_MARKERS = ("o", "s", "^", "D", "v")
# printed tables of a notebook are scrolled sideways on a narrow screen, for a number must not be broken in two
UNBROKEN_TEXT = (
    "<style>.jp-RenderedText pre, .output_area pre, .output_text pre"
    " { white-space: pre !important; word-break: normal !important; overflow-x: auto }</style>"
)


def look_of(number: int) -> tuple[str, str]:
    """Colour and marker of the load or hybrid series of this number, from 0; the first 72 all differ."""
    return LOAD_COLOURS[number % len(LOAD_COLOURS)], LOAD_MARKERS[number % len(LOAD_MARKERS)]


def layer(number: int, num_lines: int) -> dict[str, Any]:
    """Looks of a line among others that it may equal: each is thinner than the one below it, which stays seen."""
    width = 1.2 + min(2.0, 6.0 / num_lines) * (num_lines - 1 - number)
    return {
        "linewidth": width,
        "marker": LAYER_MARKERS[number % len(LAYER_MARKERS)],
        "markersize": width + 2.5,
        "solid_capstyle": "butt",
        "dash_capstyle": "butt",
    }
