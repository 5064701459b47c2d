"""Rank load series as tiers by load time, and find the cheapest tier that beats recompute at each length.

A tier beats recompute at a length when the 95 % interval of recompute/load is above 1.  The cheapest is in the place
with the lowest cost per byte (`PLACES`); within a place it is the fastest, with its statistical ties.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from scipy.special import stdtr

from bench.estimate.intervals import MIN_ROUNDS_FOR_INTERVAL, summarise
from bench.estimate.results import Analysis, Estimate, Point, SweetSpot
from bench.estimate.valid_samples import FAULTS, Medians, Table, round_medians, select_load, tabulate
from bench.record.notices import BACKEND_UNAVAILABLE
from bench.record.run import RunRecord
from bench.record.sample import Outcome, Sample


def indistinguishable(one: Mapping[int, float], other: Mapping[int, float], *, level: float) -> bool:
    """Whether two series tie: their difference over the common rounds is not significant.

    A difference is significant if the 95 % interval of the ratio excludes 1 and the two-sided p of Student's t test on
    the paired log ratios is at most `level` (total error / comparisons, Bonferroni).  Both are required: order
    statistics of few rounds reach no smaller level, and t alone assumes normal noise.
    """
    logs = [math.log(other[number] / one[number]) for number in sorted(one.keys() & other.keys())]
    if len(logs) < MIN_ROUNDS_FOR_INTERVAL:
        return True
    found = summarise(logs)
    if found is None or found.low is None or found.high is None or found.low <= 0 <= found.high:
        return True
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return error > 0 and 2 * float(stdtr(len(logs) - 1, -abs(float(np.mean(logs))) / error)) > level


Place = Literal[
    "host memory", "store memory", "simulated drive", "local disk", "network storage", "object store"
]
PLACES: tuple[Place, ...] = get_args(Place)  # by cost per byte, highest first
MEMORY_BACKENDS = frozenset({"hostmem", "hostmem-pinned"})
MEMORY_STORES = frozenset({"mooncake"})  # servers that keep what is placed in their memory
# what the names of storage say in brackets (`kvio.evidence.storage_device`)
NETWORK, IN_MEMORY = "network", "in memory"
UNVERIFIED = "unverified"
Standing = Literal["beats", "undecided", "loses"]
ERROR = 0.025  # of any false significant difference: once for the homes, once for the order


@dataclass(frozen=True, slots=True)
class Tier:
    """One load series as a storage tier."""

    series: str
    place: Place
    backend: str | None  # None if not recorded
    layout: str | None
    data_path: str | None  # verified, of valid samples; several are joined by " and "
    cache_state: str | None
    rate_tokens: int | None
    bytes_per_s: Estimate | None  # payload per second at `rate_tokens`, its longest length
    whole: SweetSpot | None  # C* and P* of the median load time
    marginal: SweetSpot | None
    # load wins from here on: C* (P* with a suffix) in whole chunks, or the shortest measured length if load always
    # wins; None if load never wins, wins only below or between lengths, or the verdict is inconclusive
    from_tokens: int | None
    points: tuple[Point, ...]  # by measured length
    left_out: tuple[str, ...] = ()  # excluded samples, with the reason


@dataclass(frozen=True, slots=True)
class CheapestTier:
    """The cheapest tier that beats recompute at one length."""

    prefix_tokens: int
    series: str | None  # None if no tier does
    place: Place | None
    # series undecided against recompute: in cheaper places (any place if no tier beats recompute), and in the same
    # place if not significantly slower
    undecided: tuple[str, ...]
    # series in the same place that also beat recompute and are not significantly slower: `indistinguishable` at
    # `ERROR` over all such pairs at all lengths, since the fastest is partly lucky
    ties: tuple[str, ...] = ()
    # the cache state is unproven: a cache may have served the bytes
    unverified: bool = False

    @property
    def all_series(self) -> tuple[str, ...]:
        """The tier and its ties; empty where none beats recompute."""
        return () if self.series is None else (self.series, *self.ties)


@dataclass(frozen=True, slots=True)
class TierTable:
    """All tiers of a run, fastest first, and recompute."""

    tiers: tuple[Tier, ...]
    homes: tuple[CheapestTier, ...]
    recompute_s: Mapping[int, Estimate]  # by length
    suffix_tokens: int  # above 0: all times are of this many next tokens
    # tiers are ordered by load time at this longest common length; None without one: each at its own longest
    order_tokens: int | None
    not_measured: tuple[str, ...]  # skipped series, with the reason
    # runs of neighbours in that order that tie: `indistinguishable` at `ERROR` over the neighbours
    undecided: tuple[tuple[str, ...], ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths at which any tier was measured."""
        return tuple(sorted({point.prefix_tokens for tier in self.tiers for point in tier.points}))


