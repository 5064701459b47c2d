"""What a sweep leaves behind: `run.json` (the header) and `samples.csv` (one row per timed sample).

How many ranks a sweep was measured with, and that no option says another number.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

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
from bench.record.notices import Notice, upgrade_notice
from bench.record.plan import Plan
from bench.record.read_setting import SettingSearch
from bench.record.sample import MAX_BYTES, SCHEMA, RecordError
from bench.record.validate import InputError
from kvio.protocol import MEMORY_FILE_SYSTEMS

SCHEMA_OF_NOTICES = 5  # older headers have a code and a message that begins with the series


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


class BuiltLayers(BaseModel):
    """The layers built by every measuring process: decided once, so that rounds can be pooled."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    indices: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]  # in the real model
    total: PositiveInt  # of the real model

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
    kv_bytes_per_token: Annotated[int, Field(ge=0, le=MAX_BYTES)]
    kv_bytes_at: dict[PositiveInt, Annotated[int, Field(ge=0, le=MAX_BYTES)]] = {}
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


def write_run(folder: Path, run: RunRecord) -> None:
    """Write `run.json`."""
    with writing_results(folder):
        write_text_safely(folder / "run.json", run.model_dump_json(indent=1) + "\n")


def read_run(folder: Path) -> RunRecord:
    """The header of the sweep in `folder`."""
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
        return RunRecord.model_validate(_upgrade(content, number))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path}: {where}: {first['msg']}") from None


def _upgrade(content: dict[str, Any], number: int) -> dict[str, Any]:
    """The header in the current schema; validation handles malformed values."""
    series, notices = content.get("series"), content.get("notices")
    if number < SCHEMA_OF_NOTICES and isinstance(series, dict) and isinstance(notices, list):
        notices = [
            new
            for old in notices
            for new in (upgrade_notice(old, series) if isinstance(old, dict) else [old])
        ]
    return {**content, "notices": notices or (), "schema_number": SCHEMA}


def _read_schema(path: Path, content: object) -> int:
    number = content.get("schema_number") if isinstance(content, dict) else None
    if number is None:
        raise RecordError(f"{path}: no schema_number; not a sweep of kvcross")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise RecordError(f"{path}: schema_number is {number!r:.40}, which is no whole number from 1 on")
    return number


def find_ranks(sweep: Path, run: RunRecord, flag: str, given: int | None) -> int:
    """The sweep's tensor-parallel ranks; stops if `flag` was given another number."""
    ranks = run.plan.tensor_parallel
    if given not in (None, ranks):
        together = "one rank" if ranks == 1 else f"{ranks} ranks together"
        raise InputError(f"{flag} {given} is not what {sweep} was measured with, {together}: leave it out")
    return ranks
