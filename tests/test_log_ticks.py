"""Log axes carry plain numbers, however little they span."""

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.report.figures.crossover_figure import STYLE
from bench.report.figures.style import plain_log_axis


@pytest.mark.parametrize(
    ("low", "high"), [(1.1e11, 6e11), (1.31e11, 1.45e11), (3.0, 40.0), (1e3, 1e8), (1.0, 1e14)]
)
def test_labels_of_a_log_axis_are_plain_numbers_and_there_are_at_least_two(low: float, high: float) -> None:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5, 4))
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot([1, 2], [low, high])
        axes.set_yscale("log")
        plain_log_axis(axes.yaxis, lambda value: f"{value:g}")
        figure.canvas.draw()
        bottom, top = axes.get_ylim()
        ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
        seen = [tick.label1.get_text() for tick in ticks if bottom <= tick.get_loc() <= top]
    assert not any("$" in label for label in seen)
    assert len([label for label in seen if label]) >= 2
