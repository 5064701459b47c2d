"""Text units, for people; everywhere else are bytes, seconds and tokens."""

import re
from decimal import Decimal

# GB is 1e9 and GiB is 2^30; case counts, because Gb would be gigabits
BYTE_UNITS = {
    "": 1,
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
SECOND_UNITS = {"ms": Decimal("0.001"), "": Decimal(1), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
MOST_BYTES = 10**24
MOST_SECONDS = 10**11
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_bytes(text: str) -> int:
    """Bytes of "4096", "1.5GB" or "200 MiB".

    Raises:
        ValueError: not a positive number with such a unit.
    """
    found = _NUMBER.fullmatch(text.strip())
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


def parse_rate(text: str) -> float:
    """Bytes per second of "100MB/s" or "1.5GiB/s".

    Raises:
        ValueError: not a positive number with such a unit.
    """
    amount, slash, per = text.strip().partition("/")
    if not slash or per.strip() != "s" or not amount.strip()[-1:].isalpha():
        raise ValueError(f"{text!r} is not a rate: write it like 100MB/s, 1.5GB/s or 200MiB/s")
    try:
        return float(parse_bytes(amount))
    except ValueError:
        raise ValueError(f"{text!r} is not a rate: write it like 100MB/s, 1.5GB/s or 200MiB/s") from None


def parse_duration(text: str) -> float:
    """Seconds of "180s", "2m", "1.5h", "500ms" or "120".

    Raises:
        ValueError: not a positive number with such a unit.
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in SECOND_UNITS or Decimal(found[1]) == 0:
        raise ValueError(f"{text!r} is not a duration: write it like 180s, 2m or 120")
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
