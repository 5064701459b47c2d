"""Text units, for people; everywhere else are bytes, seconds and tokens."""

import re
from decimal import Decimal
from math import floor, inf, isfinite, log10
from unicodedata import category

MISSING = "—"
UNBOUNDED = {inf: "∞", -inf: "−∞"}
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
MAX_BYTES = 10**24
MAX_SECONDS = 10**11
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_RATE = re.compile(r"(?P<amount>[\d.]+\s*(?:[A-Za-z]i?)?)(?P<unit>B|b|bit)(?:\s*/\s*s|ps)")


def parse_bytes(text: str) -> int:
    """Bytes of "4096B", "1.5GB" or "200 MiB"; a bare number could be anything and is none."""
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
    if num_bytes > MAX_BYTES:
        raise ValueError(f"{text!r:.60} is more than there is anywhere: at most 1000000000 PB")
    return num_bytes


def parse_byte_count(text: str) -> int:
    """Bytes of what is named in bytes, where a bare number is a count of them: "4096" or "4KiB"."""
    return parse_bytes(f"{text.strip()}B" if text.strip().isdecimal() else text)


def parse_rate(text: str) -> float:
    """Bytes per second of "100MB/s", "1.5GiB/s" or, in bits, "80Gb/s", "80Gbit/s", "80Gbps"."""
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
    """Seconds of "180s", "2m", "1.5h" or "500ms"; a bare number could be anything and is none."""
    found = _NUMBER.fullmatch(text.strip())
    if found is not None and not found[2]:
        number = f"{found[1]:.40}"
        raise ValueError(
            f"{text!r:.60} is not a duration: it has no unit; write {number}s, {number}m or {number}h"
        )
    if found is None or found[2] not in SECOND_UNITS or Decimal(found[1]) == 0:
        raise ValueError(f"{text!r:.60} is not a duration: write it like 500ms, 180s, 2m or 24h")
    seconds = Decimal(found[1]) * SECOND_UNITS[found[2]]
    if seconds > MAX_SECONDS:
        raise ValueError(f"{text!r:.60} is longer than {MAX_SECONDS} seconds")
    return float(seconds)


def round_digits(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, no exponent, thousands separated."""
    if value == 0:
        return "0"
    if not isfinite(value):
        return UNBOUNDED.get(value, MISSING)
    decimals = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, decimals)
    if rounded != 0:
        # rounding may have carried into the next power of ten: 0.9996 -> 1.00, not 1.000
        decimals = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def format_tokens(tokens: float | None) -> str:
    """Whole tokens with thousands separators."""
    if tokens is None or not isfinite(tokens):
        return MISSING if tokens is None else UNBOUNDED.get(tokens, MISSING)
    return f"{round(tokens):,}"


def seconds_unit(seconds: float) -> tuple[float, str]:
    """Scale and unit in which a time is written."""
    return (1.0, "s") if abs(seconds) >= 0.9995 else (1e3, "ms")


def format_seconds(seconds: float | None) -> str:
    """Seconds from 1 s on, milliseconds below."""
    if seconds is None:
        return MISSING
    scale, unit = seconds_unit(seconds)
    return f"{round_digits(seconds * scale)} {unit}"


def format_tick_seconds(seconds: float) -> str:
    """Seconds as an axis says them: no trailing zeros."""
    scale, unit = seconds_unit(seconds)
    return f"{seconds * scale:.3g} {unit}"


def format_rate(bytes_per_s: float | None) -> str:
    """Decimal B/s, kB/s, MB/s, GB/s, TB/s (1 GB = 1e9 bytes)."""
    return MISSING if bytes_per_s is None else f"{format_bytes(bytes_per_s)}/s"


def format_bytes(num_bytes: float | None) -> str:
    """Decimal bytes: B, kB, MB, GB, TB."""
    if num_bytes is None:
        return MISSING
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(num_bytes) >= scale * 0.9995:
            return f"{round_digits(num_bytes / scale)} {unit}"
    return f"{round(num_bytes)} B"


def format_share(share: float | None) -> str:
    """A share of one in percent."""
    return MISSING if share is None else f"{round_digits(share * 100)} %"


def format_token_range(bounds: tuple[int, int] | None) -> str:
    """A closed range of lengths."""
    return MISSING if bounds is None else f"{format_tokens(bounds[0])} to {format_tokens(bounds[1])} tokens"


def printable(text: str) -> str:
    """`text` without control characters, so that a name cannot drive a terminal or split a log line."""
    return "".join(" " if character in "\t\r\n" else character for character in text if _harmless(character))


def _harmless(character: str) -> bool:
    return character in "\t\r\n" or category(character) not in {"Cc", "Cf", "Cs"}


def format_fact(value: object) -> str:
    """Any value of a facts dict as text; missing is said, booleans are words."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else round_digits(value, 4)
    if isinstance(value, (list, tuple, set)):
        return ", ".join(format_fact(item) for item in value) or MISSING
    return printable(str(value))


def count_of(number: int, noun: str) -> str:
    """A number of things: "1 request", "2,000 requests"."""
    return f"{format_tokens(number)} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Seconds in the largest fitting unit up to days."""
    for scale, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * scale:
            return f"{round_digits(seconds / scale)} {unit}"
    return f"{round_digits(seconds)} s"
