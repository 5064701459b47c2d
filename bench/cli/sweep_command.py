"""`sweep`: measure both arms and locate the crossover."""

import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.options import (
    RESULTS,
    SCRATCH,
    given_flags,
    make_scratch,
    out,
    parse_options,
    require_unused,
)
from bench.cli.report_command import finish
from bench.record.plan import Plan, PlanError
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.record.units import parse_duration
from bench.record.validate import parsed
from bench.report.progress_bar import SweepProgress
from kvio.layout.presets import PRESETS

if TYPE_CHECKING:
    from bench.measure.sweep import SweepHooks

CHANGEABLE = {"resume", "budget", "precision", "data_dir"}  # beside --resume
MODEL, LENGTH, WHERE, READING, ARMS = (
    "Model and device",
    "How long and how precise",
    "Where files go",
    "How the load arm reads",
    "Which arms and backends",
)


def _option(panel: str, help_text: str, *names: str) -> Any:  # noqa: ANN401 — what typer takes as metadata
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


def sweep(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(help="Catalogue key, config.json or its folder, or hub name.")
    ] = None,
    dtype: Annotated[str, _option(MODEL, "Dtype of the weights: bfloat16, float16 or float32.")] = "bfloat16",
    weights: Annotated[
        str | None,
        _option(MODEL, "Folder with real weights in safetensors (default: random weights)."),
    ] = None,
    layers: Annotated[
        str, _option(MODEL, "Layers that run: all; fit, a few layers, times scaled; auto, what fits.")
    ] = "auto",
    device: Annotated[str, _option(MODEL, "Device that computes: auto, cpu, cuda, cuda:1 …")] = "auto",
    tp: Annotated[
        int, _option(MODEL, "Tensor-parallel ranks; each is a process with its own GPU or share of cores.")
    ] = 1,
    attention: Annotated[
        str, _option(MODEL, "Attention kernel: auto, sdpa, eager or flash_attention_2.")
    ] = "auto",
    prefill_chunk: Annotated[
        int | None, _option(MODEL, "Tokens of one prefill step (default: the whole prefix at once).")
    ] = None,
    budget: Annotated[str, _option(LENGTH, "Time for the whole sweep, such as 180s or 10m.")] = "180s",
    precision: Annotated[
        float,
        _option(LENGTH, "Target precision of C*: stop when its 95 % interval is within ± this fraction."),
    ] = 0.10,
    tokens: Annotated[
        str, _option(LENGTH, "Prefix lengths, such as 512,1024,2048; auto lets the sweep choose.")
    ] = "auto",
    rounds: Annotated[
        int | None, _option(LENGTH, "Maximum rounds (default: until the budget is used).")
    ] = None,
    samples: Annotated[
        int, _option(LENGTH, "Samples of each case in one round; fewer where a sample is slow.")
    ] = 5,
    seed: Annotated[int, _option(LENGTH, "Seed of order, bytes, weights and tokens.")] = 0,
    data_dir: Annotated[Path, _option(WHERE, "Folder of the KV files, on the drive to measure.")] = SCRATCH,
    results: Annotated[Path, _option(WHERE, "Folder of the result folders.")] = RESULTS,
    resume: Annotated[
        Path | None, _option(WHERE, "Result folder of the sweep to resume (default: a new sweep).")
    ] = None,
    backend: Annotated[
        str,
        _option(
            ARMS,
            "Backends of the load arm, separated by commas: posix, uring, gds, hostmem, hostmem-pinned, s3, nixl, "
            "mooncake … (doctor lists all).",
        ),
    ] = "posix",
    layout: Annotated[
        str, _option(ARMS, f"Layouts of KV chunks, separated by commas: {', '.join(PRESETS)}.")
    ] = "best",
    hybrid: Annotated[
        bool, _option(ARMS, "Also recompute from the front while loading from the back (whole models).")
    ] = False,
    suffix_tokens: Annotated[
        int, _option(ARMS, "Time the next N tokens after each prefix (P*); 0: whole prefixes (C*).")
    ] = 0,
    buffered: Annotated[
        bool | None,
        _option(READING, "Read through the page cache, evicted before each sample (default: the layout's)."),
    ] = None,
    chunk_tokens: Annotated[
        int | None, _option(READING, "Tokens of a KV chunk (default: the layout's).")
    ] = None,
    threads: Annotated[
        int | None, _option(READING, "Reading threads (default: the layout's; tuned for layout best).")
    ] = None,
    queue_depth: Annotated[
        int | None,
        _option(
            READING,
            "Reads in flight across all threads; for posix the number of threads (default: the layout's; tuned for "
            "layout best).",
        ),
    ] = None,
    request: Annotated[
        str | None,
        _option(READING, "Bytes of one read, such as 4MiB (default: the layout's; tuned for layout best)."),
    ] = None,
    limit: Annotated[
        str | None, _option(READING, "Kernel read limit, such as 100MB/s, to model a slower drive.")
    ] = None,
    working_set: Annotated[
        str | None,
        _option(READING, "Bytes of KV files, such as 8GiB (default: what lengths and memory need)."),
    ] = None,
    backend_option: Annotated[
        list[str] | None,
        _option(
            READING,
            "Backend-specific option NAME=VALUE, or BACKEND.NAME=VALUE; repeatable.",
            "--option",
            "--backend-option",
        ),
    ] = None,
) -> None:
    """Measure recompute and load on this machine and locate the crossover."""
    if resume is not None:
        kept = set(given_flags(context)) - CHANGEABLE
        recorded = read_run(resume).plan
        require_unused(context, kept, "cannot be changed when resuming a sweep")
        given = given_flags(context)
        _resume(
            resume,
            recorded,
            budget_s=parsed(parse_duration, budget) if "budget" in given else None,
            precision=precision if "precision" in given else None,
            data_dir=data_dir if recorded.data_dir is None or data_dir != SCRATCH else recorded.data_dir,
        )
        return
    if model is None:
        raise PlanError("sweep: no model is named. Name one: python -m bench sweep qwen3-8b")
    options = parse_options(backend_option or [], backend.split(","))
    kept_dir = None if data_dir == SCRATCH else data_dir
    plan = Plan.from_flags({**context.params, "data_dir": kept_dir}, options=options)
    make_scratch(data_dir, flags="--data-dir and --results")
    if plan.tokens is not None and len(set(plan.tokens)) == 1:
        out.print("A single length gives times but no crossover; pass at least two.")
    _take_interrupts()
    # numpy and scipy take a second, which --help and usage errors must not cost
    from bench.measure.sweep import run_sweep

    with SweepProgress(out, plan.budget_s) as progress:
        folder = run_sweep(plan, root=results, data_dir=data_dir, hooks=_hooks(progress))
    _ignore_interrupts()
    finish(folder)


