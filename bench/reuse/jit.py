"""Loops over block references, compiled by numba when it is installed, else run as the same plain Python."""

from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import numpy as np

from kvio.errors import UserError

numba: Any = import_module("numba") if find_spec("numba") else None  # optional: the [reuse] extra
P = ParamSpec("P")
R = TypeVar("R")

MAX_PLAIN_REFERENCES = 10_000_000  # plain Python needs about 2 us per reference and pass


class NumbaMissingError(UserError, RuntimeError):
    """The trace is too long for plain Python."""


def require_compiled(num_references: int) -> None:
    """Stop before a pass that would take plain Python minutes to hours."""
    if numba is None and num_references > MAX_PLAIN_REFERENCES:
        raise NumbaMissingError(
            f"skipped: {num_references} block references need numba (plain Python stops at "
            f"{MAX_PLAIN_REFERENCES}): pip install 'kvcross[reuse]'"
        )


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """A step that only kernels call."""
    if numba is None:
        return function
    try:
        compiled: Callable[P, R] = numba.njit(cache=True)(function)
    except RuntimeError:  # numba finds no directory that it may write its cache to
        compiled = numba.njit(function)
    return compiled


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """A loop over arrays, which may write into them; without numba it runs on lists, which is 3x faster."""
    if numba is not None:
        return inner(function)

    @wraps(function)
    def run_on_lists(*args: P.args, **kwargs: P.kwargs) -> R:
        lists = [_to_lists(argument) for argument in args]
        result = function(*lists, **kwargs)
        for argument, changed in zip(args, lists, strict=True):
            _write_back(argument, changed)
        return result

    return run_on_lists


def _to_lists(argument: Any) -> Any:  # noqa: ANN401
    if isinstance(argument, np.ndarray):
        return argument.tolist()
    if isinstance(argument, tuple):
        return type(argument)(*map(_to_lists, argument))
    return argument


def _write_back(argument: Any, changed: Any) -> None:  # noqa: ANN401
    if isinstance(argument, np.ndarray):
        if argument.flags.writeable:
            argument[:] = changed
    elif isinstance(argument, tuple):
        pairs: Iterable[tuple[Any, Any]] = zip(argument, changed, strict=True)
        for part, new in pairs:
            _write_back(part, new)
