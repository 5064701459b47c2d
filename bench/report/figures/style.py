"""Colours and markers of series: no two alike, and all to be told apart without colour."""

from typing import Any

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
