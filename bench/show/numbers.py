"""Numbers as a person reads them: three significant digits, one unit per cell, missing said as such."""

from math import floor, inf, isfinite, log10
from unicodedata import category

from bench.analyse.answer import Estimate

MISSING = "—"
UNBOUNDED = {inf: "∞", -inf: "−∞"}


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


def _seconds_unit(seconds: float) -> tuple[float, str]:
    return (1.0, "s") if abs(seconds) >= 0.9995 else (1e3, "ms")


def format_seconds(seconds: float | None) -> str:
    """Seconds from 1 s on, milliseconds below."""
    if seconds is None:
        return MISSING
    scale, unit = _seconds_unit(seconds)
    return f"{round_digits(seconds * scale)} {unit}"


def format_tick_seconds(seconds: float) -> str:
    """Seconds as an axis says them: no trailing zeros."""
    scale, unit = _seconds_unit(seconds)
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


def _with_bounds(estimate: Estimate, *, scale: float, unit: str) -> str:
    value = f"{round_digits(estimate.value * scale)}{unit}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{round_digits(estimate.low * scale)}–{round_digits(estimate.high * scale)}]"


def format_seconds_estimate(estimate: Estimate | None) -> str:
    """A time with its 95 % interval in brackets, all three in the value's unit."""
    if estimate is None:
        return MISSING
    scale, unit = _seconds_unit(estimate.value)
    return _with_bounds(estimate, scale=scale, unit=f" {unit}")


def format_rate_estimate(estimate: Estimate | None) -> str:
    """A rate in GB/s, the unit left to the column, with its 95 % interval in brackets."""
    return MISSING if estimate is None else _with_bounds(estimate, scale=1e-9, unit="")


def format_ratio_estimate(estimate: Estimate | None) -> str:
    """recompute_s / load_s with its 95 % interval in brackets."""
    return MISSING if estimate is None else _with_bounds(estimate, scale=1.0, unit="")


def format_tokens_estimate(estimate: Estimate | None) -> str:
    """Tokens with their 95 % interval in brackets."""
    if estimate is None:
        return MISSING
    if estimate.low is None or estimate.high is None:
        return format_tokens(estimate.value)
    low, high = format_tokens(estimate.low), format_tokens(estimate.high)
    return f"{format_tokens(estimate.value)} [{low}–{high}]"


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
