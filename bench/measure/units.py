"""Text units, for people; everywhere else are bytes, seconds and tokens."""

import re
from decimal import Decimal

# GB is 1e9 and GiB is 2^30; case counts, because Gb would be gigabits
BYTE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
BITS = 8
SECOND_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
MOST_BYTES = 10**24
MOST_SECONDS = 10**11
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_RATE = re.compile(r"(?P<amount>[\d.]+\s*(?:[A-Za-z]i?)?)(?P<unit>B|b|bit)(?:\s*/\s*s|ps)")


def parse_bytes(text: str) -> int:
    """Bytes of "4096B", "1.5GB" or "200 MiB"; a bare number could be anything and is none.

    Raises:
        ValueError: not a positive number with such a unit.
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is not None and not found[2]:
        raise ValueError(
            f"{text!r:.60} is not a size: it has no unit; write {found[1]:.40}B, or GB or GiB in place of B"
        )
    if found is None or found[2] not in BYTE_UNITS:
        raise ValueError(
            f"{text!r} is not a size: write a number and one of B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB"
        )
    num_bytes = int(Decimal(found[1]) * BYTE_UNITS[found[2]])
    if num_bytes == 0:
        raise ValueError(f"{text!r} is no byte at all: write a size above 0")
    if num_bytes > MOST_BYTES:
        raise ValueError(f"{text!r:.60} is more than there is anywhere: at most 1000000000 PB")
    return num_bytes


def parse_byte_count(text: str) -> int:
    """Bytes of what is named in bytes, where a bare number is a count of them: "4096" or "4KiB".

    Raises:
        ValueError: not a positive number, or one with another unit.
    """
    return parse_bytes(f"{text.strip()}B" if text.strip().isdecimal() else text)


def parse_rate(text: str) -> float:
    """Bytes per second of "100MB/s", "1.5GiB/s" or, in bits, "80Gb/s", "80Gbit/s", "80Gbps".

    Raises:
        ValueError: not a positive number with such a unit.
    """
    found = _RATE.fullmatch(text.strip())
    try:
        amount = parse_bytes("" if found is None else f"{found['amount']}B")
    except ValueError:
        raise ValueError(
            f"{text!r:.60} is not a rate: write it like 100MB/s, 1.5GB/s or 200MiB/s, or in bits like 80Gb/s"
        ) from None
    bytes_per_s = amount / (1 if found is None or found["unit"] == "B" else BITS)
    if bytes_per_s < 1:
        raise ValueError(f"{text!r:.60} is less than a byte per second")
    return bytes_per_s


def parse_duration(text: str) -> float:
    """Seconds of "180s", "2m", "1.5h" or "500ms"; a bare number could be anything and is none.

    Raises:
        ValueError: not a positive number with such a unit.
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is not None and not found[2]:
        number = f"{found[1]:.40}"
        raise ValueError(
            f"{text!r:.60} is not a duration: it has no unit; write {number}s, {number}m or {number}h"
        )
    if found is None or found[2] not in SECOND_UNITS or Decimal(found[1]) == 0:
        raise ValueError(f"{text!r:.60} is not a duration: write it like 500ms, 180s, 2m or 24h")
    seconds = Decimal(found[1]) * SECOND_UNITS[found[2]]
    if seconds > MOST_SECONDS:
        raise ValueError(f"{text!r:.60} is longer than {MOST_SECONDS} seconds")
    return float(seconds)


def format_bytes(num_bytes: float) -> str:
    """Decimal units, three digits: "1.50 GB"."""
    for unit in ("TB", "GB", "MB", "kB"):
        if num_bytes >= 0.9995 * BYTE_UNITS[unit]:
            return f"{_three_digits(num_bytes / BYTE_UNITS[unit])} {unit}"
    return f"{num_bytes:.0f} B"


def format_rate(bytes_per_s: float) -> str:
    """Decimal units, three digits: "1.50 GB/s"."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_seconds(seconds: float) -> str:
    """Three digits and a fitting unit: "850 ms", "12.3 s"; minutes and seconds above two minutes."""
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def format_tokens(num_tokens: float) -> str:
    """Whole tokens with thousands set apart: "16,384"."""
    return f"{num_tokens:,.0f}"


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
