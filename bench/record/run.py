"""What a sweep leaves behind: `run.json` (the header) and `samples.csv` (one row per timed sample)."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from bench.record.atomic_write import write_text_safely, writing_results
from bench.record.plan import Plan
from bench.record.read_setting import SettingSearch
from bench.record.sample import Case, Outcome
from bench.record.samples_csv import (
    MOST_BYTES,
    RowError,
    cut_half_line,
    parse_cell,
    require_plausible,
    split_row,
)
from kvio.errors import UserError
from kvio.protocol import MEMORY_FILE_SYSTEMS

SCHEMA = 4
# schema that a column of samples.csv came with; files of older ones lack it
SINCE = {"load_fraction": 2}


class RecordError(UserError):
    """A result folder cannot be read, or does not say what it must."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed call: which case, in which round, in which order, and what came out.

    Args:
        round: index of the fresh process that measured it, from 0; people are told it from 1.
        order: position within the round, from 0, over all arms.
        sample: repetition of the same case within the round, from 0.
        started_s: seconds since the sweep began.
    """

    round: int
    order: int
    sample: int
    started_s: float
    case: Case
    outcome: Outcome


def _require_scalars(settings: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"{name} is {type(value).__name__}, not text, a number or null")
    return settings


class SeriesInfo(BaseModel):
    """Settings that all samples of one series share, as they were carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: Literal["recompute", "load", "hybrid", "gemm"]
    label: str
    settings: Annotated[dict[str, Any], AfterValidator(_require_scalars)] = {}

    @property
    def skipped(self) -> str | None:
        """Why it was not measured; None when it was to be."""
        reason = self.settings.get("skipped")
        return None if reason is None else str(reason)


def _require_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


TimeText = Annotated[str, AfterValidator(_require_time)]  # ISO 8601


SERIES_FAILED = "series_failed"  # code of a notice: what its message begins with broke, and was left out


class Notice(BaseModel):
    """Something that makes results suspect without stopping the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    message: str
    suspect: bool = True


class BuiltLayers(BaseModel):
    """The layers that every measuring process of a sweep builds: decided once, so that rounds may be pooled.

    Args:
        indices: in the real model, one at least.
        total: layers of the real model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    indices: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
    total: PositiveInt

    @property
    def scaled(self) -> bool:
        """True when a few layers stand for the whole model."""
        return len(self.indices) < self.total


class RunRecord(BaseModel):
    """The header of a sweep: plan, geometry, machine, software, storage, and what was noticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_number: int = SCHEMA
    run_id: str
    started_utc: TimeText
    finished_utc: TimeText | None = None
    state: Literal["running", "complete", "interrupted", "failed"] = "running"
    plan: Plan
    model_name: str
    model_digest: str | None = None  # of the resolved config; since schema 4, as the next two
    weights_digest: str | None = None
    built_layers: BuiltLayers | None = None  # None in a simulation, and before the preflight is over
    kv_bytes_per_token: Annotated[int, Field(ge=0, le=MOST_BYTES)]
    kv_bytes_at: dict[PositiveInt, Annotated[int, Field(ge=0, le=MOST_BYTES)]] = {}
    chunk_tokens: PositiveInt
    series: dict[str, SeriesInfo] = {}
    searches: dict[str, SettingSearch] = {}  # by load series of layout `best`; since schema 3
    machine: dict[str, Any] = {}
    software: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    harness: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    notices: tuple[Notice, ...] = ()

    @property
    def in_memory(self) -> bool:
        """True when the folder of the files lies in a file system that is memory itself."""
        return self.storage.get("fs_type") in MEMORY_FILE_SYSTEMS


CASE_COLUMNS = tuple(f.name for f in fields(Case))
OUTCOME_COLUMNS = tuple(f.name for f in fields(Outcome))
COLUMNS = ("round", "order", "sample", "started_s", *CASE_COLUMNS, *OUTCOME_COLUMNS)
_TYPES: Mapping[str, Any] = {
    **get_type_hints(Case),
    **get_type_hints(Outcome),
    "round": int,
    "order": int,
    "sample": int,
    "started_s": float,
}


OLDER_COLUMNS = tuple(
    tuple(name for name in COLUMNS if SINCE.get(name, 1) <= schema)
    for schema in range(1, max(SINCE.values()))
)


def write_run(folder: Path, run: RunRecord) -> None:
    """Write `run.json`.

    Raises:
        WriteError: the disk is full, say; an older header is left as it was.
    """
    with writing_results(folder):
        write_text_safely(folder / "run.json", run.model_dump_json(indent=1) + "\n")


def read_run(folder: Path) -> RunRecord:
    """The header of the sweep in `folder`.

    Raises:
        RecordError: no run.json, not ours, or written by a newer kvcross.
    """
    path = folder / "run.json"
    if folder.is_file():
        raise RecordError(f"{folder}: a file; name the folder of a sweep, results/<model>/<machine>/<run>")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise RecordError(f"{folder}: no run.json here; name a folder that a sweep has written") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RecordError(f"{path}: not readable as JSON: {error}") from None
    number = _read_schema(path, content)
    if number > SCHEMA:
        raise RecordError(f"{path}: schema {number} is newer than {SCHEMA}; use a newer kvcross to read it")
    try:
        return RunRecord.model_validate({**content, "schema_number": SCHEMA})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path}: {where}: {first['msg']}") from None


def _read_schema(path: Path, content: object) -> int:
    number = content.get("schema_number") if isinstance(content, dict) else None
    if number is None:
        raise RecordError(f"{path}: no schema_number; not a sweep of kvcross")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise RecordError(f"{path}: schema_number is {number!r:.40}, which is no whole number from 1 on")
    return number


def read_samples(folder: Path, *, may_be_empty: bool = False) -> tuple[list[Sample], tuple[Notice, ...]]:
    """All whole rows of `samples.csv` in the order measured, and a notice if a last half row was dropped.

    Args:
        may_be_empty: of a sweep to go on with: a full disk may not even have taken the columns.

    Raises:
        RecordError: the file is missing, lacks its columns or has others, or a row cannot be read.
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
        notices = (
            Notice(code="half_line", message="the last row was half written and dropped", suspect=False),
        )
    if not whole and not may_be_empty:
        raise RecordError(
            f"{path}: empty, without even the row that names its columns, so nothing can be derived; "
            f"bring it back from a copy, or go on with: make sweep RESUME={folder}"
        )
    samples = list(_rows(path, whole)) if whole else []
    _require_unique(path, samples)
    return samples, notices


def _require_unique(path: Path, samples: Sequence[Sample]) -> None:
    """Stop on rows that were copied in.

    Raises:
        RecordError: two rows have the same place in a round, or are the same repetition of a case.
    """
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
            values = {name: parse_cell(cells.get(name, ""), _TYPES[name]) for name in COLUMNS}
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
