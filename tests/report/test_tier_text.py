"""From where on, or only where, a prefix may live in a tier, for verdicts of every kind."""

from dataclasses import replace

import matplotlib as mpl
import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Crossing, Estimate, Verdict
from bench.estimate.tiers import TierTable, make_tiers
from bench.report.figures import crossover_figure as figures
from bench.report.figures import tiers_figure
from bench.report.frames import tier_frame
from bench.report.text.tier_text import format_from, tier_rows, tier_title
from tests.helpers.tier_sweeps import DISK, MEMORY, NEVER, Way, make_tier_run, make_tier_samples

RUN, SAMPLES = make_tier_run((NEVER,)), make_tier_samples((NEVER,))


def crossing(tokens: float, *, load_wins_beyond: bool) -> Crossing:
    return Crossing(Estimate(tokens, tokens, tokens), (1000, 2000), load_wins_beyond)


DOWN = crossing(700.4, load_wins_beyond=False)
UP, DOWN_AGAIN = crossing(2000.0, load_wins_beyond=True), crossing(9000.0, load_wins_beyond=False)


@pytest.mark.parametrize(
    ("verdict", "crossings", "said"),
    [
        ("recompute_always_wins", (), "never up to 8,000"),
        ("crossover", (DOWN,), "only below 700"),
        ("multiple_crossings", (UP, DOWN_AGAIN), "only 2,000 to 9,000"),
        ("multiple_crossings", (DOWN, UP, DOWN_AGAIN), "only below 700 and 2,000 to 9,000"),
        ("inconclusive", (), "undecided"),
    ],
)
def test_never_is_said_only_where_recompute_always_wins(
    verdict: Verdict, crossings: tuple[Crossing, ...], said: str
) -> None:
    analysis = analyse(RUN, SAMPLES)
    spots = tuple(
        replace(spot, verdict=verdict, crossings=crossings, export_tokens=None) for spot in analysis.spots
    )
    table = make_tiers(RUN, SAMPLES, replace(analysis, spots=spots))
    (tier,) = table.tiers
    assert tier.from_tokens is None
    assert format_from(table, tier) == said
    assert tier_rows(RUN, table)[0][-1] == said


def test_a_tier_that_is_fast_for_short_prefixes_only_is_not_said_to_be_never_fast() -> None:
    samples = [
        replace(s, outcome=replace(s.outcome, seconds=s.outcome.seconds * (s.case.prefix_tokens / 4000)))
        if s.case.arm == "load"  # 0.2 ms per token at 4,000 tokens, half of that at 2,000: ties there
        else s
        for s in make_tier_samples((NEVER,), lengths=(500, 1000, 4000, 8000))
    ]
    table = make_tiers(RUN, samples, analyse(RUN, samples))
    assert format_from(table, table.tiers[0]) == "only below 2,000"


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
