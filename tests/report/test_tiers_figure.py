from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.estimate.analysis import analyse
from bench.estimate.tiers import make_tiers
from bench.report.figures import crossover_figure as figures
from bench.report.figures import tiers_figure
from bench.report.figures.style import look_of
from bench.report.frames import crossover_frame, summary_frame
from bench.report.html import render_report
from bench.report.result_files import write_frame, write_results
from tests.helpers.tier_sweeps import (
    DISK,
    MEMORY,
    NEVER,
    OBJECTS,
    SLOW_DISK,
    Way,
    make_tier_run,
    make_tier_samples,
)
from tests.report.test_html import CHROMIUM, see, words

SIX = (MEMORY, DISK, OBJECTS, SLOW_DISK, NEVER, Way("uring", bytes_per_s=3.9e9, fixed_s=0.19))


def crossover_axes(ways: tuple[Way, ...], size: tuple[float, float] = figures.WIDE_INCHES) -> Axes:
    run, samples = make_tier_run(ways), make_tier_samples(ways)
    with mpl.rc_context(figures.STYLE):
        figure = figures.make_figure(run, samples, analyse(run, samples), size_inches=size)
        figure.canvas.draw()
    return figure.axes[0]


@pytest.mark.parametrize("size", [figures.WIDE_INCHES, figures.NARROW_INCHES], ids=["wide", "narrow"])
@pytest.mark.parametrize("number", [2, 6])
def test_the_legend_of_several_series_has_their_answers_and_lies_above_the_axes_inside_the_figure(
    number: int, size: tuple[float, float]
) -> None:
    axes = crossover_axes(SIX[:number], size)
    figure, legend = axes.figure, axes.get_legend()
    assert isinstance(figure, Figure) and legend is not None
    entries = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    assert "hostmem, best layout: load always wins" in entries
    assert any(entry.startswith("posix, best layout: C* = ") for entry in entries)
    assert len(entries) == number + 4  # recompute, crossovers, fits and rounds besides
    box = legend.get_window_extent()
    assert box.y0 >= axes.bbox.y1 - 1
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    title = figure._suptitle  # type: ignore[attr-defined]
    assert title.get_text() == "Recompute against load" and not box.overlaps(title.get_window_extent())
    assert axes.bbox.height > figure.bbox.height / 3


def test_there_is_one_recompute_curve_however_many_ways_to_load() -> None:
    labels = [str(line.get_label()) for line in crossover_axes(SIX).lines]
    assert [label for label in labels if label.startswith("recompute")] == ["recompute (bfloat16)"]


def test_no_two_of_many_series_look_alike() -> None:
    assert len({look_of(number) for number in range(72)}) == 72


def tier_axes(ways: tuple[Way, ...]) -> Axes:
    run, samples = make_tier_run(ways), make_tier_samples(ways)
    table = make_tiers(run, samples, analyse(run, samples))
    with mpl.rc_context(figures.STYLE):
        figure = tiers_figure.make_figure(run, table)
        figure.canvas.draw()
    return figure.axes[0]


def test_every_tier_is_a_row_from_the_fastest_down() -> None:
    axes = tier_axes((NEVER, DISK, MEMORY))
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "hostmem, best layout\nhost memory, 10.0 GB/s",
        "posix, best layout\nlocal disk, 4.00 GB/s, direct",
        "nixl, best layout\nlocal disk, 500 MB/s, direct",
    ]
    bottom, top = axes.get_ylim()
    assert top < 0 < bottom


def test_rings_mark_the_cheapest_tier_at_each_length() -> None:
    axes = tier_axes((MEMORY, DISK))
    rings = [line for line in axes.lines if line.get_markersize() == 12]
    assert [(*ring.get_xdata(), *ring.get_ydata()) for ring in rings] == [
        (1000, 0),
        (2000, 0),
        (4000, 1),
        (8000, 1),
    ]
    assert any(text.get_text().startswith("C* = 2,") for text in axes.texts)


def write(folder: Path, ways: tuple[Way, ...]) -> dict[str, bytes]:
    run, samples = make_tier_run(ways), make_tier_samples(ways)
    analysis = analyse(run, samples)
    paths = write_results(folder, run, samples, analysis=analysis)
    return {path.name: path.read_bytes() for path in paths}


def test_several_ways_to_load_leave_table_and_figure_of_tiers_the_same_each_time(tmp_path: Path) -> None:
    first = write(tmp_path, (MEMORY, DISK))
    assert {"tiers.csv", "tiers.png", "tiers.svg"} <= set(first)
    assert write(tmp_path, (MEMORY, DISK)) == first
    assert b"Date" not in first["tiers.svg"] and b"tEXt" not in first["tiers.png"]


def test_one_way_to_load_has_no_tiers_to_choose_from(tmp_path: Path) -> None:
    assert not any(name.startswith("tiers") for name in write(tmp_path, (DISK,)))


def test_the_report_has_a_section_on_tiers() -> None:
    run, samples = make_tier_run((MEMORY, DISK)), make_tier_samples((MEMORY, DISK))
    page = render_report(run, samples, analyse(run, samples))
    said = words(page)
    assert "Where a prefix may live: tiers by load time at 8,000 tokens" in said
    assert "the cheapest tier that beats recompute is local disk: posix, best layout" in said
    assert '<section id="tiers">' not in render_report(
        make_tier_run((DISK,)), make_tier_samples((DISK,)), analyse(make_tier_run((DISK,)), [])
    )


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_a_report_with_six_tiers_fits_a_phone(tmp_path: Path) -> None:
    run, samples = make_tier_run(SIX), make_tier_samples(SIX)
    seen = see(tmp_path, render_report(run, samples, analyse(run, samples)), 320)
    assert (seen["inner"], seen["wide"]) == (320, 0)
    assert seen["scroll"] <= 320


def test_tiers_of_which_nothing_was_measured_have_no_ticks_and_their_tables_a_header(tmp_path: Path) -> None:
    run = make_tier_run((MEMORY, DISK))
    table = make_tiers(run, [], analyse(run, []))
    with mpl.rc_context(figures.STYLE):
        figure = tiers_figure.make_figure(run, table)
        figure.canvas.draw()
    assert list(figure.axes[0].get_xticks()) == []
    analysis = analyse(run, [])
    for frame in (summary_frame(analysis), crossover_frame(replace(analysis, spots=()))):
        write_frame(tmp_path / "x.csv", frame)
        (header,) = (tmp_path / "x.csv").read_text().splitlines()
        assert header.startswith("series,")
