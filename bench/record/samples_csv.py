"""Rows of `samples.csv` as text: taken apart, whole or not, and whether anything can have been measured so."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

MOST_SECONDS = 1e9  # 30 years
MOST_TOKENS = 1 << 31  # a thousand times the longest context of any model of 2025
MOST_BYTES = 1e15  # beyond any host's memory
MOST_BYTES_PER_S = (
    1e13  # of a load that moves bytes; the memory of a GPU of 2025 gives 8e12 (NVIDIA B200, datasheet)
)
MOST_CHARACTERS = 100_000  # of a row; those of long series names and texts have a thousand
NOTHING_MOVED = "null"  # the data path that moves no bytes, and so has no rate
COUNTS = ("round", "order", "sample", "suffix_tokens", "num_bytes", "num_requests", "request_bytes")


class RowError(ValueError):
    """A line is not a row; the message says why."""


def say_cell(value: object) -> str:
    """A value as `samples.csv` has it; missing is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return ";".join(value)
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True)
    return str(value)


def split_row(line: str, num_columns: int) -> list[str]:
    """The cells of a line.

    Raises:
        RowError: it has fewer or more than `num_columns`, or what no text file has.
    """
    try:
        (cells,) = csv.reader([line], strict=True)
    except csv.Error as error:
        raise RowError(f"the line is incomplete ({error})") from None
    if "\0" in line or len(cells) < num_columns:
        raise RowError(f"the line is incomplete ({len(cells)} of {num_columns} cells)")
    if len(cells) > num_columns:
        raise RowError(f"the line has {len(cells)} cells for {num_columns} columns")
    return cells


def cut_half_line(text: str) -> str:
    """`text` without a last line that a kill or a crash left incomplete: without its end, or short of cells.

    Raises:
        RowError: what stands there is longer than any row, so that something else has written it.
    """
    whole, newline, rest = text.rpartition("\n")
    if len(rest) > MOST_CHARACTERS:
        raise RowError(
            f"the last line has {len(rest)} characters and no end, which no row has; delete that line"
        )
    header, _, rows = whole.partition("\n")
    if rest or not rows:
        return whole + newline
    before, between, last = whole.rpartition("\n")
    try:
        split_row(last.removesuffix("\r"), len(header.split(",")))
    except RowError as error:
        return before + between if "incomplete" in str(error) else text
    return text


def parse_cell(text: str, hint: object) -> object:
    """The value of a cell of this type; empty is None.

    Raises:
        ValueError, KeyError: it is none.
    """
    described = str(hint)
    if hint is float or hint is int:
        return hint(text)
    if "tuple" in described:
        return tuple(text.split(";")) if text else ()
    words = list(_words(hint))
    if text == "" and hint is not str and get_origin(hint) is not Literal:
        return None
    if words and text not in words:
        raise RowError(f"{text!r:.40} is none of {', '.join(words)}")
    return text if words else _parse_optional(text, described)


def _parse_optional(text: str, described: str) -> object:
    if "Mapping" in described:
        return dict(json.loads(text))
    if "bool" in described:
        return {"true": True, "false": False}[text]
    if "float" in described:
        return float(text)
    return int(text) if "int" in described else text


def _words(hint: object) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    for part in get_args(hint):
        yield from _words(part)


def require_plausible(values: Mapping[str, Any]) -> None:
    """Stop on what no clock and no counter can have given.

    Raises:
        RowError: says which value of which column.
    """
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise RowError(f"{name} is {value}")
        if name.endswith("_s") and isinstance(value, float) and not 0 <= value <= _most(name):
            raise RowError(f"{name} is {value:g}, which cannot have been measured")
        if name in COUNTS and value is not None and not 0 <= value <= MOST_BYTES:
            raise RowError(f"{name} is {value}, which cannot have been measured")
    if not 0 < values["seconds"] <= MOST_SECONDS:
        raise RowError(f"seconds is {values['seconds']:g}, which is no duration")
    if not (0 if values["arm"] == "gemm" else 1) <= values["prefix_tokens"] <= MOST_TOKENS:
        raise RowError(f"prefix_tokens is {values['prefix_tokens']}")
    rate = (values["num_bytes"] or 0) / values["seconds"]
    if rate > MOST_BYTES_PER_S and values["data_path"] != NOTHING_MOVED:
        raise RowError(f"{values['num_bytes']} bytes in {values['seconds']:g} s are beyond any memory's rate")


def _most(name: str) -> float:
    return math.inf if name.endswith("_per_s") else MOST_SECONDS
