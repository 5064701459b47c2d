"""Which request size, queue depth and threads to use: pure, so that it is tested on drives with a known optimum.

    axis after axis    all values of one axis, the others as found so far, race against each other
    neighbours         once more around what was found, half and double on every axis: axes depend on each other
    duel               the fastest against the default, in passes of their own

A pass reads once with each setting that is still in the race, in random order.  Drives drift by a factor within
seconds, so settings are compared within passes only: what counts is the median over passes of the rate over that
of the incumbent in the same pass.

The default is used unless the duel decides otherwise, after at least 5 passes: the challenger must be faster by 2 % in
the median, and its gains so high that without any difference they were so in at most 5 % of cases (Wilcoxon's signed
ranks).  The passes that picked the challenger do not count here, because the winner of a race is partly lucky.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.record.read_setting import ReadSetting

MARGIN = math.log(1.02)  # of the median rate: less is not worth leaving the default for
HOPELESS = math.log(0.6)  # of the fastest in its first pass: no second try
CHANCE = 0.05
AXES_SHARE = 0.45  # of the time for the races along the axes
NEIGHBOURS_SHARE = 0.15  # of the time for the race around what they found
MAX_PASSES = 4  # of a race
MAX_DUELS = 24
MIN_DUELS = 5  # fewer cannot rule chance out

Rates = Mapping[ReadSetting, float]


@dataclass(frozen=True, slots=True)
class TuningGrid:
    """The settings that a search may try."""

    default: ReadSetting  # used unless another one is proved faster
    allowed: frozenset[ReadSetting]  # the default among them
    axes: tuple[tuple[str, ...], ...]  # in the order of the search: fields of a setting that change together


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass measured."""

    bytes_per_s: Rates  # without settings that failed, or for which no time was left
    left_share: float  # of the time for the search


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting to use, and why."""

    setting: ReadSetting
    reason: str


ReadPass = Callable[[tuple[ReadSetting, ...]], PassResult]


class _Schedule:
    """Passes in random order, and the share of the time that is left."""

    def __init__(self, read_pass: ReadPass, seed: int) -> None:
        self._read_pass = read_pass
        self._random = Random(seed)
        self.left_share = 1.0

    def run(self, settings: Iterable[ReadSetting]) -> Rates:
        """One pass over the settings."""
        order = sorted(settings, key=str)
        self._random.shuffle(order)
        result = self._read_pass(tuple(order))
        self.left_share = result.left_share
        return result.bytes_per_s


def search_settings(space: TuningGrid, read_pass: ReadPass, *, seed: int) -> Choice:
    """The setting to use; `read_pass` reads once with each setting that it is given."""
    schedule = _Schedule(read_pass, seed)
    found = space.default
    axes = [axis for axis in space.axes if len(axis_settings(space, found, axis)) > 1]
    for number, axis in enumerate(axes, start=1):
        until = 1 - AXES_SHARE * number / len(axes)
        found = _race(schedule, axis_settings(space, found, axis), incumbent=found, until_share=until)
    around = neighbours(space, found)
    until = 1 - AXES_SHARE - NEIGHBOURS_SHARE
    found = _race(schedule, around, incumbent=found, until_share=until)
    if found == space.default:
        return Choice(found, "the default: no setting was faster")
    return _compare_with_default(schedule, space.default, found)


def axis_settings(space: TuningGrid, through: ReadSetting, axis: Sequence[str]) -> tuple[ReadSetting, ...]:
    """The allowed settings that differ from `through` in the fields of `axis` only, and itself."""
    others = set(ReadSetting.model_fields) - set(axis)
    found = [
        setting
        for setting in space.allowed | {through}
        if all(getattr(setting, name) == getattr(through, name) for name in others)
    ]
    return tuple(sorted(found, key=_sizes))


def neighbours(space: TuningGrid, setting: ReadSetting) -> tuple[ReadSetting, ...]:
    """On every axis, the next smaller and the next larger one; and itself."""
    found = {setting}
    for axis in space.axes:
        along = axis_settings(space, setting, axis)
        place = along.index(setting)
        found.update(along[max(place - 1, 0) : place + 2])
    return tuple(sorted(found, key=_sizes))


def _sizes(setting: ReadSetting) -> tuple[int, int, int]:
    return setting.num_threads, setting.in_flight, setting.request_bytes


def _race(
    schedule: _Schedule, settings: Sequence[ReadSetting], *, incumbent: ReadSetting, until_share: float
) -> ReadSetting:
    """The fastest of `settings`; the incumbent where none is measurably faster in the time."""
    if len(settings) == 1 or schedule.left_share <= until_share:
        return incumbent
    passes = [_expand(schedule, settings, incumbent=incumbent)]
    running = [setting for setting in settings if setting in passes[0]]
    running = survivors(passes, running, incumbent=incumbent)
    while len(running) > 1 and schedule.left_share > until_share and len(passes) < MAX_PASSES:
        passes.append(schedule.run(running))
        running = survivors(passes, running, incumbent=incumbent)
    gains = find_gains(passes, running, incumbent=incumbent)
    fastest = max(gains, key=lambda setting: gains[setting], default=incumbent)
    return fastest if gains.get(fastest, 0.0) > MARGIN else incumbent


def _expand(schedule: _Schedule, settings: Sequence[ReadSetting], *, incumbent: ReadSetting) -> Rates:
    """The first pass: from the incumbent outwards, in each direction until a setting is hopeless."""
    place = settings.index(incumbent)
    rates = dict(schedule.run([incumbent]))
    for direction in (settings[place + 1 :], settings[:place][::-1]):
        for setting in direction:
            rates.update(schedule.run([setting]))
            if setting not in rates or math.log(rates[setting] / max(rates.values())) < HOPELESS:
                break
    return rates


def survivors(
    passes: Sequence[Rates], running: Sequence[ReadSetting], *, incumbent: ReadSetting
) -> list[ReadSetting]:
    """The settings of the next pass: after one pass all but the hopeless, then the better half; always the incumbent."""
    gains = find_gains(passes, running, incumbent=incumbent)
    ranked = sorted(gains, key=lambda setting: -gains[setting])
    if len(passes) == 1:
        kept = [setting for setting in ranked if gains[setting] > gains[ranked[0]] + HOPELESS]
    else:
        kept = ranked[: max(1, math.ceil(len(ranked) / 2))]
    return [setting for setting in running if setting in kept or setting == incumbent]


def find_gains(
    passes: Sequence[Rates], running: Sequence[ReadSetting], *, incumbent: ReadSetting
) -> dict[ReadSetting, float]:
    """log(rate / incumbent's rate in the same pass), median over passes; of those that the last pass has."""
    found = {}
    for setting in running:
        gains = [
            math.log(rates[setting] / rates[incumbent])
            for rates in passes
            if setting in rates and incumbent in rates
        ]
        if gains and setting in passes[-1]:
            found[setting] = statistics.median(gains)
    return found


def _compare_with_default(schedule: _Schedule, default: ReadSetting, challenger: ReadSetting) -> Choice:
    passes: list[Rates] = []
    while schedule.left_share > 0 and len(passes) < MAX_DUELS:
        passes.append(schedule.run((default, challenger)))
        if len(passes[-1]) < 2:
            break  # the time is over, or one of them does not work
        gains = duel_gains(passes, default, challenger=challenger)
        if len(gains) >= MIN_DUELS and statistics.median(gains) < 0:
            break  # giving up early can only keep the default
    return decide(passes, default, challenger=challenger)


def duel_gains(passes: Sequence[Rates], default: ReadSetting, *, challenger: ReadSetting) -> list[float]:
    """log(challenger's rate / default's), of each pass that read with both."""
    return [
        math.log(rates[challenger] / rates[default])
        for rates in passes
        if challenger in rates and default in rates
    ]


def decide(passes: Sequence[Rates], default: ReadSetting, *, challenger: ReadSetting) -> Choice:
    """The challenger where it is faster beyond noise, else the default."""
    gains = duel_gains(passes, default, challenger=challenger)
    if len(gains) < MIN_DUELS:
        return Choice(default, f"the default: {len(gains)} paired reads cannot rule chance out")
    wins = sum(gain > 0 for gain in gains)
    gain = statistics.median(gains)
    gained = f"{math.expm1(gain):+.0%} in the median and faster in {wins} of {len(gains)} paired reads"
    if chance_of(gains) <= CHANCE and gain >= MARGIN:
        return Choice(challenger, f"against the default {gained}")
    return Choice(default, f"the default: {challenger} was not significantly faster: {gained}")


def chance_of(gains: Sequence[float]) -> float:
    """Probability of gains as high as these where there is nothing to gain: Wilcoxon's signed ranks, one-sided."""
    from scipy.stats import wilcoxon  # half a second, which a sweep without a search need not wait for

    return float(wilcoxon(gains, alternative="greater").pvalue) if any(gains) else 1.0
