"""`fio`: a layout's read pattern as a fio job, and fio's figures beside a sweep's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.catalog.models.resolve import resolve_model
from bench.cli.options import RESULTS, SCRATCH, newest_results, option, out
from bench.estimate.analysis import analyse
from bench.measure.setup import QueueDepth, spread_depth, spread_evenly
from bench.record.folder import find_results
from bench.record.plan import LoadSpec, PlanError
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.record.units import parse_bytes
from bench.record.validate import parsed
from bench.report.fio import (
    FioError,
    FioFigures,
    compare_fio,
    file_series,
    find_alike,
    read_fio,
    split_points,
)
from bench.report.fio_match import differences, format_alike, most_reads_by_length, reading_of
from kvio.backends import find_backend
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.fio_job import ENGINES, write_job
from kvio.layout.presets import PRESETS, Preset, adapt_preset, find_preset

SUSPECT = 3

fio = typer.Typer(
    invoke_without_command=True, help="A layout's read pattern as a fio job; fio beside a sweep."
)


@fio.callback()
def write(
    context: typer.Context,
    model: Annotated[str | None, option("catalogue key, config.json or its folder, or hub name")] = None,
    layout: Annotated[str, option(f"one of {', '.join(PRESETS)}")] = "best",
    kv_dtype: Annotated[str, option("dtype of the KV cache")] = "bfloat16",
    tp: Annotated[int, option("tensor-parallel ranks; the chunks are those of one")] = 1,
    engine: Annotated[str, option(f"one of {', '.join(ENGINES)}")] = "psync",
    chunk_tokens: Annotated[int | None, option("tokens of a KV chunk; default the layout's")] = None,
    threads: Annotated[int | None, option("reading threads; default the layout's")] = None,
    request: Annotated[str | None, option("bytes of one read, such as 4MiB")] = None,
    queue_depth: Annotated[
        int | None, option("reads in flight over all threads; of psync, the threads; default the layout's")
    ] = None,
    buffered: Annotated[
        bool | None, option("through the page cache, or past it with O_DIRECT; default the layout's")
    ] = None,
    working_set: Annotated[str, option("bytes of fio's files, such as 8GiB")] = "4GiB",
    data_dir: Annotated[Path, option("where fio makes its files: the drive to measure")] = SCRATCH,
) -> None:
    """Print the fio job that reads KV chunks as a layout does."""
    if context.invoked_subcommand is not None:
        return
    if model is None:
        raise PlanError("no model is named; try: python -m bench fio --model qwen3-8b --layout lmcache")
    base = find_preset(layout)
    depth = _spread(engine, base, num_threads=threads, queue_depth=queue_depth)
    preset = adapt_preset(
        base,
        chunk_tokens=chunk_tokens,
        direct=None if buffered is None else not buffered,
        num_threads=threads if depth is None else depth.num_threads,
        request_bytes=parsed(parse_bytes, request),
    )
    resolved = resolve_model(model)
    job = write_job(
        ChunkGeometry(resolved.geometry.layout(kv_dtype, tp), preset),
        model=resolved.name,
        engine=engine,
        directory=str(data_dir.absolute()),  # fio may be run from anywhere
        working_set_bytes=parsed(parse_bytes, working_set) or 0,
        in_flight=None if depth is None else depth.in_flight,
    )
    print(job.text, end="")


def _spread(
    engine: str, preset: Preset, *, num_threads: int | None, queue_depth: int | None
) -> QueueDepth | None:
    """Threads and depth of each for a queue depth over all, as a sweep spreads it; None where none is asked for."""
    if queue_depth is None or engine not in ENGINES:
        return None
    if engine != "psync":  # which has no limit of its own
        return spread_evenly(queue_depth, num_threads, most_threads=preset.num_threads)
    spec = LoadSpec(backend="posix", num_threads=num_threads, queue_depth=queue_depth)
    return spread_depth(spec, find_backend("posix"), preset.num_threads)


@fio.command("compare")
def compare(
    output: Annotated[Path, typer.Argument(help="what fio --output-format=json wrote")],
    results: Annotated[
        Path | None, option("result folder of a sweep; default the newest that read as a job of fio did")
    ] = None,
) -> None:
    """Fio's figures beside those of a sweep."""
    jobs = read_fio(output)
    folder = results or _newest_alike(jobs)
    run, (samples, _) = read_run(folder), read_samples(folder)
    points, left_out = split_points(run, analyse(run, samples).points)
    if not points:
        raise FioError(
            f"{folder}: nothing here was read from files as fio reads them ({left_out or 'nothing was loaded'}); "
            f"try --results with a sweep of posix or uring on the drive that fio measured"
        )
    table, any_alike = compare_fio(jobs, points, run=run, samples=samples)
    out.print(table, markup=False)
    if left_out:
        out.print(f"left out, since fio reads files: {left_out}", markup=False)
    out.print(f"sweep: {folder}", markup=False)
    if not any_alike:
        first = points[0].series
        most = max(most_reads_by_length(run, samples, first).values(), default=None)
        out.print(f"nothing was read alike; {format_alike(run, first, most)}", markup=False)
        raise typer.Exit(SUSPECT)


def _newest_alike(jobs: Sequence[FioFigures]) -> Path:
    """The newest sweep of which a series read files as a job did; the newest of all where it read no files.

    Raises:
        FioError: there are sweeps, but none is alike; it says how the newest differs.
        RecordError: there is no sweep.
    """
    newest = newest_results()
    for folder in find_results(RESULTS):
        run, (samples, _) = read_run(folder), read_samples(folder)
        for series in file_series(run):
            reads = most_reads_by_length(run, samples, series).values()
            if any(find_alike(jobs, reading_of(run, series, most)) for most in set(reads) or (None,)):
                return folder
    run, (samples, _) = read_run(newest), read_samples(newest)
    found = file_series(run)
    if not found:
        return newest
    most = max(most_reads_by_length(run, samples, found[0]).values(), default=None)
    differing = differences(jobs[0].reading, reading_of(run, found[0], most))
    raise FioError(
        f"no sweep below {RESULTS} read as fio did; the newest, {newest} ({found[0]}): {'; '.join(differing)}; "
        f"{format_alike(run, found[0], most)}; or name one with --results"
    )
