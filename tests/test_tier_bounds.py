"""From where on, or only where, a prefix may live in a tier, for verdicts of every kind."""

from dataclasses import replace

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Crossing, Estimate, Verdict
from bench.estimate.tiers import make_tiers
from bench.report.text.tier_text import say_from, tier_rows
from tests.tier_sweeps import NEVER, make_tier_run, make_tier_samples

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
    assert say_from(table, tier) == said
    assert tier_rows(RUN, table)[0][-1] == said


def test_a_tier_that_is_fast_for_short_prefixes_only_is_not_said_to_be_never_fast() -> None:
    samples = [
        replace(s, outcome=replace(s.outcome, seconds=s.outcome.seconds * (s.case.prefix_tokens / 4000)))
        if s.case.arm == "load"  # 0.2 ms per token at 4,000 tokens, half of that at 2,000: ties there
        else s
        for s in make_tier_samples((NEVER,), lengths=(500, 1000, 4000, 8000))
    ]
    table = make_tiers(RUN, samples, analyse(RUN, samples))
    assert say_from(table, table.tiers[0]) == "only below 2,000"
