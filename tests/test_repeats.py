"""Rounds and samples behind an answer are those that count, at the lengths that decide it."""

from dataclasses import replace

from bench.estimate.analysis import analyse
from bench.estimate.results import Crossing, Estimate
from bench.record.sample import Sample
from bench.report.figures.crossover_figure import caption
from bench.report.text.sentence import describe_answer, say_repeats
from tests.sweeps import make_run, make_samples
from tests.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples

CROSSING = Crossing(Estimate(7208.0), (4096, 8192), load_wins_beyond=True)


def _thinned() -> list[Sample]:
    """Six rounds of three samples, but two rounds of load at 4,096 tokens and two samples of recompute there."""
    return [
        s
        for s in make_samples()
        if s.case.prefix_tokens != 4096 or (s.round < 2 if s.case.arm == "load" else s.sample < 2)
    ]


def test_equal_rounds_and_samples_are_said_once() -> None:
    assert say_repeats(make_run(), make_samples()) == "6 rounds × 3 samples"
    assert say_repeats(make_run(), make_samples(), crossings=(CROSSING,)) == "6 rounds × 3 samples"
    assert say_repeats(make_run(), make_samples(num_rounds=1, num_samples=1)) == "1 round × 1 sample"
    assert say_repeats(make_run(), []) == "0 rounds × 0 samples"


def test_lengths_that_differ_give_a_range_and_a_crossing_its_own_lengths() -> None:
    run, samples = make_run(), _thinned()
    assert say_repeats(run, samples) == "2 to 6 rounds × 2 to 3 samples"
    # the rounds without load at 4,096 tokens have 2,048 and 8,192 around the crossing
    near = say_repeats(run, samples, crossings=(CROSSING,))
    assert near == "6 rounds × 2 to 3 samples around the crossing"
    far = replace(CROSSING, tokens=Estimate(12_000.0))
    assert say_repeats(run, samples, crossings=(far,)) == "6 rounds × 3 samples around the crossing"
    assert say_repeats(run, samples, crossings=(far, far)).endswith(" around the crossings")


def test_rounds_that_lie_on_one_side_of_the_crossing_tell_nothing_of_it() -> None:
    between = replace(CROSSING, tokens=Estimate(2950.0))
    samples = [s for s in make_samples() if s.case.prefix_tokens in {2048, 4096} or s.round < 1]
    said = say_repeats(make_run(), samples, crossings=(between,))
    assert said == "6 rounds × 3 samples around the crossing"
    assert (
        say_repeats(make_run(), samples, crossings=(CROSSING,)) == "1 round × 3 samples around the crossing"
    )
    outside = replace(CROSSING, extrapolated=True)
    assert say_repeats(make_run(), samples, crossings=(outside,)) == "1 to 6 rounds × 3 samples"


def test_samples_that_do_not_count_and_rounds_of_one_arm_alone_are_not_counted() -> None:
    samples = [
        replace(s, outcome=replace(s.outcome, verified=False)) if s.case.arm == "load" and s.round == 0 else s
        for s in make_samples(num_rounds=4)
        if s.case.arm == "load" or s.round != 1
    ]
    assert say_repeats(make_run(), samples) == "2 rounds × 3 samples"


def test_a_series_has_its_own_rounds() -> None:
    run = make_tier_run((MEMORY, DISK))
    samples = [s for s in make_tier_samples((MEMORY, DISK)) if s.case.series != DISK.series or s.round < 4]
    assert say_repeats(run, samples, series={DISK.series}) == "4 rounds × 1 sample"
    assert say_repeats(run, samples, series={MEMORY.series}) == "6 rounds × 1 sample"
    analysis = analyse(run, samples)
    assert "4 to 6 rounds × 1 sample" in caption(run, samples, analysis)
    assert ", 6 rounds × 1 sample)" in describe_answer(run, samples, analysis)


def test_samples_of_another_question_are_not_counted() -> None:
    samples = [*make_tier_samples((DISK,)), *make_tier_samples((DISK,), num_rounds=3, suffix_tokens=64)]
    assert say_repeats(make_tier_run((DISK,)), samples) == "6 rounds × 1 sample"
    assert say_repeats(make_tier_run((DISK,), suffix_tokens=64), samples) == "3 rounds × 1 sample"
