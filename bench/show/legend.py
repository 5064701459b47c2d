"""The legend of the crossover figure: what its lines are."""

from typing import Any

from matplotlib.axes import Axes

Place = tuple[float, float]
FONT_POINTS = 8.0


def draw_legend(axes: Axes, *, above: Place | None = None, only_kinds: bool = False) -> None:
    """The legend inside the axes, or from the point `above` upwards, in shares of the axes.

    With `only_kinds` it tells what kinds of lines there are, where each curve has its label beside it.
    """
    (fits,) = axes.plot([], [], color="0.4", linestyle=(0, (4, 3)), linewidth=1.0, label="fits (diagnostic)")
    (rounds,) = axes.plot([], [], color="0.4", alpha=0.4, marker=".", linewidth=0.7, label="single rounds")
    chosen: dict[str, Any] = {"loc": "upper left"}
    if above is not None:
        chosen = {"loc": "lower left", "bbox_to_anchor": above, "borderaxespad": 0.2}
    if only_kinds:
        (ring,) = axes.plot(
            [], [], color="0.4", marker="o", markerfacecolor="none", markersize=8, linewidth=3, alpha=0.6,
            label="crossover and its 95 % interval",
        )  # fmt: skip
        chosen |= {"handles": [ring, fits, rounds], "ncols": 3}
    legend = axes.legend(fontsize=FONT_POINTS, framealpha=0.9, edgecolor="none", **chosen)
    for text in legend.get_texts():
        text.set_parse_math(False)
