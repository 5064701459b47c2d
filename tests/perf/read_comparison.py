"""Which contender reads faster, from repetitions in which every one of them reads the same files once."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from random import Random
from statistics import median

from bench.estimate.intervals import summarise_positive
from bench.estimate.results import Estimate
from tests.perf.contenders import Contender
from tests.perf.fileset import FileSet


@dataclass(frozen=True, slots=True)
class Reading:
    """One contender's reading of all files of a set.

    Args:
        repetition: readings of one repetition are compared with each other, and with no others.
        order: position in the repetition.
    """

    request_bytes: int
    depth: int
    repetition: int
    order: int
    contender: str
    num_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Setting:
    """One contender at one queue depth."""

    contender: str
    depth: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of theirs for a byte over seconds of ours, by repetition: above 1 ours is faster.

    Args:
        kind: "setting", one against one at a depth; "best", the best settings of two teams.
        depth: of both; None where each team has its own.
        ours, theirs: contenders, or teams.
    """

    kind: str
    request_bytes: int
    depth: int | None
    ours: str
    theirs: str
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    num_repetitions: int
    our_bytes_per_s: float
    their_bytes_per_s: float


def measure(
    files: FileSet,
    contenders: Sequence[Contender],
    *,
    num_files_at: dict[int, int],
    num_repetitions: int,
    seed: int = 0,
) -> list[Reading]:
    """Readings by every contender at every depth.

    In each repetition the depths come in random order, and at each depth the contenders.
    """
    chance, found = Random(seed), []
    for repetition in range(num_repetitions):
        order = 0
        for depth in chance.sample(list(num_files_at), len(num_files_at)):
            here = files.first(num_files_at[depth])
            for contender in chance.sample(list(contenders), len(contenders)):
                seconds = contender.read(here, depth)
                here.require_uncached(contender.name)
                found.append(
                    Reading(
                        files.request_bytes,
                        depth,
                        repetition,
                        order,
                        contender.name,
                        here.num_bytes,
                        seconds,
                    )
                )
                order += 1
    return found


def compare(
    readings: Sequence[Reading], teams: dict[str, str], *, our_teams: Sequence[str]
) -> list[Comparison]:
    """Every contender of our teams against every other at each depth, and the best of each two teams.

    Args:
        readings: of one request size.
        teams: team by contender.
        our_teams: those that are compared with the others.
    """
    ours = [name for name, team in teams.items() if team in our_teams]
    theirs = [name for name, team in teams.items() if team not in our_teams]
    depths = sorted({reading.depth for reading in readings})
    costs = _costs(readings)
    pairs = [(a, b, depth) for depth in depths for a in ours for b in theirs]
    found = [
        _comparison(
            "setting", readings, depth, [(costs[Setting(a, depth)], costs[Setting(b, depth)])], (a, b)
        )
        for a, b, depth in pairs
    ]
    other_teams = dict.fromkeys(team for team in teams.values() if team not in our_teams)
    for our_team in our_teams:
        for their_team in other_teams:
            picked = [
                (_take(costs, teams, our_team, half), _take(costs, teams, their_team, half))
                for half in (0, 1)
            ]
            found.append(_comparison("best", readings, None, picked, (our_team, their_team)))
    return found


def _costs(readings: Sequence[Reading]) -> dict[Setting, dict[int, float]]:
    """Seconds for a byte, by setting and repetition."""
    costs: dict[Setting, dict[int, float]] = {}
    for reading in readings:
        setting = Setting(reading.contender, reading.depth)
        costs.setdefault(setting, {})[reading.repetition] = reading.seconds / reading.num_bytes
    return costs


def _take(
    costs: dict[Setting, dict[int, float]], teams: dict[str, str], team: str, half: int
) -> dict[int, float]:
    """What a team's setting costs in one half of the repetitions; the other half has chosen the setting.

    The minimum of several noisy medians is too low; a choice that has not seen what it is judged by is not.
    """
    chosen = min(
        (setting for setting in costs if teams[setting.contender] == team),
        key=lambda setting: median(cost for number, cost in costs[setting].items() if number % 2 != half),
    )
    return {number: cost for number, cost in costs[chosen].items() if number % 2 == half}


def _comparison(
    kind: str,
    readings: Sequence[Reading],
    depth: int | None,
    pairs: Iterable[tuple[dict[int, float], dict[int, float]]],
    names: tuple[str, str],
) -> Comparison:
    both = [(ours[number], theirs[number]) for ours, theirs in pairs for number in sorted(ours)]
    ratio = summarise_positive([theirs / ours for ours, theirs in both])
    assert isinstance(ratio, Estimate)
    return Comparison(
        kind,
        readings[0].request_bytes,
        depth,
        *names,
        ratio.value,
        ratio.low,
        ratio.high,
        len(both),
        1 / median(ours for ours, _ in both),
        1 / median(theirs for _, theirs in both),
    )


def as_csv(comparisons: Iterable[Comparison]) -> str:
    """A row for each; empty where there is no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Comparison)])
    for comparison in comparisons:
        writer.writerow(
            [f"{value:.4g}" if isinstance(value, float) else value for value in astuple(comparison)]
        )
    return text.getvalue()


def as_text(comparisons: Iterable[Comparison]) -> str:
    """A table to print: the ratio with its interval, and GB/s of both."""
    lines = []
    for one in comparisons:
        interval = "" if one.ratio_low is None else f"[{one.ratio_low:.3f}, {one.ratio_high:.3f}]"
        lines.append(
            f"{one.request_bytes >> 10:6d} KiB  {one.kind if one.depth is None else f'depth {one.depth}':<8}  "
            f"{one.ours:<14} / {one.theirs:<17} {one.ratio:6.3f} {interval:<16} "
            f"{one.our_bytes_per_s / 1e9:6.3f} / {one.their_bytes_per_s / 1e9:.3f} GB/s"
        )
    return "\n".join(lines)
