"""The tiers in words: one row for each, and at each length the cheapest that still beats recompute."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from bench.estimate.results import Crossing, SweetSpot
from bench.estimate.tiers import CheapestTier, Tier, TierTable, asked_spot
from bench.record.run import RunRecord
from bench.record.units import MISSING, format_seconds, format_tokens, printable
from bench.report.run_facts import format_state, in_virtual_machine, series_label
from bench.report.text.format import format_rate_estimate, format_tokens_estimate
from bench.report.text.terminal import render

MAX_LENGTHS = 4  # columns of load times
LEFT_COLUMNS = frozenset({0, 1, 2, 3})
RULE = (
    "cheapest per byte, the last costs least: host memory, memory of a store, local disk, network storage, "
    "object store; of several in one place, the faster at that length and those that rounds cannot tell from it"
)


def tier_title(table: TierTable) -> str:
    """The heading, with what the tiers are ordered by."""
    return f"Where a prefix may live: tiers by {format_order(table)}"


def format_order(table: TierTable) -> str:
    """What the rows are ordered by: "load time at 4,096 tokens"."""
    if table.order_tokens is None:
        return "load time at the longest length of each"
    alike = "; ".join(" and ".join(map(printable, run)) for run in table.undecided)
    doubt = f" (order undecided within the noise: {alike})" if alike else ""
    return f"load time at {format_tokens(table.order_tokens)} tokens{doubt}"


def has_choice(table: TierTable) -> bool:
    """Whether there are several tiers to choose from."""
    return len(table.tiers) > 1


def shown_lengths(table: TierTable) -> tuple[int, ...]:
    """The lengths whose load times are shown: shortest and longest, and some in between."""
    lengths = table.lengths
    if len(lengths) <= MAX_LENGTHS:
        return lengths
    last = len(lengths) - 1
    return tuple(lengths[round(step * last / (MAX_LENGTHS - 1))] for step in range(MAX_LENGTHS))


def tier_headings(table: TierTable) -> tuple[str, ...]:
    """Headings of `tier_rows`."""
    named = "C* [95 %]", "P* [95 %]"
    return (
        "tier",
        "where",
        "data path",
        "page cache",
        "GB/s [95 %]",
        *named,
        *(f"at {format_tokens(tokens)}" for tokens in shown_lengths(table)),
        "may live here from",
    )


def tier_rows(run: RunRecord, table: TierTable) -> list[tuple[str, ...]]:
    """One row for each tier, fastest first; recompute, if measured, is the last one."""
    rows = [_tier_row(run, table, tier) for tier in table.tiers]
    if not table.recompute_s:
        return rows
    estimates = (table.recompute_s.get(tokens) for tokens in shown_lengths(table))
    seconds = [MISSING if estimate is None else format_seconds(estimate.value) for estimate in estimates]
    return [*rows, ("recompute", *("",) * 6, *seconds, "")]


def _tier_row(run: RunRecord, table: TierTable, tier: Tier) -> tuple[str, ...]:
    seconds = {point.prefix_tokens: point.load_s for point in tier.points}
    found = (seconds.get(tokens) for tokens in shown_lengths(table))
    state = tier.cache_state
    return (
        series_label(run, tier.series),
        tier.place,
        printable(tier.data_path or MISSING),
        MISSING if state is None else format_state(state, guest=in_virtual_machine(run)),
        format_rate_estimate(tier.bytes_per_s),
        MISSING if table.suffix_tokens else format_spot(tier.whole),
        format_spot(tier.marginal),
        *(MISSING if estimate is None else format_seconds(estimate.value) for estimate in found),
        format_from(table, tier),
    )


def format_spot(spot: SweetSpot | None) -> str:
    """C* or P* with its interval, or the verdict."""
    if spot is None:
        return MISSING
    if spot.verdict == "crossover" and spot.crossings[0].load_wins_beyond:
        return format_tokens_estimate(spot.crossings[0].tokens)
    if spot.verdict == "crossover":
        return f"{format_tokens_estimate(spot.crossings[0].tokens)} (load wins below)"
    return spot.verdict.replace("_", " ")


def format_from(table: TierTable, tier: Tier) -> str:
    """From how many tokens on a prefix may live in this tier."""
    spot = asked_spot(tier, table.suffix_tokens)
    if spot is None or spot.verdict == "inconclusive":
        return "undecided"
    if tier.from_tokens is not None:
        shortest = " (shortest)" if spot.verdict == "load_always_wins" else ""
        return f"{format_tokens(tier.from_tokens)}{shortest}"
    if spot.verdict in {"crossover", "multiple_crossings"}:
        return f"only {_format_wins(spot.crossings)}"
    top = None if spot.measured_range is None else spot.measured_range[1]
    return f"never up to {format_tokens(top)}"


def _format_wins(crossings: Sequence[Crossing]) -> str:
    """Where load wins, of crossings that end in recompute: "below 700 and 2,000 to 9,000"."""
    wins = []
    for number, crossing in enumerate(crossings):
        if crossing.load_wins_beyond:
            continue
        end = format_tokens(crossing.tokens.value)
        start = f"{format_tokens(crossings[number - 1].tokens.value)} to" if number else "below"
        wins.append(f"{start} {end}")
    return " and ".join(wins)


def tier_notes(run: RunRecord, table: TierTable) -> tuple[str, ...]:
    """Lines below the rows: what the times are, the cheapest tier at each length, what was not measured."""
    suffix = table.suffix_tokens
    timed = (
        f"time of the next {format_tokens(suffix)} tokens after so many"
        if suffix
        else "time of a whole prefix of so many tokens, first-token step included"
    )
    left_out = [
        f"{series_label(run, tier.series)}: {printable(message)}"
        for tier in table.tiers
        for message in tier.left_out
    ]
    return (
        f"at N: {timed}; GB/s at the longest length; {RULE}",
        *format_homes(run, table),
        *left_out,
        *(printable(message) for message in table.not_measured),
    )


def format_homes(run: RunRecord, table: TierTable) -> tuple[str, ...]:
    """The cheapest tier that beats recompute, by runs of lengths that share it."""
    lines = []
    for _, homes in groupby(table.homes, key=lambda home: (sorted(home.all_series), home.undecided)):
        lines.append(_format_run(run, list(homes)))
    return tuple(lines)


def _format_run(run: RunRecord, homes: Sequence[CheapestTier]) -> str:
    home = homes[0]
    first, last = format_tokens(home.prefix_tokens), format_tokens(homes[-1].prefix_tokens)
    at = f"at {first} tokens" if len(homes) == 1 else f"at {first} to {last} tokens"
    doubt = [series_label(run, series) for series in home.undecided]
    undecided = f" (undecided: {'; '.join(doubt)})" if doubt else ""
    if home.series is None:
        return f"{at} no tier surely beats recompute{undecided}"
    unproved = " (its cache state is unverified)" if home.unverified else ""
    named = sorted(series_label(run, series) for series in home.all_series)
    ties = " (the same within the noise)" if home.ties else ""
    return (
        f"{at} the cheapest tier that beats recompute is {home.place}: {' or '.join(named)}"
        f"{ties}{unproved}{undecided}"
    )


def tier_table(run: RunRecord, table: TierTable) -> RenderableType:
    """The tiers with their heading and notes."""
    rows = render(tier_headings(table), tier_rows(run, table), left=LEFT_COLUMNS)
    return Group(Text(tier_title(table)), rows, *map(Text, tier_notes(run, table)))
