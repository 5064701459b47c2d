"""Numbers as a person reads them: three significant digits, one unit per cell, a missing number as a dash."""

from bench.estimate.results import Estimate
from bench.record.units import MISSING, format_tokens, round_digits, seconds_unit


def _with_bounds(estimate: Estimate, *, scale: float, unit: str) -> str:
    value = f"{round_digits(estimate.value * scale)}{unit}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{round_digits(estimate.low * scale)}–{round_digits(estimate.high * scale)}]"


def format_seconds_estimate(estimate: Estimate | None) -> str:
    """A time with its 95 % interval in brackets, all three in the value's unit."""
    if estimate is None:
        return MISSING
    scale, unit = seconds_unit(estimate.value)
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
