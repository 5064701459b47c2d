"""Rates of fio and of a sweep in one table."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.table import Table

from bench.estimate.results import Estimate, Point
from bench.estimate.tiers import find_place
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import MISSING, printable
from bench.report.fio_match import FioReading, differences, format_sizes, most_reads_by_length, reading_of
from bench.report.text.terminal import render
from kvio.errors import UserError
from kvio.layout.fio_job import read_description

HEADINGS = ("who", "what", "GB/s [95 %]", "of fio", "read", "p50", "p99", "settings that differ")
LEFT_COLUMNS = frozenset({0, 1, 7})
FILE_PLACES = frozenset({"local disk", "network storage"})
SYNCHRONOUS = frozenset(
    {"psync", "sync", "vsync", "pvsync", "pvsync2", "mmap"}
)  # one read at a time, whatever iodepth


class FioError(UserError):
    """A file that `fio --output-format=json` did not write, and what is missing."""


class _Latency(BaseModel):
    model_config = ConfigDict(extra="ignore")
    mean: float
    percentile: dict[str, float] = {}


class _Reads(BaseModel):
    model_config = ConfigDict(extra="ignore")
    io_bytes: int = Field(ge=0)
    bw_bytes: float = Field(ge=0)
    total_ios: int = Field(ge=0)
    clat_ns: _Latency


class _Job(BaseModel):
    model_config = ConfigDict(extra="ignore")
    jobname: str
    error: int = 0
    desc: str = ""
    options: dict[str, str] = Field(default={}, alias="job options")
    read: _Reads


class _Output(BaseModel):
    model_config = ConfigDict(extra="ignore")
    jobs: tuple[_Job, ...] = Field(min_length=1)
    global_options: dict[str, str] = Field(default={}, alias="global options")


@dataclass(frozen=True, slots=True)
class FioFigures:
    """What one job of fio read."""

    name: str  # the job's; no engine where it does not say
    engine: str | None
    reading: FioReading  # how it read
    bytes_per_s: float  # over all threads
    latency_p50_s: float | None  # of one read; None where fio does not say
    latency_p99_s: float | None


def read_fio(path: Path) -> tuple[FioFigures, ...]:
    """The jobs in what `fio --output-format=json` wrote; text around the JSON is skipped."""
    try:
        output = _Output.model_validate(_find_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FioError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FioError(f"{path}: not the JSON of fio: {where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise FioError(f"{path}: not JSON ({error}). Run fio with --output-format=json.") from None
    names = [job.jobname for job in output.jobs]
    for name in names:
        if names.count(name) > 1:
            raise FioError(
                f"{path}: job {printable(name)} is there {names.count(name)} times, each with a part of its reads; "
                f"run fio with group_reporting"
            )
    return tuple(_figures(path, job, output.global_options | job.options) for job in output.jobs)


def _find_json(text: str) -> object:
    """The JSON of fio among other text: the first object that begins a line and has jobs."""
    found: object = None
    error: ValueError = ValueError("no line begins with {")
    for start in re.finditer(r"^\{", text, re.MULTILINE):
        try:
            found, _ = json.JSONDecoder().raw_decode(text, start.start())
        except ValueError as unread:
            error = unread
            continue
        if isinstance(found, dict) and "jobs" in found:
            return found
    if found is None:
        raise error
    return found


def _figures(path: Path, job: _Job, options: dict[str, str]) -> FioFigures:
    if job.error:
        raise FioError(f"{path}: job {printable(job.jobname)} failed with error {job.error}")
    if not job.read.total_ios:
        raise FioError(f"{path}: job {printable(job.jobname)} read nothing")
    percentiles = job.read.clat_ns.percentile
    return FioFigures(
        name=job.jobname,
        engine=options.get("ioengine"),
        reading=_reading(path, job, options),
        bytes_per_s=job.read.bw_bytes,
        latency_p50_s=_seconds(percentiles.get("50.000000")),
        latency_p99_s=_seconds(percentiles.get("99.000000")),
    )


def _reading(path: Path, job: _Job, options: dict[str, str]) -> FioReading:
    """How a job read: what it says of itself counts only while its reads are of the size that it says."""
    said = read_description(job.desc)
    read_bytes = job.read.io_bytes / job.read.total_ios
    try:
        depth = 1 if options.get("ioengine", "psync") in SYNCHRONOUS else int(options.get("iodepth", "1"))
        in_flight = depth * int(options.get("numjobs", "1"))
        known = bool(said) and abs(int(said["block_bytes"]) / read_bytes - 1) < 0.01
        sizes = {name: int(said[name]) for name in ("chunk_bytes", "request_bytes")} if known else {}
    except (ValueError, KeyError) as error:
        raise FioError(f"{path}: job {printable(job.jobname)}: not the options of a job: {error}") from None
    return FioReading(
        model=said.get("model") if known else None,
        layout=said.get("layout") if known else None,
        chunk_bytes=sizes.get("chunk_bytes"),
        request_bytes=sizes.get("request_bytes", read_bytes),
        read_bytes=read_bytes,
        direct=_is_direct(options),
        in_flight=in_flight,
    )


def _is_direct(options: dict[str, str]) -> bool:
    """Whether reads bypass the page cache: direct=1 and buffered=0 are two names of one setting."""
    direct = False
    for name, value in options.items():
        if name in {"direct", "buffered"}:
            direct = (value != "0") == (name == "direct")
    return direct


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def split_points(run: RunRecord, points: Sequence[Point]) -> tuple[tuple[Point, ...], str]:
    """The points of series that read files of a local or network file system; the other series, each with its place."""
    places = {point.series: find_place(run, point.series) for point in points}
    kept = tuple(point for point in points if places[point.series] in FILE_PLACES)
    others = (f"{printable(name)} ({place})" for name, place in places.items() if place not in FILE_PLACES)
    return kept, ", ".join(others)


def compare_fio(
    jobs: Sequence[FioFigures], points: Sequence[Point], *, run: RunRecord, samples: Sequence[Sample]
) -> tuple[Table, bool]:
    """A table: each job of fio, then each measured length of a sweep with its share of the fastest job that read alike.

    Args:
        jobs: of fio.
        points: of a sweep on the same storage; the longest lengths are those to compare, since fio reads all
            of its files and pays no first-token step.
        run, samples: of that sweep.

    Returns:
        The table, and whether any length was read as a job did.
    """
    fastest = max(job.bytes_per_s for job in jobs)
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        how = f"{job.engine or ''} {job.reading.cache}, {job.reading.in_flight} in flight"
        rows.append(
            (
                "fio",
                f"{printable(job.name)} {printable(how).strip()}",
                f"{job.bytes_per_s / 1e9:.3g}",
                f"{job.bytes_per_s / fastest:.2f}",
                format_sizes(job.reading.read_bytes),
                _milliseconds(job.latency_p50_s),
                _milliseconds(job.latency_p99_s),
                "",
            )
        )
    rated = [point for point in points if point.bytes_per_s is not None]
    most = {name: most_reads_by_length(run, samples, name) for name in {point.series for point in rated}}
    readings = [reading_of(run, point.series, most[point.series].get(point.prefix_tokens)) for point in rated]
    rows += [_row(point, jobs, reading) for point, reading in zip(rated, readings, strict=True)]
    alike = any(find_alike(jobs, reading) for reading in readings)
    return render(HEADINGS, rows, left=LEFT_COLUMNS), alike


def find_alike(jobs: Sequence[FioFigures], reading: FioReading) -> tuple[FioFigures, ...]:
    """The jobs that read as a series of a sweep did."""
    return tuple(job for job in jobs if not differences(job.reading, reading))


def _row(point: Point, jobs: Sequence[FioFigures], reading: FioReading) -> tuple[str, ...]:
    rate = point.bytes_per_s
    alike = [job.bytes_per_s for job in find_alike(jobs, reading)]
    share = MISSING if rate is None or not alike else f"{rate.value / max(alike):.2f}"
    what = f"{printable(point.series)} {point.prefix_tokens:,} tokens"
    nearest = min((differences(job.reading, reading) for job in jobs), key=len)
    size = MISSING if reading.read_bytes is None else format_sizes(reading.read_bytes)
    return ("sweep", what, _gigabytes(rate), share, size, MISSING, MISSING, "; ".join(nearest))


def _gigabytes(rate: Estimate | None) -> str:
    if rate is None:
        return MISSING
    if rate.low is None or rate.high is None:
        return f"{rate.value / 1e9:.3g}"
    return f"{rate.value / 1e9:.3g} [{rate.low / 1e9:.3g}–{rate.high / 1e9:.3g}]"


def _milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds * 1e3:.3g} ms"
