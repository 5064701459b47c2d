"""Rows of `samples.csv` as text: taken apart, whole or not, and whether anything can have been measured so.

Appending to `samples.csv`: whole rows or none, on the disk at once.
"""

import csv
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from bench.record.atomic_write import write_text_safely, writing_results
from bench.record.notices import OLD_CODES, Notice
from bench.record.sample import (
    CASE_COLUMNS,
    COLUMN_TYPES,
    COLUMNS,
    MAX_BYTES,
    OLDER_COLUMNS,
    OUTCOME_COLUMNS,
    SCHEMA,
    Case,
    Outcome,
    RecordError,
    Sample,
)

MAX_SECONDS = 1e9  # 30 years
MAX_TOKENS = 1 << 31  # a thousand times the longest context of any model of 2025
MAX_BYTES_PER_S = (
    1e13  # of a load that moves bytes; the memory of a GPU of 2025 gives 8e12 (NVIDIA B200, datasheet)
)
MAX_CHARACTERS = 100_000  # of a row; those of long series names and texts have a thousand
NOTHING_MOVED = "null"  # the data path that moves no bytes, and so has no rate
COUNTS = ("round", "order", "sample", "suffix_tokens", "num_bytes", "num_requests", "request_bytes")


class RowError(ValueError):
    """A line is not a row; the message says why."""


def format_cell(value: object) -> str:
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
    """The cells of a line."""
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
    """`text` without a last line that a kill or a crash left incomplete: without its end, or short of cells."""
    whole, newline, rest = text.rpartition("\n")
    if len(rest) > MAX_CHARACTERS:
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
    """The value of a cell of this type; empty is None."""
    described = str(hint)
    if hint is float or hint is int:
        return hint(text)
    if "tuple" in described:
        return tuple(OLD_CODES.get(code, code) for code in text.split(";")) if text else ()
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
    """Stop on what no clock and no counter can have given."""
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise RowError(f"{name} is {value}")
        if name.endswith("_s") and isinstance(value, float) and not 0 <= value <= _most(name):
            raise RowError(f"{name} is {value:g}, which cannot have been measured")
        if name in COUNTS and value is not None and not 0 <= value <= MAX_BYTES:
            raise RowError(f"{name} is {value}, which cannot have been measured")
    if not 0 < values["seconds"] <= MAX_SECONDS:
        raise RowError(f"seconds is {values['seconds']:g}, which is no duration")
    if not (0 if values["arm"] == "gemm" else 1) <= values["prefix_tokens"] <= MAX_TOKENS:
        raise RowError(f"prefix_tokens is {values['prefix_tokens']}")
    rate = (values["num_bytes"] or 0) / values["seconds"]
    if rate > MAX_BYTES_PER_S and values["data_path"] != NOTHING_MOVED:
        raise RowError(f"{values['num_bytes']} bytes in {values['seconds']:g} s are beyond any memory's rate")


def _most(name: str) -> float:
    return math.inf if name.endswith("_per_s") else MAX_SECONDS


