"""Text units: GB is 1e9, GiB is 2^30, and what is neither is refused in one line."""

from collections.abc import Callable

import pytest

from bench.record.units import (
    format_bytes,
    format_rate,
    format_tokens,
    parse_byte_count,
    parse_bytes,
    parse_duration,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096B", 4096),
        ("1B", 1),
        ("1.5GB", 1_500_000_000),
        ("1.5 GiB", 1_610_612_736),
        ("200MiB", 209_715_200),
        ("64KiB", 65536),
        ("64kB", 64000),
        ("0.1GB", 100_000_000),
        ("2TB", 2_000_000_000_000),
    ],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "GB", "4096", "10Gb", "10gb", "-1GB", "1e9", "1,5GB", "1GB/s", "0", "0.1B", "nan"]
)
def test_what_is_no_size_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="write") as refusal:
        parse_bytes(text)
    assert "\n" not in str(refusal.value)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100MB/s", 1e8),
        ("1.5GB/s", 1.5e9),
        ("200MiB/s", 200 * 2**20),
        (" 2 GB / s ", 2e9),
        ("7B/s", 7.0),
        ("2GBps", 2e9),
    ],
)
def test_rates_are_read(text: str, expected: float) -> None:
    assert parse_rate(text) == expected


@pytest.mark.parametrize("text", ["80Gb/s", "80Gbps", "80 Gbit/s", "80000 Mb / s"])
def test_rates_in_bits_are_an_eighth_in_bytes(text: str) -> None:
    assert parse_rate(text) == 10e9


def test_a_rate_of_less_than_a_byte_is_refused() -> None:
    assert parse_rate("8b/s") == 1
    with pytest.raises(ValueError, match="less than a byte per second"):
        parse_rate("7b/s")


@pytest.mark.parametrize(
    "text",
    [
        "100MB",
        "100",
        "100/s",
        "100mb/s",
        "1.2.3GB/s",
        "10gbps",
        "80Gbitps/s",
        "100MB/h",
        "/s",
        "fast",
        "0MB/s",
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate: write it like 100MB/s"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("180s", 180.0), ("2m", 120.0), ("120 s", 120.0), ("1.5h", 5400.0), ("500ms", 0.5)],
)
def test_durations_are_read(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "2 days", "-3s", "0s", "1m30s", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write it like 500ms, 180s, 2m or 24h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (4096, "4.10 kB"),
        (999_999, "1.00 MB"),
        (1.5e9, "1.50 GB"),
        (123.4e9, "123 GB"),
        (2e15, "2,000 TB"),
    ],
)
def test_sizes_are_written_in_decimal_units(num_bytes: float, expected: str) -> None:
    assert format_bytes(num_bytes) == expected
    assert format_rate(num_bytes) == expected + "/s"


def test_tokens_are_written_whole() -> None:
    assert [format_tokens(value) for value in (512, 16384, 1234.6)] == ["512", "16,384", "1,235"]


def test_sizes_and_times_beyond_everything_are_refused_in_one_line() -> None:
    assert parse_bytes("1000000000PB") == 10**24
    with pytest.raises(ValueError, match="more than there is anywhere"):
        parse_bytes("1000000001PB")
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate("9" * 400 + "GB/s")
    with pytest.raises(ValueError, match="longer than 100000000000 seconds"):
        parse_duration("9" * 400 + "s")


@pytest.mark.parametrize(
    ("parse", "says"),
    [
        (parse_bytes, "'24' is not a size: it has no unit; write 24B, or GB or GiB in place of B"),
        (parse_duration, "'24' is not a duration: it has no unit; write 24s, 24m or 24h"),
        (parse_rate, "'24' is not a rate: write it like 100MB/s"),
    ],
)
def test_a_bare_number_is_refused_with_what_to_write(parse: Callable[[str], float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse("24")


def test_what_is_named_in_bytes_may_be_a_bare_count_of_them() -> None:
    assert [parse_byte_count(text) for text in ("4096", "4KiB")] == [4096, 4096]
    with pytest.raises(ValueError, match="is not a size: write a number"):
        parse_byte_count("1e9")
