"""Loops over block references, compiled by numba where it is installed."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

from kvio.errors import UserError

numba: Any = import_module("numba") if find_spec("numba") else None  # optional: the [reuse] extra
P = ParamSpec("P")
R = TypeVar("R")

MAX_PLAIN_REFERENCES = 1_000_000  # without numba a pass takes about 10 us per reference


class NumbaMissingError(UserError, RuntimeError):
    """The trace is too long for plain Python."""


def require_compiled(num_references: int) -> None:
    """Stop before a pass that would take minutes to hours without numba."""
    if numba is None and num_references > MAX_PLAIN_REFERENCES:
        raise NumbaMissingError(
            f"skipped: {num_references} block references need numba (limit without it: "
            f"{MAX_PLAIN_REFERENCES}). Run: pip install 'kvcross[reuse]'"
        )


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """`function` over arrays, compiled where numba is installed."""
    if numba is None:
        return function
    try:
        compiled: Callable[P, R] = numba.njit(cache=True)(function)
    except RuntimeError:  # numba finds no directory that it may write its cache to
        compiled = numba.njit(function)
    return compiled
