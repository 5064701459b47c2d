"""Lines that are equal are still all seen, no legend lies on what it names, and a cost has its unit."""

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.catalog.models.talk import talk_tables
from bench.report.figures.reuse_figure import draw_rounds
from bench.report.figures.sizing_figure import draw_cost, draw_gpu
from bench.report.figures.style import layer


def _widths(lines: list[Line2D]) -> list[float]:
    return [line.get_linewidth() for line in lines]


@pytest.mark.parametrize("num_lines", [1, 2, 4, 12])
def test_each_line_is_thinner_than_the_one_below_it(num_lines: int) -> None:
    looks = [layer(number, num_lines) for number in range(num_lines)]
    widths = [look["linewidth"] for look in looks]
    assert widths == sorted(set(widths), reverse=True)
    assert (widths[-1], max(widths) < 7) == (1.2, True)
    assert [look["markersize"] for look in looks] == [width + 2.5 for width in widths]


def test_two_equal_stacks_of_tiers_are_both_seen() -> None:
    table = pd.DataFrame(
        {"tiers": ["gpu+dram"] * 2 + ["gpu+dram+ssd"] * 2, "round": [1, 2] * 2, "hit_ratio": [0.0, 0.5] * 2}
    )
    axes = Figure().subplots()
    draw_rounds(axes, table, "hit_ratio", label="hit ratio")
    below, above = axes.get_lines()
    assert below.get_xydata().tolist() == above.get_xydata().tolist()
    assert below.get_linewidth() > above.get_linewidth() + 1
    assert below.get_marker() != above.get_marker()


def test_the_legend_of_the_gpu_memory_lies_on_no_bar() -> None:
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    draw_gpu(axes, talk_tables()["gpu"])
    figure.draw_without_rendering()
    assert _outside(axes)


def _outside(axes: Axes) -> bool:
    legend = axes.get_legend()
    assert legend is not None
    return not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_a_cost_has_the_unit_of_the_prices() -> None:
    cost = pd.DataFrame({"quantity": ["recompute"], "value": [0.3], "unit": ["price"]})
    axes = Figure().subplots()
    draw_cost(axes, cost)
    assert axes.get_ylabel() == "cost of a million reused tokens\n[unit of the prices given]"
