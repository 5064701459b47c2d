"""What a case is expected to cost."""

import pytest

from bench.measure.budget import CostBook
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
