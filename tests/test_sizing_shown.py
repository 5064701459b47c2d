"""What a sizing shows counts as its table does, and axes and units mean what they say."""

from inspect import signature

import pandas as pd
from matplotlib.figure import Figure

from bench.catalog.models.kv_capacity import Cache
from bench.catalog.models.resolve import resolve_model
from bench.cli.size_command import size
from bench.record.units import count_of
from bench.report.figures.sizing_figure import draw_cost, draw_ratios
from bench.report.text.sizing_text import sizing_text
from bench.sizing.demand import Demand, find_demand, mean_request, work_in_flops
from bench.sizing.deployment import Prices, Sizing
from bench.sizing.drives import Drive
from bench.sizing.size_scenario import find_media
from bench.sizing.sizing_tables import ratio_table, size_tables
from bench.sizing.throughput import Throughput
from bench.sizing.tokencost import Keeping

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


def test_memory_holds_nothing_but_kv_unless_an_occupancy_says_so() -> None:
    given = {"dram_gb": 4.0, "ssd_gb": None, "lifetime_years": 5.0}
    assert find_media(**given, occupancy=1.0) == (Keeping("DRAM", 4.0, lifetime_years=5.0, occupancy=1.0),)
    assert signature(size).parameters["occupancy"].default == 1.0


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
        "not considered, since no rated writes of the drive are known: give --dwpd or --tbw"
    )
    assert lines["drives"] == "the largest, rounded up, but endurance not considered"
    assert _drive_lines(1.0)["drives"] == "the largest, rounded up"
    assert lines["drives for capacity"] == "capacity / 1 / capacity of a drive"
