"""Order and number of samples in a round."""

from collections import Counter

from bench.measure.budget import fitting_lengths, samples_per_length, shuffle_round
from bench.record.sample import Case


def _groups(lengths: list[int]) -> list[list[Case]]:
    return [[Case("recompute", "recompute", n), Case("load", "load", n)] for n in lengths]


def test_every_case_is_measured_as_often_as_asked() -> None:
    passes = shuffle_round(_groups([64, 128]), num_samples={0: 3, 1: 1}, seed=5)
    counts = Counter(case for one in passes for group in one.groups for case in group)
    assert {(case.arm, case.prefix_tokens): n for case, n in counts.items()} == {
        ("recompute", 64): 3,
        ("load", 64): 3,
        ("recompute", 128): 1,
        ("load", 128): 1,
    }


def test_arms_of_one_length_are_neighbours_in_both_orders() -> None:
    firsts = set()
    for seed in range(20):
        for one in shuffle_round(_groups([64, 128, 256]), num_samples={0: 1, 1: 1, 2: 1}, seed=seed):
            for group in one.groups:
                assert len({case.prefix_tokens for case in group}) == 1
                assert {case.arm for case in group} == {"recompute", "load"}
                firsts.add(group[0].arm)
    assert firsts == {"recompute", "load"}


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    groups = _groups([64, 128, 256, 512, 1024])
    wanted = {index: 2 for index in range(5)}
    assert shuffle_round(groups, num_samples=wanted, seed=1) == shuffle_round(
        groups, num_samples=wanted, seed=1
    )
    assert shuffle_round(groups, num_samples=wanted, seed=1) != shuffle_round(
        groups, num_samples=wanted, seed=2
    )


def test_samples_are_taken_from_the_costliest_length_first() -> None:
    assert samples_per_length([0.1, 1.0, 10.0], allowance_s=20.0, most=5) == [5, 5, 1]
    assert samples_per_length([0.1, 1.0, 10.0], allowance_s=13.0, most=5) == [5, 2, 1]


def test_every_length_keeps_one_sample_even_over_the_allowance() -> None:
    assert samples_per_length([5.0, 9.0], allowance_s=1.0, most=5) == [1, 1]


def test_any_number_of_samples_is_cut_at_once() -> None:
    assert samples_per_length([1.0], allowance_s=20.0, most=10**15) == [20]


def test_only_the_front_part_that_fits_is_kept_and_never_nothing() -> None:
    assert fitting_lengths([64, 128, 256], [1.0, 2.0, 4.0], allowance_s=3.5) == (64, 128)
    assert fitting_lengths([64, 128, 256], [9.0, 18.0, 36.0], allowance_s=3.5) == (64,)
