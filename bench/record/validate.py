"""What people type for a calculation, checked before anything is computed from it."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from kvio.errors import UserError

T = TypeVar("T")
Given = TypeVar("Given")
MIN_FIGURE, MAX_FIGURE = 1e-24, 1e24  # of anything that is bought, stored or counted per second
MAX_COUNT = 10**15  # of tokens or users: nobody has more, and beyond it figures stop being readable


class InputError(UserError, ValueError):
    """A figure that cannot be calculated with; one line that says which and what would do."""


def require_positive(name: str, value: float, *, unit: str = "") -> None:
    """Stop unless `value` is above 0 and a figure that anything can have."""
    if not value > 0 or math.isinf(value):
        raise InputError(f"{name} must be above 0{unit and ' '}{unit}, not {value:g}")
    if not MIN_FIGURE <= value <= MAX_FIGURE:
        raise InputError(
            f"{name} must be between {MIN_FIGURE:g} and {MAX_FIGURE:g}{unit and ' '}{unit}, not {value:g}"
        )


def require_count(name: str, value: int, *, most: int = MAX_COUNT) -> None:
    """Stop unless `value` is a whole number from 1 to `most`."""
    if not 1 <= value <= most:
        shown = f"{value:,}" if abs(value) <= MAX_COUNT**2 else "one of more digits than that"
        raise InputError(f"{name} must be above 0 and at most {most:,}, not {shown}")


def require_share(name: str, value: float, *, zero: bool = True) -> None:
    """Stop unless `value` is between 0 and 1; 0 itself only where `zero` allows it."""
    if not (0 <= value <= 1 and (zero or value > 0)):
        span = "between 0 and 1" if zero else "above 0 and at most 1"
        raise InputError(f"{name} must be {span}, not {value:g}")


def exact(value: float) -> Fraction:
    """The decimal that was typed: 0.1 is one tenth, so that rounding up does not see binary dust."""
    return Fraction(repr(value if isinstance(value, int) else float(value)))


def parse_counts(name: str, text: str) -> tuple[int, ...]:
    """The whole numbers in "1,1000,10_000", each above 0."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} {text!r:.80} is not whole numbers with commas; try 10000,100000") from None
    for count in counts:
        require_count(name, count)
    return counts


def parsed(read: Callable[[Given], T], text: Given | None) -> T | None:
    """Read an option as `read` does; what it refuses is a usage error."""
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        raise InputError(str(error)) from None
