"""How many rounds and samples stand behind an answer: those that count, of rounds that measured both arms."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from bench.estimate.results import Crossing
from bench.estimate.valid_samples import samples_that_count
from bench.record.run import RunRecord, Sample

Rounds = dict[int, dict[int, tuple[int, int]]]  # by round, by length: samples of recompute and of load


def say_repeats(
    run: RunRecord,
    samples: Sequence[Sample],
    *,
    series: Collection[str] | None = None,
    crossings: Sequence[Crossing] = (),
) -> str:
    """Rounds, and samples of an arm in a round: "8 rounds × 5 samples"; ranges where lengths differ.

    Args:
        run: whose samples these are.
        samples: all of them.
        series: load series whose answer it is; None counts all.
        crossings: the answer.  Then the rounds count that measured on both sides of a crossing, with their samples at
            the nearest lengths there; and it is said where that is not what every length has.
    """
    arms = list(_count_arms(run, samples, series))
    everywhere = _say([at for rounds in arms for at in _by_length(rounds)])
    measured = [crossing for crossing in crossings if not crossing.extrapolated]
    if not measured:
        return everywhere
    said = _say([_around(rounds, crossing.tokens.value) for rounds in arms for crossing in measured])
    return said if said == everywhere else f"{said} around the crossing{'s' * (len(measured) != 1)}"


def _count_arms(
    run: RunRecord, samples: Sequence[Sample], series: Collection[str] | None
) -> Iterator[Rounds]:
    """Rounds of each load series that measured recompute too, of samples that answer what was asked."""
    asked = [sample for sample in samples if sample.case.suffix_tokens == run.plan.suffix_tokens]
    recompute = _count([sample for sample in asked if sample.case.arm == "recompute"])
    for name in dict.fromkeys(sample.case.series for sample in asked if sample.case.arm == "load"):
        if series is None or name in series:
            load = _count(samples_that_count(run, asked, name))
            rounds: Rounds = {}
            for number, tokens in sorted(recompute.keys() & load.keys()):
                rounds.setdefault(number, {})[tokens] = recompute[number, tokens], load[number, tokens]
            yield rounds


def _count(samples: Sequence[Sample]) -> Counter[tuple[int, int]]:
    return Counter((sample.round, sample.case.prefix_tokens) for sample in samples)


def _by_length(rounds: Rounds) -> Iterator[list[tuple[int, ...]]]:
    """The samples of each round at every length."""
    for tokens in sorted({tokens for lengths in rounds.values() for tokens in lengths}):
        yield [lengths[tokens] for lengths in rounds.values() if tokens in lengths]


def _around(rounds: Rounds, tokens: float) -> list[tuple[int, ...]]:
    """The samples of each round at its nearest lengths on both sides of `tokens`; rounds that have none are left out."""
    found: list[tuple[int, ...]] = []
    for lengths in rounds.values():
        ordered = sorted(lengths)
        below, above = bisect_right(ordered, tokens) - 1, bisect_left(ordered, tokens)
        if below >= 0 and above < len(ordered):
            found.append((*lengths[ordered[below]], *lengths[ordered[above]]))
    return found


def _say(places: Sequence[Sequence[Sequence[int]]]) -> str:
    """Of places on the length axis, each with the samples of its rounds."""
    repeats = {count for rounds in places for counts in rounds for count in counts}
    return f"{_say_range({len(rounds) for rounds in places}, 'round')} × {_say_range(repeats, 'sample')}"


def _say_range(counts: Collection[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low}{f' to {high}' if high > low else ''} {noun}{'s' * (high != 1)}"
