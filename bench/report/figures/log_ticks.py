"""Ticks of log axes as plain numbers: 1, 2 and 5 of each decade where few decades show, never raw TeX."""

import math
from collections.abc import Callable

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
