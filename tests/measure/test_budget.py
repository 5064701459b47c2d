"""What a case is expected to cost."""

from collections import Counter

import pytest

from bench.measure.budget import CostBook, fitting_lengths, samples_per_length, shuffle_round
from bench.record.sample import Case


def _case(tokens: int, series: str = "recompute") -> Case:
    return Case("recompute", series, tokens)


def test_a_measured_case_costs_the_median_of_what_it_cost() -> None:
    book = CostBook(prior_s=lambda case: 99.0)
    for wall_s in (1.0, 8.0, 2.0):
        book.add(_case(64), wall_s)
    assert book.expected_s(_case(64)) == 2.0


def test_a_series_never_measured_costs_its_prior() -> None:
    book = CostBook(prior_s=lambda case: case.prefix_tokens / 10)
    book.add(_case(64), 1.0)
    assert book.expected_s(_case(64, "load")) == 6.4


def test_longer_cases_cost_more_than_in_proportion_and_shorter_ones_in_proportion() -> None:
    book = CostBook(prior_s=lambda case: 0.0)
    book.add(_case(100), 1.0)
    assert book.expected_s(_case(50)) == pytest.approx(0.5)
    assert book.expected_s(_case(200)) == pytest.approx(2**1.2)


def test_the_startup_of_a_process_is_the_median_seen() -> None:
    book = CostBook(prior_s=lambda case: 0.0)
    assert book.startup_s == 0.0
    for seconds in (3.0, 1.0, 2.0):
        book.add_startup(seconds)
    assert book.startup_s == 2.0


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


def test_any_length_may_be_the_first_of_a_pass() -> None:
    wanted = {0: 1, 1: 1, 2: 1}
    passes = [shuffle_round(_groups([64, 128, 256]), num_samples=wanted, seed=seed)[0] for seed in range(20)]
    assert {one.groups[0][0].prefix_tokens for one in passes} == {64, 128, 256}


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
