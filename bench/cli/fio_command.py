"""`fio`: a layout's read pattern as a fio job, and fio's rates compared with a sweep's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import RESULTS, SCRATCH, newest_results, option, out
from bench.record.folder import find_results
from bench.record.plan import LoadSpec, PlanError
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.record.units import parse_bytes
from bench.record.validate import parsed
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.fio_job import ENGINES, write_job
from kvio.layout.presets import PRESETS, Preset, adapt_preset, find_preset

if TYPE_CHECKING:
    from bench.measure.setup import QueueDepth

SUSPECT = 3

fio = typer.Typer(
    invoke_without_command=True, help="Write a fio job of a layout, or compare fio with a sweep."
)


@fio.callback()
def write(
    context: typer.Context,
    model: Annotated[str | None, option("Catalogue key, config.json or its folder, or hub name.")] = None,
    layout: Annotated[str, option(f"Layout of the KV chunks: {', '.join(PRESETS)}.")] = "best",
    kv_dtype: Annotated[str, option("Dtype of the KV cache.")] = "bfloat16",
    tp: Annotated[int, option("Tensor-parallel ranks; the chunks are those of one rank.")] = 1,
    engine: Annotated[str, option(f"Engine of fio: {', '.join(ENGINES)}.")] = "psync",
    chunk_tokens: Annotated[int | None, option("Tokens of a KV chunk (default: the layout's).")] = None,
    threads: Annotated[int | None, option("Reading threads (default: the layout's).")] = None,
    request: Annotated[str | None, option("Bytes of one read, such as 4MiB (default: the layout's).")] = None,
    queue_depth: Annotated[
        int | None,
        option(
            "Reads in flight across all threads; for psync the number of threads (default: the layout's)."
        ),
    ] = None,
    buffered: Annotated[
        bool | None, option("Read through the page cache, not with O_DIRECT (default: the layout's).")
    ] = None,
    working_set: Annotated[str, option("Bytes of fio's files, such as 8GiB.")] = "4GiB",
    data_dir: Annotated[Path, option("Folder of fio's files, on the drive to measure.")] = SCRATCH,
) -> None:
    """Print the fio job that reads KV chunks as a layout does."""
    if context.invoked_subcommand is not None:
        return
    if model is None:
        raise PlanError(
            "fio: no model is named. Name one: python -m bench fio --model qwen3-8b --layout lmcache"
        )
    from bench.catalog.models.resolve import resolve_model

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
    out.print(job.text, end="", markup=False)


def _spread(
    engine: str, preset: Preset, *, num_threads: int | None, queue_depth: int | None
) -> "QueueDepth | None":
    """Threads and depth of each for a queue depth across all, as a sweep spreads it; None where none is asked for."""
    if queue_depth is None or engine not in ENGINES:
        return None
    from bench.measure.setup import spread_depth, spread_evenly
    from kvio.backends import find_backend

    if engine != "psync":  # which has no limit of its own
        return spread_evenly(queue_depth, num_threads, most_threads=preset.num_threads)
    spec = LoadSpec(backend="posix", num_threads=num_threads, queue_depth=queue_depth)
    return spread_depth(spec, find_backend("posix"), preset.num_threads)


@fio.command("compare")
def compare(
    output: Annotated[Path, typer.Argument(help="What fio --output-format=json wrote.")],
    result: Annotated[
        Path | None, typer.Argument(help="Result folder of a sweep (default: the newest conclusive one).")
    ] = None,
) -> None:
    """Compare fio's rates with those of a sweep; print the settings that differ."""
    # scipy takes a second, which --help and usage errors must not cost
    from bench.estimate.analysis import analyse
    from bench.report.fio import FioError, compare_fio, read_fio, split_points

    jobs = read_fio(output)
    folder = result or _newest_conclusive()
    run, (samples, _) = read_run(folder), read_samples(folder)
    points, left_out = split_points(run, analyse(run, samples).points)
    if not points:
        raise FioError(
            f"{folder}: no load series read files ({left_out or 'nothing was loaded'}). "
            f"Name the result of a sweep with posix or uring on the drive that fio measured."
        )
    table, any_alike = compare_fio(jobs, points, run=run, samples=samples)
    out.show(table)
    if left_out:
        out.print(f"Excluded, because fio reads files: {left_out}", markup=False)
    out.print(f"sweep: {folder}", markup=False)
    if not any_alike:
        out.print("No job and series have the same settings, so no rate is a share of the other.")
        raise typer.Exit(SUSPECT)


def _newest_conclusive() -> Path:
    """The newest complete sweep with an answer; the newest of all where none has one."""
    from bench.estimate.analysis import analyse
    from bench.report.text.main_answer import main_spot

    newest = newest_results()
    for folder in find_results(RESULTS):
        run, (samples, _) = read_run(folder), read_samples(folder)
        spot = main_spot(run, analyse(run, samples)) if run.state == "complete" else None
        if spot is not None and spot.verdict != "inconclusive":
            return folder
    return newest