def _resume(
    folder: Path, recorded: Plan, *, budget_s: float | None, precision: float | None, data_dir: Path
) -> None:
    """Resume a sweep, then show its result, even after an interrupt."""
    from bench.measure.resume import NewLimits
    from bench.measure.sweep import resume_sweep

    limits = NewLimits(budget_s=budget_s, precision=precision)
    plan = limits.change(recorded)
    make_scratch(data_dir)
    samples = read_samples(folder, may_be_empty=True)[0] if (folder / "samples.csv").exists() else []
    spent_s = max((sample.started_s for sample in samples), default=0.0)
    _take_interrupts()
    with SweepProgress(out, plan.budget_s, spent_s=spent_s, num_samples=len(samples)) as progress:
        resume_sweep(folder, data_dir=data_dir, hooks=_hooks(progress), until=limits)
    _ignore_interrupts()
    finish(folder)


def _hooks(progress: SweepProgress) -> "SweepHooks":
    from bench.estimate.next_lengths import choose_lengths
    from bench.measure.sweep import SweepHooks

    return SweepHooks(policy=choose_lengths, observer=progress)


def _take_interrupts() -> None:
    """End the measuring in order on Ctrl-C, kill, and a terminal that closes (not under nohup)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the measuring; what follows (removing files, writing results) is short and not interrupted again."""
    _ignore_interrupts()
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
