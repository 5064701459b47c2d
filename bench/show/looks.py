"""Colours and markers of series: no two alike, and all to be told apart without colour."""

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


def look_of(number: int) -> tuple[str, str]:
    """Colour and marker of the load or hybrid series of this number, from 0; the first 72 all differ."""
    return LOAD_COLOURS[number % len(LOAD_COLOURS)], LOAD_MARKERS[number % len(LOAD_MARKERS)]
