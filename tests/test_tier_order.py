"""The order of tiers, where rounds can tell and where not; what is not there is not shown."""

from dataclasses import replace

import matplotlib as mpl
import pytest

from bench.estimate.analysis import analyse
from bench.estimate.tiers import TierTable, make_tiers
from bench.report.figures import crossover_figure as figures
from bench.report.figures import tiers_figure
from bench.report.frames import tier_frame
from bench.report.text.tier_text import tier_rows, tier_title
from tests.tier_sweeps import DISK, MEMORY, Way, make_tier_run, make_tier_samples

NEAR = Way("uring", bytes_per_s=4e9, fixed_s=0.18, spread=0.2)  # beside DISK, a little faster in the median
WAYS = (MEMORY, DISK, NEAR)


def _tiers(num_rounds: int, ways: tuple[Way, ...] = WAYS) -> TierTable:
    run, samples = make_tier_run(ways), make_tier_samples(ways, num_rounds=num_rounds)
    return make_tiers(run, samples, analyse(run, samples))


@pytest.mark.parametrize(
    ("num_rounds", "said"),
    [
        (6, " (order undecided within the noise: uring/best and posix/best)"),
        (1, " (order undecided within the noise: hostmem/best and uring/best and posix/best)"),
    ],
)
def test_neighbours_that_rounds_cannot_tell_apart_are_said_to_be_undecided(
    num_rounds: int, said: str
) -> None:
    title = tier_title(_tiers(num_rounds))
    names = said.partition("noise: ")[2].rstrip(")").split(" and ")
    start, _, listed = title.partition(" (order undecided within the noise: ")
    assert start == "Where a prefix may live: tiers by load time at 8,000 tokens"
    assert sorted(listed.rstrip(")").split(" and ")) == sorted(names)


def test_an_order_that_every_round_shows_is_left_without_doubt() -> None:
    assert _tiers(6, (MEMORY, DISK)).undecided == ()


def test_recompute_has_no_row_where_it_was_not_measured() -> None:
    run = make_tier_run((MEMORY, DISK))
    table = replace(_tiers(6, (MEMORY, DISK)), recompute_s={})
    assert tier_frame(table)["series"].tolist() == ["hostmem/best", "posix/best"]
    assert len(tier_rows(run, table)) == 2


def test_the_legend_of_the_tiers_lists_the_marks_that_occur() -> None:
    run = make_tier_run((MEMORY,))
    with mpl.rc_context(figures.STYLE):
        figure = tiers_figure.make_figure(run, _tiers(6, (MEMORY,)))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["load is faster", "cheapest tier that beats recompute here"]


def test_one_cause_is_one_line_and_few_ticks_in_a_figure_of_one_length() -> None:
    run = make_tier_run((DISK,))
    samples = make_tier_samples((DISK,), lengths=(2000,), num_rounds=1)
    with mpl.rc_context(figures.STYLE):
        figure = figures.make_figure(run, samples, analyse(run, samples), size_inches=figures.WIDE_INCHES)
        figure.canvas.draw()
    axes = figure.axes[0]
    notes = [text.get_text() for text in axes.texts if "one length" in text.get_text()]
    assert len(notes) == 1 and "\n" not in notes[0]
    low, high = axes.get_ylim()
    assert 2 <= len([tick for tick in axes.get_yticks() if low <= tick <= high]) <= 5
