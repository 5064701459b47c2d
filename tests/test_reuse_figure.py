"""The reuse figure draws every policy, and says that its figures are modelled."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from bench.predict.curve import MeasuredCurve
from bench.report.figures.reuse_figure import draw_reuse, draw_savings, write_reuse_figure
from bench.reuse.hit_tables import hit_table
from bench.reuse.savings import CostCurves, Prices
from bench.reuse.trace import build_trace

TRACE = build_trace([[0, 1], [2, 3], [0, 1]], [8, 8, 8], block_tokens=4)


def test_each_policy_is_a_line_over_capacity_with_the_maximum_on_the_right_scale() -> None:
    figure = Figure()
    axes = figure.subplots()
    draw_reuse(axes, hit_table(TRACE, [16, 8, 0], ["lru", "optimal"], unit="blocks"))
    assert axes.get_title() == "Prefix reuse, modelled"
    assert axes.get_xlabel() == "capacity [tokens], counted in blocks"
    lru, optimal, most = axes.get_lines()
    assert lru.get_xydata().tolist() == [[8, 0], [16, 8 / 24]]
    assert optimal.get_xydata().tolist() == [[8, 8 / 24], [16, 8 / 24]]
    assert list(most.get_ydata()) == [8 / 24, 8 / 24]
    assert [line.get_label() for line in (lru, optimal)] == ["LRU", "optimal (Belady)"]
    assert axes.get_xscale() == "log"
    (share,) = axes.child_axes
    assert share.get_ylabel() == "share of the maximum"
    figure.draw_without_rendering()
    assert share.get_ylim()[1] == pytest.approx(1.08)


def test_a_trace_without_reuse_is_drawn_without_a_share() -> None:
    axes = Figure().subplots()
    draw_reuse(axes, hit_table(build_trace([[0], [1]], [4, 4], block_tokens=4), [100]))
    assert axes.child_axes == []


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_reuse(Figure().subplots(), hit_table(TRACE, []))


def test_savings_are_lines_over_capacity_below_the_bound_of_free_hits() -> None:
    curve = MeasuredCurve((4, 8, 16), (1.0, 2.0, 4.0))
    prices = Prices(CostCurves(curve, MeasuredCurve((4, 16), (0.5, 2.0))), 8.0, "here")
    table = hit_table(TRACE, [16, 8, 0], prices=prices)
    axes = Figure().subplots()
    draw_savings(axes, table, prices)
    assert "modelled" in axes.get_title()
    free, every, beyond, faster, _ = axes.get_lines()
    # 8 of 24 tokens hit: 2 of 6 s are saved when that is free, and loading takes 1 s
    assert free.get_xydata().tolist() == [[8, 0], [16, pytest.approx(100 / 3)]]
    assert every.get_xydata().tolist() == [[8, 0], [16, pytest.approx(100 / 6)]]
    assert list(beyond.get_ydata()) == list(every.get_ydata()) == list(faster.get_ydata())
    assert [line.get_label() for line in (free, every, beyond, faster)] == [
        "if a hit is free (bound)",
        "load every hit",
        "load from C* = 8 tokens",
        "load where faster",
    ]


def test_with_prices_the_seconds_saved_are_drawn_beside_the_hit_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    curve = MeasuredCurve((4, 8, 16), (1.0, 2.0, 4.0))
    prices = Prices(CostCurves(curve, MeasuredCurve((4, 16), (0.5, 2.0))), 8.0, "here")
    table = hit_table(TRACE, [16, 8], ["lru", "fifo"], prices=prices)
    drawn: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: object, **options: object) -> None:
        drawn.append(figure)
        save(figure, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    write_reuse_figure(tmp_path / "a.png", table, prices)
    write_reuse_figure(tmp_path / "b.png", hit_table(TRACE, [16, 8]))
    (hits, saved), (alone,) = (figure.axes for figure in drawn)
    assert hits.get_ylabel() == alone.get_ylabel() == "hit ratio [hit tokens / input tokens]"
    labels = saved.get_legend_handles_labels()[1]
    assert labels == [
        "if a hit is free (bound)",
        "load every hit",
        "load from C* = 8 tokens",
        "load where faster",
    ]
    assert "(LRU)" in saved.get_title()
    (seconds,) = saved.child_axes
    assert seconds.get_ylabel() == "prefill seconds saved [s]"
    assert seconds.get_ylim()[1] == pytest.approx(saved.get_ylim()[1] * 6 / 100)  # all prefills take 6 s
