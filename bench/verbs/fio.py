"""`fio`: a layout's read pattern as a fio job, and fio's figures beside a sweep's."""

from pathlib import Path
from typing import Annotated

import typer

from bench.analyse.analysis import analyse
from bench.catalog.config import resolve_model
from bench.measure.plan import PlanError
from bench.measure.record import read_run, read_samples
from bench.measure.units import parse_bytes
from bench.show.fio_figures import compare_fio, read_fio
from bench.verbs.options import SCRATCH, newest_results, option, out, parsed
from kvio.chunks import ChunkGeometry
from kvio.fiojob import ENGINES, write_job
from kvio.presets import PRESETS, adapt_preset, find_preset

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
    queue_depth: Annotated[int | None, option("chunks in flight per thread")] = None,
    buffered: Annotated[bool, option("read through the page cache")] = False,
    working_set: Annotated[str, option("bytes of fio's files, such as 8GiB")] = "4GiB",
    data_dir: Annotated[Path, option("where fio makes its files: the drive to measure")] = SCRATCH,
) -> None:
    """Print the fio job that reads KV chunks as a layout does."""
    if context.invoked_subcommand is not None:
        return
    if model is None:
        raise PlanError("no model is named; try: python -m bench fio --model qwen3-8b --layout lmcache")
    preset = adapt_preset(
        find_preset(layout),
        chunk_tokens=chunk_tokens,
        direct=False if buffered else None,
        num_threads=threads,
        request_bytes=parsed(parse_bytes, request),
        queue_depth=queue_depth,
    )
    resolved = resolve_model(model)
    job = write_job(
        ChunkGeometry(resolved.geometry.layout(kv_dtype, tp), preset),
        model=model,
        engine=engine,
        directory=str(data_dir),
        working_set_bytes=parsed(parse_bytes, working_set) or 0,
    )
    print(job.text, end="")


@fio.command("compare")
def compare(
    output: Annotated[Path, typer.Argument(help="what fio --output-format=json wrote")],
    results: Annotated[Path | None, option("result folder of a sweep; default the newest")] = None,
) -> None:
    """Fio's figures beside those of a sweep."""
    jobs = read_fio(output)
    folder = results or newest_results()
    run, (samples, _) = read_run(folder), read_samples(folder)
    out.print(compare_fio(jobs, analyse(run, samples).points), markup=False)
    out.print(f"sweep: {folder}", markup=False)
