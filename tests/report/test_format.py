import math

import pytest

from bench.estimate.results import Estimate
from bench.record.units import (
    format_bytes,
    format_fact,
    format_rate,
    format_seconds,
    format_tokens,
    printable,
    round_digits,
)
from bench.report.text.format import format_ratio_estimate, format_seconds_estimate, format_tokens_estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.23456, "1.23"),
        (12.345, "12.3"),
        (123.4, "123"),
        (1234.5, "1,230"),
        (0.00123456, "0.00123"),
        (0.9996, "1.00"),
        (9.996, "10.0"),
        (99.96, "100"),
        (0, "0"),
        (-1.5, "-1.50"),
        (math.inf, "∞"),
    ],
)
def test_three_digits_are_shown_and_carried(value: float, text: str) -> None:
    assert round_digits(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.0, "1.00 s"),
        (0.9996, "1.00 s"),
        (0.9994, "999 ms"),
        (0.0421, "42.1 ms"),
        (75.0, "75.0 s"),
        (None, "—"),
    ],
)
def test_seconds_become_milliseconds_below_one(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


def test_an_interval_shares_the_unit_of_its_value() -> None:
    assert format_seconds_estimate(Estimate(1.01, 0.98, 1.04)) == "1.01 s [0.980–1.04]"


def test_a_value_without_an_interval_shows_none() -> None:
    assert format_seconds_estimate(Estimate(0.5)) == "500 ms"
    assert format_tokens_estimate(Estimate(12345.6)) == "12,346"


def test_missing_is_a_dash_and_never_zero() -> None:
    assert {format_seconds(None), format_rate(None), format_bytes(None), format_tokens(None)} == {"—"}
    assert {format_ratio_estimate(None), format_tokens_estimate(None), format_fact(None)} == {"—"}


def test_bytes_are_decimal() -> None:
    assert [format_bytes(n) for n in (999, 1_000, 2**30, 3_840_000_000_000)] == [
        "999 B",
        "1.00 kB",
        "1.07 GB",
        "3.84 TB",
    ]
    assert format_rate(7.1e9) == "7.10 GB/s"


def test_an_interval_without_end_is_said() -> None:
    assert format_tokens_estimate(Estimate(4096.0, 0.0, math.inf)) == "4,096 [0–∞]"
    assert format_seconds_estimate(Estimate(2.0, 0.1, math.inf)) == "2.00 s [0.100–∞]"


def test_a_name_cannot_drive_a_terminal() -> None:
    assert printable("a\x1b[31mb\nc\u202ed\x00") == "a[31mb cd"


def test_facts_are_words() -> None:
    assert [format_fact(v) for v in (True, False, ["a", None], 1.23456)] == ["yes", "no", "a, —", "1.235"]
