"""`fio`: a layout's read pattern as a fio job, and fio's figures beside a sweep's."""

from pathlib import Path
from typing import Annotated

import typer

from bench.analyse.analysis import analyse
from bench.catalog.config import resolve_model
from bench.measure.plan import LoadSpec, PlanError
from bench.measure.queue_depth import QueueDepth, spread_depth
from bench.measure.record import read_run, read_samples
from bench.measure.units import parse_bytes
from bench.show.fio_figures import FioError, compare_fio, read_fio, split_points
from bench.verbs.options import SCRATCH, newest_results, option, out, parsed
from kvio.backends import find_backend
from kvio.chunks import ChunkGeometry
from kvio.fiojob import ENGINES, write_job
from kvio.presets import PRESETS, Preset, adapt_preset, find_preset

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
        model=model,
        engine=engine,
        directory=str(data_dir),
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
    backend = "posix" if engine == "psync" else "uring"
    spec = LoadSpec(backend=backend, num_threads=num_threads, queue_depth=queue_depth)
    return spread_depth(spec, find_backend(backend), preset.num_threads)


@fio.command("compare")
def compare(
    output: Annotated[Path, typer.Argument(help="what fio --output-format=json wrote")],
    results: Annotated[Path | None, option("result folder of a sweep; default the newest")] = None,
) -> None:
    """Fio's figures beside those of a sweep."""
    jobs = read_fio(output)
    folder = results or newest_results()
    run, (samples, _) = read_run(folder), read_samples(folder)
    points, left_out = split_points(run, analyse(run, samples).points)
    if not points:
        raise FioError(
            f"{folder}: nothing here was read from files as fio reads them ({left_out or 'nothing was loaded'}); "
            f"try --results with a sweep of posix or uring on the drive that fio measured"
        )
    out.print(compare_fio(jobs, points), markup=False)
    if left_out:
        out.print(f"left out, since fio reads files: {left_out}", markup=False)
    out.print(f"sweep: {folder}", markup=False)
