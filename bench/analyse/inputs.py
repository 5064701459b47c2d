"""What people type for a calculation, checked before anything is computed from it."""

import math
from collections.abc import Sequence
from fractions import Fraction


class InputError(ValueError):
    """A figure that cannot be calculated with; one line that says which and what would do."""


def require_positive(name: str, value: float, *, unit: str = "") -> None:
    """Stop unless `value` is above 0 and finite.

    Raises:
        InputError: it is not.
    """
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be above 0{unit and ' '}{unit}, not {value:g}")


def require_share(name: str, value: float, *, zero: bool = True) -> None:
    """Stop unless `value` is between 0 and 1; 0 itself only where `zero` allows it.

    Raises:
        InputError: it is not.
    """
    if not (0 <= value <= 1 and (zero or value > 0)):
        span = "between 0 and 1" if zero else "above 0 and at most 1"
        raise InputError(f"{name} must be {span}, not {value:g}")


def exact(value: float) -> Fraction:
    """The decimal that was typed: 0.1 is one tenth, so that rounding up does not see binary dust."""
    return Fraction(repr(value if isinstance(value, int) else float(value)))


def parse_counts(name: str, text: str) -> tuple[int, ...]:
    """The whole numbers in "1,1000,10_000", each above 0.

    Raises:
        InputError: something else.
    """
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} {text!r:.80} is not whole numbers with commas; try 10000,100000") from None
    for count in counts:
        require_positive(name, count)
    return counts


def join_counts(counts: Sequence[int]) -> str:
    """The text that `parse_counts` reads."""
    return ",".join(map(str, counts))