class SampleWriter:
    """Appends samples to `samples.csv`; each is on the disk before `append` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "samples.csv"
        with writing_results(folder):
            _drop_half_line(path)
            _upgrade(path)
            self._stream = path.open("ab", buffering=0)  # nothing is left to be flushed when the disk is full
        if self._stream.tell() == 0:
            self._write(COLUMNS)

    def _write(self, row: Iterable[str]) -> None:
        """Append a row; where it does not get whole onto the disk, what there is of it is cut off."""
        text = io.StringIO(newline="")
        csv.writer(text).writerow(row)
        content = memoryview(text.getvalue().encode())
        before_bytes = self._stream.tell()
        with writing_results(self._folder):
            try:
                while content:
                    content = content[self._stream.write(content) :]
                os.fsync(self._stream.fileno())
            except BaseException:
                self._stream.truncate(before_bytes)
                raise

    def append(self, sample: Sample) -> None:
        """Write one row and fsync it."""
        head = (sample.round, sample.order, sample.sample, sample.started_s)
        case = (getattr(sample.case, name) for name in CASE_COLUMNS)
        outcome = (getattr(sample.outcome, name) for name in OUTCOME_COLUMNS)
        self._write([format_cell(value) for value in (*head, *case, *outcome)])

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _drop_half_line(path: Path) -> None:
    """Cut an incomplete last line (a kill in mid-write) off."""
    if not path.exists():
        return
    text = path.read_bytes().decode(errors="surrogateescape")
    whole = cut_half_line(text)
    if whole != text:
        with path.open("r+b") as stream:
            stream.truncate(len(whole.encode(errors="surrogateescape")))


def _upgrade(path: Path) -> None:
    """Rewrite a samples.csv of an older schema with the columns of this one; all cells stay as they were."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) not in OLDER_COLUMNS:
            return
        rows = list(reader)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text_safely(path, text.getvalue())


def read_samples(folder: Path, *, may_be_empty: bool = False) -> tuple[list[Sample], tuple[Notice, ...]]:
    """All whole rows of `samples.csv` in the order measured, and a notice if a last half row was dropped.

    Args:
        may_be_empty: of a sweep to go on with: a full disk may not even have taken the columns.
    """
    path = folder / "samples.csv"
    try:
        text = path.read_text(encoding="utf-8-sig")  # with the mark that a spreadsheet puts in front
    except FileNotFoundError:
        raise RecordError(f"{folder}: no samples.csv here, so nothing can be derived; sweep again") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not a text file (byte {error.start})") from None
    notices: tuple[Notice, ...] = ()
    try:
        whole = cut_half_line(text)
    except RowError as error:
        raise RecordError(f"{path}: {error}") from None
    if whole != text:
        notices = (Notice(kind="half_line", detail="the last row was incomplete and dropped"),)
    if not whole and not may_be_empty:
        raise RecordError(
            f"{path}: empty, without even the row that names its columns, so nothing can be derived; "
            f"bring it back from a copy, or go on with: make sweep RESUME={folder}"
        )
    samples = list(_rows(path, whole)) if whole else []
    _require_unique(path, samples)
    return samples, notices


def _require_unique(path: Path, samples: Sequence[Sample]) -> None:
    """Stop on rows that were copied in."""
    places = Counter((sample.round, sample.order) for sample in samples)
    for (number, order), count in places.items():
        if count > 1:
            raise RecordError(f"{path}: two rows have round {number} and order {order}; one was copied in")
    taken = Counter((sample.round, sample.case, sample.sample) for sample in samples)
    for (number, case, repetition), count in taken.items():
        if count > 1:
            raise RecordError(
                f"{path}: round {number} has sample {repetition} of {case.arm} {case.series} at {case.prefix_tokens} "
                f"tokens {count} times; all but one were copied in"
            )


def _rows(path: Path, text: str) -> Iterator[Sample]:
    header, *lines = text.removesuffix("\n").split("\n")
    columns = tuple(header.split(","))
    if columns not in (COLUMNS, *OLDER_COLUMNS):
        raise RecordError(f"{path}: columns are not those of schema {SCHEMA}")
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        try:
            cells = dict(zip(columns, split_row(line, len(columns)), strict=True))
            values = {name: parse_cell(cells.get(name, ""), COLUMN_TYPES[name]) for name in COLUMNS}
            require_plausible(values)
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path}:{number}: {error}; delete that line, or sweep again") from None
        yield _sample(values)


def _sample(values: Mapping[str, Any]) -> Sample:
    return Sample(
        round=values["round"],
        order=values["order"],
        sample=values["sample"],
        started_s=values["started_s"],
        case=Case(**{name: values[name] for name in CASE_COLUMNS}),
        outcome=Outcome(**{name: values[name] for name in OUTCOME_COLUMNS}),
    )
