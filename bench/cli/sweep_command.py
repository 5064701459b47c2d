"""`sweep`: measure both arms and locate the crossover."""

import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from bench.cli.options import (
    RESULTS,
    SCRATCH,
    close_outlet,
    given_flags,
    make_scratch,
    option,
    out,
    parse_options,
    require_unused,
)
from bench.cli.report_command import finish
from bench.estimate.next_lengths import choose_lengths
from bench.measure.resume import NewLimits
from bench.measure.sweep import SweepHooks, resume_sweep, run_sweep
from bench.record.plan import Plan, PlanError
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.record.units import parse_duration
from bench.record.validate import parsed
from bench.report.progress_bar import SweepProgress
from kvio.layout.presets import PRESETS

ONLY_ENDS = "; of a sweep that is gone on with only --budget and --precision can be others"
CHANGEABLE = {"resume", "budget", "precision", "data_dir"}  # beside --resume


def sweep(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(help="catalogue key, config.json or its folder, or hub name")
    ] = None,
    tokens: Annotated[
        str, option("prefix lengths, such as 512,1024,2048; auto lets the sweep choose")
    ] = "auto",
    budget: Annotated[str, option("time for the whole sweep, such as 180s or 10m")] = "180s",
    precision: Annotated[
        float, option("stop when C* is known this well: half-width of the interval, relative")
    ] = 0.10,
    rounds: Annotated[int | None, option("rounds at most; default as many as the budget allows")] = None,
    samples: Annotated[int, option("samples of a case in one round, fewer of slow ones")] = 5,
    backend: Annotated[
        str,
        option(
            "posix, uring, gds, hostmem, hostmem-pinned, s3, nixl, mooncake … (doctor lists all); several with commas"
        ),
    ] = "posix",
    layout: Annotated[str, option(f"{', '.join(PRESETS)}; several with commas")] = "best",
    hybrid: Annotated[
        bool, option("also recompute from the front while loading from the back (whole models)")
    ] = False,
    buffered: Annotated[
        bool | None, option("read through the page cache, evicted before each sample; default the layout's")
    ] = None,
    chunk_tokens: Annotated[int | None, option("tokens of a KV chunk; default the layout's")] = None,
    threads: Annotated[
        int | None, option("reading threads; default the layout's, searched for layout best")
    ] = None,
    queue_depth: Annotated[
        int | None,
        option(
            "jobs (parts of chunks) in flight over all threads; of posix, the threads; default the layout's, "
            "searched for layout best"
        ),
    ] = None,
    backend_option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "--backend-option",
            help="what a backend alone knows: NAME=VALUE, or BACKEND.NAME=VALUE for one of several; may be repeated",
        ),
    ] = None,
    request: Annotated[
        str | None, option("bytes of one read, such as 4MiB; default the layout's, searched for layout best")
    ] = None,
    limit: Annotated[
        str | None, option("kernel read limit, such as 100MB/s: what if my drive gave this?")
    ] = None,
    data_dir: Annotated[Path, option("where KV files go: the drive that is measured")] = SCRATCH,
    working_set: Annotated[str | None, option("bytes of KV files, such as 8GiB")] = None,
    dtype: Annotated[str, option("bfloat16, float16 or float32")] = "bfloat16",
    tp: Annotated[
        int, option("tensor-parallel ranks: each a process with its own GPU or share of cores")
    ] = 1,
    device: Annotated[str, option("auto, cpu, cuda, cuda:1 …")] = "auto",
    attention: Annotated[str, option("auto, sdpa, eager, flash_attention_2")] = "auto",
    layers: Annotated[str, option("auto; all: the whole model; fit: a few layers, scaled")] = "auto",
    prefill_chunk: Annotated[int | None, option("split the prefill as engines do")] = None,
    suffix_tokens: Annotated[int, option("ask the marginal question for so many next tokens")] = 0,
    weights: Annotated[str | None, option("folder with real weights (safetensors)")] = None,
    seed: Annotated[int, option("of order, bytes, weights and tokens")] = 0,
    results: Annotated[Path, option("where result folders are made")] = RESULTS,
    resume: Annotated[Path | None, option("go on with the sweep in this result folder")] = None,
) -> None:
    """Measure recompute and load on this machine and locate the crossover."""
    if resume is not None:
        asked = read_run(resume).plan
        kept = set(given_flags(context)) - CHANGEABLE
        require_unused(context, kept, "stays as it was in a sweep that is gone on with; leave it out")
        given = given_flags(context)
        until = NewLimits(
            budget_s=parsed(parse_duration, budget) if "budget" in given else None,
            precision=precision if "precision" in given else None,
        )
        where = asked.data_dir if asked.data_dir is not None and data_dir == SCRATCH else data_dir
        make_scratch(where)
        _go_on(until.change(asked), resume, until, data_dir=where)
        return
    if model is None:
        raise PlanError("no model is named; try: make sweep MODEL=qwen3-8b")
    options = parse_options(backend_option or [], backend.split(","))
    kept_dir = None if data_dir == SCRATCH else data_dir
    plan = Plan.from_flags({**context.params, "data_dir": kept_dir}, options=options)
    make_scratch(data_dir, flags="--data-dir and --results")
    if plan.tokens is not None and len(set(plan.tokens)) == 1:
        out.print("one length gives times, but no crossover: name two lengths or more for one")
    _take_interrupts()
    with SweepProgress(out, plan.budget_s) as progress:
        folder = run_sweep(plan, root=results, data_dir=data_dir, hooks=_hooks(progress))
    _ignore_interrupts()
    finish(folder)


def _go_on(plan: Plan, folder: Path, until: NewLimits, *, data_dir: Path) -> None:
    """Go on with a sweep, then show what came of it, even after an interrupt."""
    samples = read_samples(folder, may_be_empty=True)[0] if (folder / "samples.csv").exists() else []
    spent_s = max((sample.started_s for sample in samples), default=0.0)
    _take_interrupts()
    with SweepProgress(out, plan.budget_s, spent_s=spent_s, num_samples=len(samples)) as progress:
        try:
            resume_sweep(folder, data_dir=data_dir, hooks=_hooks(progress), until=until)
        except PlanError as error:
            raise PlanError(f"{error}{ONLY_ENDS if 'try --budget' in str(error) else ''}") from None
    _ignore_interrupts()
    finish(folder)


def _hooks(progress: SweepProgress) -> SweepHooks:
    return SweepHooks(policy=choose_lengths, observer=progress)


def _take_interrupts() -> None:
    """End the measuring in order on Ctrl-C, kill, and a terminal that closes, unless nohup(1) said not to."""
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def hang_up(number: int, frame: FrameType | None) -> None:
        for descriptor in terminals:
            close_outlet(descriptor)
        _interrupt(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the measuring; what follows (removing files, writing results) is short and not interrupted again."""
    _ignore_interrupts()
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
