"""fio's figures beside those of a sweep."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.analyse.answer import Estimate, Point
from bench.analyse.tiers import find_place
from bench.measure.record import RunRecord
from bench.show.numbers import MISSING, printable
from bench.show.table import align
from kvio.errors import UserError

FILE_PLACES = frozenset({"local disk", "network storage"})


class FioError(UserError):
    """A file is not what `fio --output-format=json` writes; one line that says what is missing."""


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
    read: _Reads


class _Output(BaseModel):
    model_config = ConfigDict(extra="ignore")
    jobs: tuple[_Job, ...] = Field(min_length=1)
    global_options: dict[str, str] = Field(default={}, alias="global options")


@dataclass(frozen=True, slots=True)
class FioFigures:
    """What one job of fio read.

    Args:
        name: the job's.
        engine, direct: as fio was told; None where it does not say.
        bytes_per_s: over all threads.
        request_bytes: mean size of a read.
        latency_p50_s, latency_p99_s: of one read; None where fio does not say.
    """

    name: str
    engine: str | None
    direct: bool | None
    bytes_per_s: float
    request_bytes: float
    latency_p50_s: float | None
    latency_p99_s: float | None


def read_fio(path: Path) -> tuple[FioFigures, ...]:
    """The jobs in what `fio --output-format=json` wrote; lines before the JSON are skipped.

    Raises:
        FioError: not readable, not fio's JSON, a job failed or read nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text[text.index("{") :])
        output = _Output.model_validate(content)
    except OSError as error:
        raise FioError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FioError(f"{path}: not the JSON of fio: {where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise FioError(f"{path}: not JSON ({error}); run fio with --output-format=json") from None
    return tuple(_figures(path, job, output.global_options) for job in output.jobs)


def _figures(path: Path, job: _Job, options: dict[str, str]) -> FioFigures:
    if job.error:
        raise FioError(f"{path}: job {printable(job.jobname)} failed with error {job.error}")
    if not job.read.total_ios:
        raise FioError(f"{path}: job {printable(job.jobname)} read nothing")
    percentiles = job.read.clat_ns.percentile
    direct = options.get("direct")
    return FioFigures(
        name=job.jobname,
        engine=options.get("ioengine"),
        direct=None if direct is None else direct != "0",
        bytes_per_s=job.read.bw_bytes,
        request_bytes=job.read.io_bytes / job.read.total_ios,
        latency_p50_s=_seconds(percentiles.get("50.000000")),
        latency_p99_s=_seconds(percentiles.get("99.000000")),
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def split_points(run: RunRecord, points: Sequence[Point]) -> tuple[tuple[Point, ...], str]:
    """The points of series that read files of a local or network file system; the other series, each with its place."""
    places = {point.series: find_place(run, point.series) for point in points}
    kept = tuple(point for point in points if places[point.series] in FILE_PLACES)
    others = (f"{printable(name)} ({place})" for name, place in places.items() if place not in FILE_PLACES)
    return kept, ", ".join(others)


def compare_fio(jobs: Sequence[FioFigures], points: Sequence[Point]) -> str:
    """A table: each job of fio, then each measured length of a sweep with its share of the fastest job's rate.

    Args:
        jobs: of fio.
        points: of a sweep on the same storage; the longest lengths are those to compare, since fio reads all
            of its files and pays no first-token step.
    """
    fastest = max(job.bytes_per_s for job in jobs)
    rows = [("who", "what", "GB/s [95 %]", "of fio", "read", "p50", "p99")]
    for job in jobs:
        how = " ".join(
            part for part in (job.engine, {True: "direct", False: "buffered", None: None}[job.direct]) if part
        )
        rows.append(
            (
                "fio",
                f"{printable(job.name)} {printable(how)}".strip(),
                f"{job.bytes_per_s / 1e9:.3g}",
                f"{job.bytes_per_s / fastest:.2f}",
                f"{job.request_bytes / 2**20:.3g} MiB",
                _milliseconds(job.latency_p50_s),
                _milliseconds(job.latency_p99_s),
            )
        )
    rows += [_row(point, fastest) for point in points if point.bytes_per_s is not None]
    return "\n".join(align(rows))


def _row(point: Point, fastest: float) -> tuple[str, str, str, str, str, str, str]:
    rate = point.bytes_per_s
    share = MISSING if rate is None else f"{rate.value / fastest:.2f}"
    what = f"{printable(point.series)} {point.prefix_tokens:,} tokens"
    return ("sweep", what, _gigabytes(rate), share, MISSING, MISSING, MISSING)


def _gigabytes(rate: Estimate | None) -> str:
    if rate is None:
        return MISSING
    if rate.low is None or rate.high is None:
        return f"{rate.value / 1e9:.3g}"
    return f"{rate.value / 1e9:.3g} [{rate.low / 1e9:.3g}–{rate.high / 1e9:.3g}]"


def _milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds * 1e3:.3g} ms"
