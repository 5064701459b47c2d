"""What a sizing shows counts as its table does, and axes and units mean what they say."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.catalog.models.kv_capacity import Cache, gpu_table
from bench.catalog.models.resolve import resolve_model
from bench.predict.curve import MeasuredCurve
from bench.record.units import count_of
from bench.report.figures.reuse_figure import draw_reuse, draw_rounds, draw_savings, write_reuse_figure
from bench.report.figures.sizing_figure import draw_cost, draw_gpu, draw_ratios
from bench.report.figures.style import layer
from bench.report.text.sizing_text import sizing_text
from bench.reuse.hit_tables import hit_table
from bench.reuse.savings import CostCurves, HitPrices
from bench.reuse.trace import build_trace
from bench.sizing.demand import Demand, find_demand, mean_request, work_in_flops
from bench.sizing.deployment import Prices, Sizing
from bench.sizing.drives import Drive
from bench.sizing.size_scenario import PriceSpec, StoreSpec
from bench.sizing.sizing_tables import ratio_table, size_tables
from bench.sizing.throughput import Throughput
from bench.sizing.tokencost import StorageTierCost, find_media

LLAMA = Cache(resolve_model("llama-3.3-70b"))
FLOPS = work_in_flops(LLAMA.model.geometry)


def _demand(rate: float = 2.0) -> Demand:
    return find_demand([mean_request(8000, 0.5)], LLAMA, FLOPS, requests_per_s=rate)


def test_the_figure_shows_gpus_in_the_groups_that_the_table_counts() -> None:
    sizing = Sizing(_demand(7.0), Throughput(12_000, 2, "test"), 1.0, "FLOPs")
    table = ratio_table(sizing, LLAMA, FLOPS)
    assert set(table["gpus_in_groups"] % 2) == {0}
    assert (table["gpus"] % 2).any()  # whole GPUs alone would be odd at some ratio
    axes = Figure().subplots()
    draw_ratios(axes, table, size_tables(sizing, LLAMA, FLOPS)["demand"])
    (dots,) = (line for line in axes.lines if line.get_marker() == "o")
    assert list(dots.get_ydata()) == list(table["gpus_in_groups"])


def test_costs_on_a_log_axis_are_dots_with_their_values_and_no_bars() -> None:
    axes = Figure().subplots()
    rows = [
        {"quantity": f"{name}, per million reused tokens", "value": value, "unit": "price", "formula": ""}
        for name, value in (("recompute", 0.412), ("SSD", 0.00132))
    ]
    draw_cost(axes, pd.DataFrame(rows))
    assert not axes.patches
    assert {text.get_text() for text in axes.texts} == {"0.412", "0.00132"}
    (dots,) = axes.lines
    assert list(dots.get_ydata()) == [0.412, 0.00132]


def test_memory_holds_only_kv_unless_an_occupancy_is_given() -> None:
    prices = PriceSpec(dram_gb=4.0, lifetime_years=5.0)
    assert find_media(prices, StoreSpec().occupancy) == (
        StorageTierCost("DRAM", 4.0, lifetime_years=5.0, occupancy=1.0),
    )


def test_gpu_seconds_are_printed_as_such_and_one_request_is_one() -> None:
    prices = Prices(gpu_hour=2.5)
    sizing = Sizing(_demand(), Throughput(12_000, 4, "test"), 0.7, "FLOPs", prices=prices)
    said = sizing_text(size_tables(sizing, LLAMA, FLOPS))
    (line,) = [line for line in said.splitlines() if line.startswith("GPU-seconds of a million")]
    assert " GPU-s  work saved" in line
    assert (count_of(1, "request"), count_of(2000, "request")) == ("1 request", "2,000 requests")


def _drive_lines(dwpd: float | None) -> dict[str, str]:
    drive = Drive(7_680_000_000_000, 6e9, dwpd, 5.0)
    sizing = Sizing(_demand(), Throughput(12_000, 2, "test"), 1.0, "FLOPs", stored_bytes=1e14, drive=drive)
    rows = size_tables(sizing, LLAMA, FLOPS)["drives"]
    return dict(zip(rows["quantity"], rows["formula"], strict=True))


def test_an_endurance_that_nobody_knows_is_said_to_be_left_out_and_what_to_give() -> None:
    lines = _drive_lines(None)
    assert lines["drives for endurance"] == (
        "not considered, since no rated writes of the drive are known: give drive.dwpd or drive.tbw"
    )
    assert lines["drives"] == "the largest, rounded up, but endurance not considered"
    assert _drive_lines(1.0)["drives"] == "the largest, rounded up"
    assert lines["drives for capacity"] == "capacity / 1 / capacity of a drive"


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
    draw_gpu(axes, gpu_table([LLAMA], 80 * 10**9, [10_000]))
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
    prices = HitPrices(CostCurves(curve, MeasuredCurve((4, 16), (0.5, 2.0))), 8.0, "here")
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
    prices = HitPrices(CostCurves(curve, MeasuredCurve((4, 16), (0.5, 2.0))), 8.0, "here")
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