def make_tiers(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> TierTable:
    """The tiers of one run: its load series with what the analysis says of each."""
    tables = _tables_that_count(run, samples)
    names = [name for name, info in run.series.items() if info.arm == "load"]
    names += [point.series for point in analysis.points]
    tiers = [
        _make_tier(run, analysis, name, outcomes=_flatten(tables.get(name, {})))
        for name in dict.fromkeys(names)
    ]
    order_tokens = _longest_of_all(tiers)
    tiers.sort(key=lambda tier: _load_s(tier, order_tokens))
    seconds = {name: round_medians(table) for name, table in tables.items()}
    recompute = {p.prefix_tokens: p.recompute_s for p in analysis.points if p.recompute_s is not None}
    return TierTable(
        tiers=tuple(tiers),
        homes=_find_homes(tiers, seconds),
        recompute_s=dict(sorted(recompute.items())),
        suffix_tokens=run.plan.suffix_tokens,
        order_tokens=order_tokens,
        not_measured=tuple(notice.text for notice in run.notices if notice.kind == BACKEND_UNAVAILABLE),
        undecided=_find_undecided(tiers, seconds, order_tokens),
    )


def find_place(run: RunRecord, series: str) -> Place:
    """Where the chunks of a series lay."""
    settings = run.series[series].settings if series in run.series else {}
    if settings.get("backend") in MEMORY_BACKENDS:
        return "host memory"
    if settings.get("backend") in MEMORY_STORES:
        return "store memory"
    if settings.get("server"):
        return "object store"
    if settings.get("backend") == "simulated":
        return "simulated drive"
    name = str(run.storage.get("placed_from", run.storage).get("name", ""))
    if IN_MEMORY in name:
        return "host memory"
    return "network storage" if NETWORK in name else "local disk"


def judge(point: Point) -> Standing:
    """Whether load beats recompute at this point; undecided where there is no interval, or it holds 1."""
    ratio = point.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return "undecided"
    return "beats" if ratio.low > 1 else "loses" if ratio.high < 1 else "undecided"


def asked_spot(tier: Tier, suffix_tokens: int) -> SweetSpot | None:
    """The crossover that the run asked for: C*, with a suffix P*."""
    return tier.marginal if suffix_tokens else tier.whole


def _longest_of_all(tiers: Sequence[Tier]) -> int | None:
    lengths = [{point.prefix_tokens for point in tier.points} for tier in tiers if tier.points]
    return max(set.intersection(*lengths), default=None) if lengths else None


def _load_s(tier: Tier, tokens: int | None) -> float:
    """Median load time at so many tokens, or at the tier's longest length; a tier without any is the last."""
    seconds = {point.prefix_tokens: point.load_s.value for point in tier.points if point.load_s is not None}
    return seconds[max(seconds) if tokens is None else tokens] if seconds else math.inf


def _find_undecided(
    tiers: Sequence[Tier], seconds: Mapping[str, Medians], tokens: int | None
) -> tuple[tuple[str, ...], ...]:
    """Runs of neighbours whose load times at so many tokens rounds cannot tell apart."""
    if tokens is None:
        return ()
    names = [tier.series for tier in tiers if tier.points]
    runs, level = [names[:1]], ERROR / max(1, len(names) - 1)
    for faster, slower in pairwise(names):
        if indistinguishable(seconds[faster][tokens], seconds[slower][tokens], level=level):
            runs[-1].append(slower)
        else:
            runs.append([slower])
    return tuple(tuple(run) for run in runs if len(run) > 1)


def _tables_that_count(run: RunRecord, samples: Sequence[Sample]) -> dict[str, Table]:
    """By load series, the samples that answer the question asked and count."""
    return {
        series: select_load(run, series, table).table
        for (arm, series, suffix), table in tabulate(samples).items()
        if arm == "load" and suffix == run.plan.suffix_tokens
    }


def _flatten(table: Table) -> list[Outcome]:
    return [outcome for rounds in table.values() for found in rounds.values() for outcome in found]


def _make_tier(run: RunRecord, analysis: Analysis, series: str, *, outcomes: Sequence[Outcome]) -> Tier:
    settings = run.series[series].settings if series in run.series else {}
    mine = (p for p in analysis.points if p.series == series and p.load_s is not None)
    points = sorted(mine, key=lambda point: point.prefix_tokens)
    rated = [point for point in points if point.bytes_per_s is not None]
    spots = {spot.kind: spot for spot in analysis.spots if spot.series == series and spot.statistic == "p50"}
    asked = spots.get("marginal" if run.plan.suffix_tokens else "whole")
    return Tier(
        series=series,
        place=find_place(run, series),
        backend=settings.get("backend"),
        layout=settings.get("preset"),
        data_path=_join(outcome.data_path for outcome in outcomes),
        cache_state=_join(outcome.cache_state for outcome in outcomes),
        rate_tokens=rated[-1].prefix_tokens if rated else None,
        bytes_per_s=rated[-1].bytes_per_s if rated else None,
        whole=spots.get("whole"),
        marginal=spots.get("marginal"),
        from_tokens=_find_from(asked),
        points=tuple(points),
        left_out=tuple(
            notice.detail for notice in (asked.notices if asked is not None else ()) if notice.kind in FAULTS
        ),
    )


def _join(values: Iterable[str | None]) -> str | None:
    return " and ".join(sorted({value for value in values if value is not None})) or None


def _find_from(spot: SweetSpot | None) -> int | None:
    if spot is None or spot.verdict == "inconclusive":
        return None
    if spot.verdict == "load_always_wins":
        return None if spot.measured_range is None else spot.measured_range[0]
    return spot.export_tokens


def _find_homes(tiers: Sequence[Tier], seconds: Mapping[str, Medians]) -> tuple[CheapestTier, ...]:
    """The home at each length, shortest first."""
    at: dict[int, list[tuple[Tier, Point]]] = {}
    for tier in tiers:
        for point in tier.points:
            at.setdefault(point.prefix_tokens, []).append((tier, point))
    rivals = {tokens: _find_rivals(at[tokens]) for tokens in sorted(at)}
    level = ERROR / max(1, sum(math.comb(len(found), 2) for found in rivals.values()))
    return tuple(
        _make_home(tokens, found, at[tokens], seconds=seconds, level=level)
        for tokens, found in rivals.items()
    )


def _find_rivals(found: Sequence[tuple[Tier, Point]]) -> list[tuple[Tier, Point]]:
    """The tiers of the cheapest place that beats recompute: those that do, fastest first, then the undecided."""
    winners = sorted((pair for pair in found if judge(pair[1]) == "beats"), key=_price)
    ordered = [*winners, *(pair for pair in found if judge(pair[1]) == "undecided")]
    return [pair for pair in ordered if winners and pair[0].place == winners[0][0].place]


def _make_home(
    tokens: int,
    rivals: Sequence[tuple[Tier, Point]],
    found: Sequence[tuple[Tier, Point]],
    *,
    seconds: Mapping[str, Medians],
    level: float,
) -> CheapestTier:
    cheap = PLACES.index(rivals[0][0].place) if rivals else -1
    undecided = [
        tier.series
        for tier, point in found
        if judge(point) == "undecided" and PLACES.index(tier.place) > cheap
    ]
    if not rivals:
        return CheapestTier(tokens, None, None, tuple(undecided))
    home, ties = rivals[0][0], list[str]()
    for tier, point in rivals[1:]:
        if indistinguishable(seconds[home.series][tokens], seconds[tier.series][tokens], level=level):
            (ties if judge(point) == "beats" else undecided).append(tier.series)
    unverified = home.cache_state is not None and UNVERIFIED in home.cache_state
    return CheapestTier(tokens, home.series, home.place, tuple(undecided), tuple(ties), unverified)


def _price(found: tuple[Tier, Point]) -> tuple[int, float]:
    """What to sort by for the cheapest place, and there the fastest tier."""
    tier, point = found
    return -PLACES.index(tier.place), point.load_s.value if point.load_s else float("inf")
