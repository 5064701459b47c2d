"""Equal ways to load are told apart in few tables only, and a slower one still is."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.estimate.analysis import analyse
from bench.estimate.intervals import summarise_positive
from bench.estimate.tiers import TierTable, make_tiers, within_noise
from tests.tier_sweeps import Way, make_tier_run, make_tier_samples

LAYOUTS = ("lmcache", "vllm-fs", "kvbm")
EQUAL = tuple(Way("simulated", layout, bytes_per_s=4e9) for layout in LAYOUTS)
NEAR_RECOMPUTE = tuple(replace(way, fixed_s=0.1875) for way in EQUAL)  # ties with it at 2,500
LENGTHS = tuple(1000 * n for n in range(1, 7))
NUM_ROUNDS, NOISE, SEEDS = 8, 0.03, range(40)


def _noisy_table(
    ways: Sequence[Way], seed: int, *, slower: float = 1.0, lengths: Sequence[int] = LENGTHS
) -> TierTable:
    """A sweep whose every sample has noise of its own; the last way is so many times slower."""
    rng, run = np.random.default_rng(seed), make_tier_run(ways)
    samples = []
    for sample in make_tier_samples(ways, lengths=lengths, num_rounds=NUM_ROUNDS):
        factor = float(np.exp(rng.normal(0, NOISE)))
        factor *= slower if sample.case.series == ways[-1].series else 1
        samples.append(
            replace(sample, outcome=replace(sample.outcome, seconds=sample.outcome.seconds * factor))
        )
    return make_tiers(run, samples, analyse(run, samples))


def _tells_apart(table: TierTable) -> bool:
    names = {tier.series for tier in table.tiers}
    homes = (home for home in table.homes if home.series is not None)
    left_out = any({*home.all_series, *home.undecided} != names for home in homes)
    return left_out or table.undecided != (tuple(tier.series for tier in table.tiers),)


def test_equal_ways_are_told_apart_in_one_table_of_twenty_at_most() -> None:
    assert sum(_tells_apart(_noisy_table(EQUAL, seed)) for seed in SEEDS) <= len(SEEDS) / 20


def test_of_equal_ways_those_that_are_undecided_against_recompute_are_named_beside_the_home() -> None:
    tables = [
        _noisy_table(NEAR_RECOMPUTE, seed, lengths=(2000, 2300, 2500, 2600, 2700, 3000)) for seed in SEEDS
    ]
    homes = [home for table in tables for home in table.homes]
    assert sum(home.series is not None and home.undecided != () for home in homes) > len(SEEDS) / 2
    assert sum(map(_tells_apart, tables)) <= len(SEEDS) / 20


def test_a_way_that_is_a_fifth_slower_is_told_apart_at_nearly_all_lengths() -> None:
    homes = [home for seed in range(10) for home in _noisy_table(EQUAL, seed, slower=1.2).homes]
    slow = EQUAL[-1].series
    assert sum(slow not in home.all_series for home in homes) >= 0.95 * len(homes)


def test_one_comparison_of_many_needs_more_than_its_own_interval() -> None:
    one = dict.fromkeys(range(6), 1.0)
    other = dict(enumerate((1.01, 1.02, 1.03, 1.02, 1.05, 1.06)))
    found = summarise_positive(list(other.values()))
    assert found is not None and found.low is not None and found.low > 1
    assert not within_noise(one, other, level=0.05)
    assert within_noise(one, other, level=0.05 / 12)  # t = 4.06 with 5 degrees of freedom: p = 0.0098


def test_a_wild_round_is_not_told_by_the_t_test_alone() -> None:
    one = dict.fromkeys(range(8), 1.0)
    mixed = dict(enumerate((0.99, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 0.98)))  # t says 0.003, the interval holds 1
    assert within_noise(one, mixed, level=0.05)


@pytest.mark.parametrize(("other", "same"), [(1.0, True), (1.01, False)])
def test_rounds_without_noise_tell_exactly(other: float, same: bool) -> None:
    assert within_noise(dict.fromkeys(range(6), 1.0), dict.fromkeys(range(6), other), level=1e-9) is same


def test_two_rounds_tell_nothing() -> None:
    assert within_noise({0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.1}, level=0.05)
