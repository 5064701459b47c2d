"""Which request size, queue depth and threads to use: pure, so that it is tested on drives with a known optimum.

    axis after axis    all values of one axis, the others as found so far, race against each other
    neighbours         once more around what was found, half and double on every axis: axes depend on each other
    duel               the fastest against the default, in passes of their own

A pass reads once with each setting that is still in the race, in random order.  Drives drift by a factor within
seconds, so settings are compared within passes only: what counts is the median over passes of the rate over that
of the incumbent in the same pass.

The default is used unless the duel says otherwise, after 5 passes at least: the challenger must be faster by 2 % in
the median, and its gains so high that without any difference they were so in at most 5 % of cases (Wilcoxon's signed
ranks).  The passes that picked the challenger do not count here, for whoever is picked as the fastest was lucky too.
"""

import math
import statistics
from collections.abc import Generator, Iterable, Mapping, Sequence
from random import Random

from bench.record.progress import Choice, PassOver, SearchSpace
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
Search = Generator[tuple[ReadSetting, ...], PassOver, Choice]
Race = Generator[tuple[ReadSetting, ...], PassOver, ReadSetting]


class _Course:
    """Random order, and the share of the time that is left."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.left_share = 1.0

    def run(self, settings: Iterable[ReadSetting]) -> Generator[tuple[ReadSetting, ...], PassOver, Rates]:
        """One pass over the settings."""
        order = sorted(settings, key=str)
        self._random.shuffle(order)
        over = yield tuple(order)
        self.left_share = over.left_share
        return over.bytes_per_s


def search_settings(space: SearchSpace, *, seed: int) -> Search:
    """The search as a policy: gives passes, is sent their rates, returns the choice."""
    course = _Course(seed)
    found = space.default
    axes = [axis for axis in space.axes if len(line(space, found, axis)) > 1]
    for number, axis in enumerate(axes, start=1):
        until = 1 - AXES_SHARE * number / len(axes)
        found = yield from _race(course, line(space, found, axis), incumbent=found, until_share=until)
    around = neighbours(space, found)
    until = 1 - AXES_SHARE - NEIGHBOURS_SHARE
    found = yield from _race(course, around, incumbent=found, until_share=until)
    if found == space.default:
        return Choice(found, "the default, for nothing was seen to be faster")
    return (yield from _duel(course, space.default, found))


def line(space: SearchSpace, through: ReadSetting, axis: Sequence[str]) -> tuple[ReadSetting, ...]:
    """The allowed settings that differ from `through` in the fields of `axis` only, and itself."""
    others = set(ReadSetting.model_fields) - set(axis)
    found = [
        setting
        for setting in space.allowed | {through}
        if all(getattr(setting, name) == getattr(through, name) for name in others)
    ]
    return tuple(sorted(found, key=_sizes))


def neighbours(space: SearchSpace, setting: ReadSetting) -> tuple[ReadSetting, ...]:
    """On every axis, the next smaller and the next larger one; and itself."""
    found = {setting}
    for axis in space.axes:
        along = line(space, setting, axis)
        place = along.index(setting)
        found.update(along[max(place - 1, 0) : place + 2])
    return tuple(sorted(found, key=_sizes))


def _sizes(setting: ReadSetting) -> tuple[int, int, int]:
    return setting.num_threads, setting.in_flight, setting.request_bytes


def _race(
    course: _Course, settings: Sequence[ReadSetting], *, incumbent: ReadSetting, until_share: float
) -> Race:
    """The fastest of `settings`, as far as it can be told in time; the incumbent where none is faster."""
    if len(settings) == 1 or course.left_share <= until_share:
        return incumbent
    passes = [(yield from _reach(course, settings, incumbent=incumbent))]
    running = [setting for setting in settings if setting in passes[0]]
    running = survivors(passes, running, incumbent=incumbent)
    while len(running) > 1 and course.left_share > until_share and len(passes) < MAX_PASSES:
        passes.append((yield from course.run(running)))
        running = survivors(passes, running, incumbent=incumbent)
    gains = find_gains(passes, running, incumbent=incumbent)
    fastest = max(gains, key=lambda setting: gains[setting], default=incumbent)
    return fastest if gains.get(fastest, 0.0) > MARGIN else incumbent


def _reach(
    course: _Course, settings: Sequence[ReadSetting], *, incumbent: ReadSetting
) -> Generator[tuple[ReadSetting, ...], PassOver, Rates]:
    """The first pass: from the incumbent outwards, as far as it is not hopeless to go on."""
    place = settings.index(incumbent)
    rates = dict((yield from course.run([incumbent])))
    for direction in (settings[place + 1 :], settings[:place][::-1]):
        for setting in direction:
            rates.update((yield from course.run([setting])))
            if setting not in rates or math.log(rates[setting] / max(rates.values())) < HOPELESS:
                break
    return rates


def survivors(
    passes: Sequence[Rates], running: Sequence[ReadSetting], *, incumbent: ReadSetting
) -> list[ReadSetting]:
    """Who goes on: after one pass all but the hopeless, then the better half; the incumbent always."""
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


def _duel(course: _Course, default: ReadSetting, challenger: ReadSetting) -> Search:
    passes: list[Rates] = []
    while course.left_share > 0 and len(passes) < MAX_DUELS:
        passes.append((yield from course.run((default, challenger))))
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
        return Choice(
            default, f"the default, for {len(gains)} paired reads cannot tell a faster one from chance"
        )
    wins = sum(gain > 0 for gain in gains)
    gain = statistics.median(gains)
    said = f"{math.expm1(gain):+.0%} in the median and faster in {wins} of {len(gains)} paired reads"
    if chance_of(gains) <= CHANCE and gain >= MARGIN:
        return Choice(challenger, f"against the default {said}")
    return Choice(default, f"the default, for {challenger} was no faster beyond noise: {said}")


def chance_of(gains: Sequence[float]) -> float:
    """Probability of gains as high as these where there is nothing to gain: Wilcoxon's signed ranks, one-sided."""
    from scipy.stats import wilcoxon  # half a second, which a sweep without a search need not wait for

    return float(wilcoxon(gains, alternative="greater").pvalue) if any(gains) else 1.0
