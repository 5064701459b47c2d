"""How many rounds and samples stand behind an answer: those that count, of rounds that measured both arms."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from bench.analyse.answer import Crossing
from bench.analyse.select import samples_that_count
from bench.measure.record import RunRecord, Sample

Place = tuple[int, int]  # prefix tokens and round


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
        crossings: where the answer is; only the lengths around them count then, and it is said where others have
            more or fewer.
    """
    arms = list(_count_arms(run, samples, series))
    everywhere = _say(arms)
    measured = [crossing for crossing in crossings if not crossing.extrapolated]
    if not measured:
        return everywhere
    lengths = sorted({tokens for recompute, load in arms for tokens, _ in recompute.keys() & load.keys()})
    near = {tokens for crossing in measured for tokens in _around(lengths, crossing.bracket)}
    said = _say([(_at(recompute, near), _at(load, near)) for recompute, load in arms])
    return said if said == everywhere else f"{said} around the crossing{'s' * (len(measured) != 1)}"


def _count_arms(
    run: RunRecord, samples: Sequence[Sample], series: Collection[str] | None
) -> Iterator[tuple[Counter[Place], Counter[Place]]]:
    """Samples of recompute and of each load series by length and round, of those that answer what was asked."""
    asked = [sample for sample in samples if sample.case.suffix_tokens == run.plan.suffix_tokens]
    recompute = _count([sample for sample in asked if sample.case.arm == "recompute"])
    for name in dict.fromkeys(sample.case.series for sample in asked if sample.case.arm == "load"):
        if series is None or name in series:
            yield recompute, _count(samples_that_count(run, asked, name))


def _count(samples: Sequence[Sample]) -> Counter[Place]:
    return Counter((sample.case.prefix_tokens, sample.round) for sample in samples)


def _at(counts: Counter[Place], lengths: Collection[int]) -> Counter[Place]:
    return Counter({place: count for place, count in counts.items() if place[0] in lengths})


def _around(lengths: Sequence[int], bracket: tuple[int, int]) -> Sequence[int]:
    """The lengths from the last that is not above the bracket to the first that is not below it."""
    return lengths[max(bisect_right(lengths, bracket[0]) - 1, 0) : bisect_left(lengths, bracket[1]) + 1]


def _say(arms: Sequence[tuple[Counter[Place], Counter[Place]]]) -> str:
    rounds: set[int] = set()
    repeats: set[int] = set()
    for recompute, load in arms:
        both = recompute.keys() & load.keys()
        rounds.update(Counter(tokens for tokens, _ in both).values())
        repeats.update(counts[place] for counts in (recompute, load) for place in both)
    return f"{_say_range(rounds, 'round')} × {_say_range(repeats, 'sample')}"


def _say_range(counts: Collection[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low}{f' to {high}' if high > low else ''} {noun}{'s' * (high != 1)}"
