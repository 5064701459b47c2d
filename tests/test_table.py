import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.report.text.terminal import closing_table, plain_table
from tests.sweeps import make_analysis, make_notice, make_run, make_samples

SAMPLES = make_samples(tokens=(1024, 8192), num_rounds=2, num_samples=2)
ANALYSIS = make_analysis(SAMPLES)


def test_every_length_is_one_line_with_both_arms_and_their_intervals() -> None:
    lines = plain_table(make_run(), ANALYSIS).splitlines()
    assert lines[0] == "Qwen3-8B: recompute against load by posix, best layout"
    assert lines[1].split("  ")[0] == "prefix tokens"
    point = ANALYSIS.points[1]
    assert point.recompute_s is not None and point.load_s is not None
    assert lines[3].split()[0] == "8,192"
    assert f"{point.recompute_s.value * 1e3:.0f} ms [" in lines[3]
    assert f"{point.load_s.value * 1e3:.0f} ms [" in lines[3]
    assert len(lines) == 4


def test_a_missing_arm_is_a_dash() -> None:
    point = replace(
        ANALYSIS.points[0],
        load_s=None,
        ratio=None,
        first_token_s=None,
        bytes_per_s=None,
        break_even_bytes_per_s=None,
        mfu=None,
    )
    line = plain_table(make_run(), replace(ANALYSIS, points=(point,))).splitlines()[2]
    assert line.split()[-6:] == ["—"] * 6


def test_notices_are_marked_and_explained_below() -> None:
    point = replace(
        ANALYSIS.points[0], notices=("drift_load", "drift_load", "not_cold"), recompute_scaled=True
    )
    lines = plain_table(make_run(notices=(make_notice(),)), replace(ANALYSIS, points=(point,))).splitlines()
    assert lines[2].endswith("1 2")
    assert lines[3:] == [
        "* scaled from fewer layers; of a load, the first-token step is",
        "1 drift_load: load got 9 % slower over the sweep",
        "2 not_cold: Bytes were not proved to come from storage; such samples do not count as cold.",
    ]


def test_a_ratio_that_is_not_that_of_the_times_beside_it_is_explained() -> None:
    point = ANALYSIS.points[0]
    assert point.ratio is not None
    assert "median of the rounds' ratios" not in plain_table(make_run(), ANALYSIS)
    other = replace(point, ratio=replace(point.ratio, value=point.ratio.value * 1.2))
    said = plain_table(make_run(), replace(ANALYSIS, points=(other,)))
    assert (
        "recompute / load is the median of the rounds' ratios, not the ratio of the medians beside it" in said
    )


def test_a_series_without_points_is_said() -> None:
    assert plain_table(make_run(), replace(ANALYSIS, points=())).endswith(
        "posix, best layout: nothing measured"
    )


def test_nothing_at_all_is_said() -> None:
    assert (
        plain_table(make_run(series={}), replace(ANALYSIS, points=(), spots=()))
        == "no load series was measured"
    )


def test_names_from_outside_are_neither_markup_nor_control() -> None:
    run = make_run(model_name="[bold]x[/bold]\x1b[31m")
    stream = io.StringIO()
    Console(file=stream, width=140).print(closing_table(run, ANALYSIS))
    assert "[bold]x[/bold][31m: recompute against load" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    assert "\x1b" not in plain_table(run, ANALYSIS)


def test_the_terminal_table_has_the_same_cells() -> None:
    stream = io.StringIO()
    Console(file=stream, width=160).print(closing_table(make_run(), ANALYSIS))
    for line in plain_table(make_run(), ANALYSIS).splitlines()[2:]:
        assert all(cell in stream.getvalue() for cell in line.split("  ") if cell)


def test_with_a_suffix_the_title_says_that_the_next_tokens_were_timed() -> None:
    run = make_run(plan=make_run().plan.model_copy(update={"suffix_tokens": 64}))
    assert plain_table(run, ANALYSIS).startswith(
        "Qwen3-8B: recompute of the next 64 tokens against load by posix, best layout"
    )


def test_a_load_whose_first_token_step_was_scaled_is_marked_as_recompute_is() -> None:
    point = replace(ANALYSIS.points[0], load_scaled=True)
    lines = plain_table(make_run(), replace(ANALYSIS, points=(point,))).splitlines()
    assert "44.9 ms [44.4–45.4]  310 ms [308–313] *" in lines[2]
    assert lines[3] == "* scaled from fewer layers; of a load, the first-token step is"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_breaks_figures_and_loses_none(width: int) -> None:
    stream = io.StringIO()
    Console(file=stream, width=width).print(closing_table(make_run(), ANALYSIS))
    assert "…" not in stream.getvalue()
