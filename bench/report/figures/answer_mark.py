"""The answer of one series in the crossover figure: where the crossing lies, and above the axes what it is."""

from matplotlib.axes import Axes

from bench.estimate.results import Crossing, SweetSpot
from bench.record.units import format_tokens
from bench.report.figures.labels import TITLE_PAD, WIDE_FROM_INCHES
from bench.report.figures.legend import Drawn, draw_legend
from bench.report.text.sentence import crossover_name, short_answer


def draw_answer(axes: Axes, spot: SweetSpot | None, *, fits: bool, rounds: bool) -> None:
    """The crossings, and above the axes the answer as title over the legend."""
    crossings = spot is not None and _draw_spot(axes, spot)
    figure = axes.get_figure()
    wide = figure is None or figure.get_figwidth() >= WIDE_FROM_INCHES  # type: ignore[union-attr]
    drawn = Drawn(fits=fits, rounds=rounds, crossings=crossings)
    place = (0.0, 1.0) if wide else (-0.3, 1.0)
    height = draw_legend(axes, drawn, above=place, num_columns=2 if wide else 1)
    if spot is not None:
        pad = TITLE_PAD + height
        axes.set_title(_title(spot), fontsize=11, fontweight="bold", loc="left", pad=pad, parse_math=False)


def _draw_spot(axes: Axes, spot: SweetSpot) -> bool:
    """The crossings inside the measured range; whether there are any."""
    inside = [crossing for crossing in spot.crossings if not crossing.extrapolated]
    for crossing in inside:
        _draw_crossing(axes, crossing)
    if inside:
        axes.plot([], [], color="0.25", linestyle=":", label=f"{crossover_name(spot)} and its 95 % interval")
    return bool(inside)


def _title(spot: SweetSpot) -> str:
    bounds = [crossing.tokens for crossing in spot.crossings]
    if len(bounds) != 1 or bounds[0].low is None or bounds[0].high is None:
        return short_answer(spot)
    return f"{short_answer(spot)}  [{format_tokens(bounds[0].low)}–{format_tokens(bounds[0].high)}]"


def _draw_crossing(axes: Axes, crossing: Crossing) -> None:
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is not None and high is not None:
        left, right = axes.get_xlim()
        axes.axvspan(max(low, left), min(high, right), color="0.4", alpha=0.2, linewidth=0)
    axes.axvline(max(crossing.tokens.value, 1), color="0.25", linestyle=":", linewidth=1.4)
