"""The command line of kvcross; nothing else in the tree parses arguments, prints or sets exit codes.

Exit codes: 0 fine, 1 failed, 2 usage, 3 measured but suspect or inconclusive.
"""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console

from bench.analyse.analysis import analyse
from bench.analyse.frames import crossover_frame, summary_frame
from bench.analyse.policy import choose_lengths
from bench.analyse.stats import AnalysisError
from bench.catalog.config import resolve_model
from bench.catalog.describe import describe_model
from bench.catalog.fields import CatalogError
from bench.measure.folder import find_latest
from bench.measure.limit import LimitRefusedError
from bench.measure.plan import LoadSpec, Plan, PlanError, SimulationSpec, parse_lengths
from bench.measure.record import RecordError, read_run, read_samples
from bench.measure.runner import MeasureError
from bench.measure.sweep import Hands, resume_sweep, run_sweep
from bench.measure.units import parse_bytes, parse_duration, parse_rate
from bench.show.compare import DifferentMachinesError, Result, compare
from bench.show.facts import is_sound
from bench.show.files import write_results
from bench.show.origin import check_rows
from bench.show.progress import SweepProgress
from bench.show.sentence import describe_answer
from bench.show.table import closing_table, plain_table
from kvio.backends.protocol import KVIOError

RESULTS = Path("results")
SCRATCH = RESULTS / "scratch"
T = TypeVar("T")
USER_ERRORS = (
    CatalogError,
    DifferentMachinesError,
    KVIOError,
    LimitRefusedError,
    PlanError,
    RecordError,
    ValidationError,
)
FAILURES = (MeasureError, AnalysisError)
FAILED, USAGE, SUSPECT = 1, 2, 3

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)
out = Console(soft_wrap=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def _option(help_text: str) -> Any:  # noqa: ANN401 — what typer takes as metadata
    return typer.Option(help=help_text)


@app.command()
def model(
    name: Annotated[str, typer.Argument(help="catalogue key, config.json or its folder, or hub name")],
    kv_dtype: Annotated[
        str, _option("dtype of the KV cache: bfloat16, float16, float32, fp8 …")
    ] = "bfloat16",
    tp: Annotated[int, _option("tensor-parallel ranks; bytes are those of one")] = 1,
    as_json: Json = False,
) -> None:
    """KV bytes, parameters and FLOPs of a model, from its dimensions."""
    described = describe_model(resolve_model(name), kv_dtype, tensor_parallel=tp)
    if as_json:
        print(json.dumps(described, indent=1))
        return
    for key, value in described.items():
        out.print(f"{key:36} {value}", markup=False)


@app.command()
def doctor(
    data_dir: Annotated[Path, _option("the folder whose drive is to be measured")] = SCRATCH,
    as_json: Json = False,
) -> None:
    """What this machine can measure, and why not the rest."""
    from bench.measure.doctor import examine  # loads torch, which no other command needs in this process

    _make_scratch(data_dir)
    findings = examine(data_dir)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    for finding in findings:
        out.print(f"{finding.status:8} {finding.topic:14} {finding.what}", markup=False)
        if finding.remedy:
            out.print(f"{'':23} → {finding.remedy}", markup=False)


@app.command()
def sweep(
    model: Annotated[
        str | None, typer.Argument(help="catalogue key, config.json or its folder, or hub name")
    ] = None,
    tokens: Annotated[
        str, _option("prefix lengths, such as 512,1024,2048; auto lets the sweep choose")
    ] = "auto",
    budget: Annotated[str, _option("time for the whole sweep, such as 180s or 10m")] = "180s",
    precision: Annotated[
        float, _option("stop when C* is known this well: half-width of the interval, relative")
    ] = 0.10,
    rounds: Annotated[int | None, _option("rounds at most; default as many as the budget allows")] = None,
    samples: Annotated[int, _option("samples of a case in one round, fewer of slow ones")] = 5,
    backend: Annotated[str, _option("posix, hostmem, simulated, null; several with commas")] = "posix",
    layout: Annotated[str, _option("best, lmcache, vllm-fs, sglang-page; several with commas")] = "best",
    buffered: Annotated[bool, _option("read through the page cache, evicted before each sample")] = False,
    chunk_tokens: Annotated[int | None, _option("tokens of a KV chunk; default the layout's")] = None,
    threads: Annotated[int | None, _option("reading threads; default the layout's")] = None,
    request: Annotated[str | None, _option("bytes of one read, such as 4MiB; default a whole chunk")] = None,
    limit: Annotated[
        str | None, _option("kernel read limit, such as 100MB/s: what if my drive gave this?")
    ] = None,
    data_dir: Annotated[Path, _option("where KV files go: the drive that is measured")] = SCRATCH,
    working_set: Annotated[str | None, _option("bytes of KV files, such as 8GiB")] = None,
    dtype: Annotated[str, _option("bfloat16, float16 or float32")] = "bfloat16",
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1 …")] = "auto",
    attention: Annotated[str, _option("auto, sdpa, eager, flash_attention_2")] = "auto",
    layers: Annotated[str, _option("auto; all: the whole model; fit: a few layers, scaled")] = "auto",
    prefill_chunk: Annotated[int | None, _option("split the prefill as engines do")] = None,
    suffix_tokens: Annotated[int, _option("ask the marginal question for so many next tokens")] = 0,
    weights: Annotated[str | None, _option("folder with real weights (safetensors)")] = None,
    seed: Annotated[int, _option("of order, bytes, weights and tokens")] = 0,
    results: Annotated[Path, _option("where result folders are made")] = RESULTS,
    resume: Annotated[Path | None, _option("go on with the sweep in this result folder")] = None,
) -> None:
    """Measure recompute and load on this machine and locate the crossover."""
    _make_scratch(data_dir)
    if resume is not None:
        asked = read_run(resume).plan
        where = asked.data_dir if asked.data_dir is not None and data_dir == SCRATCH else data_dir
        _measure(asked, data_dir=where, results=results, resume=resume)
        return
    if model is None:
        raise PlanError("no model is named; try: make sweep MODEL=qwen3-8b")
    loads = tuple(
        LoadSpec(
            backend=one,
            preset=preset,
            direct=False if buffered else None,
            chunk_tokens=chunk_tokens,
            num_threads=threads,
            request_bytes=_parsed(parse_bytes, request),
        )
        for one in backend.split(",")
        for preset in layout.split(",")
    )
    plan = Plan.model_validate(
        {
            "model": model,
            "dtype": dtype,
            "device": device,
            "attention": attention,
            "prefill_chunk": prefill_chunk,
            "suffix_tokens": suffix_tokens,
            "layers": layers,
            "weights": weights,
            "loads": loads,
            "simulation": SimulationSpec() if "simulated" in backend.split(",") else None,
            "tokens": parse_lengths(tokens),
            "num_rounds": rounds,
            "num_samples": samples,
            "budget_s": _parsed(parse_duration, budget),
            "precision": precision,
            "seed": seed,
            "data_dir": None if data_dir == SCRATCH else data_dir,
            "limit_bytes_per_s": _parsed(parse_rate, limit),
            "working_set_bytes": _parsed(parse_bytes, working_set),
        }
    )
    _measure(plan, data_dir=data_dir, results=results, resume=None)


@app.command()
def report(
    folder: Annotated[Path | None, typer.Argument(help="result folder; default the newest")] = None,
) -> None:
    """Recompute everything from the samples of a sweep, without measuring."""
    _finish(folder or _newest())


@app.command("compare")
def compare_command(folders: Annotated[list[Path], typer.Argument(help="result folders")]) -> None:
    """Answers of several sweeps side by side; refuses to mix machines."""
    results = []
    for folder in folders:
        run, (samples, _) = read_run(folder), read_samples(folder)
        results.append(Result(run, samples, analyse(run, samples)))
    comparison = compare(results)
    out.print(comparison.table() if out.is_terminal else comparison.plain(), markup=False)


def _parsed(read: Callable[[str], T], text: str | None) -> T | None:
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        raise PlanError(str(error)) from None


def _make_scratch(data_dir: Path) -> None:
    """The default scratch folder is ours to make; any other must be there."""
    if data_dir == SCRATCH:
        data_dir.mkdir(parents=True, exist_ok=True)


def _newest() -> Path:
    found = find_latest(RESULTS)
    if found is None:
        raise RecordError(f"{RESULTS}: no sweep here yet; start one with: make sweep MODEL=qwen3-8b")
    return found


def _measure(plan: Plan, *, data_dir: Path, results: Path, resume: Path | None) -> None:
    """Measure, then show what came of it, even after an interrupt."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with SweepProgress(out, plan.budget_s) as progress:
        hands = Hands(policy=choose_lengths, observer=progress)
        if resume is None:
            folder = run_sweep(plan, root=results, data_dir=data_dir, hands=hands)
        else:
            folder = resume_sweep(resume, data_dir=data_dir, hands=hands)
    _ignore_interrupts()
    _finish(folder)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the measuring; what follows (removing files, writing results) is short and not interrupted again."""
    _ignore_interrupts()
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _finish(folder: Path) -> None:
    """Derive and write everything, print table and answer; the last line names the folder."""
    run, (samples, dropped) = read_run(folder), read_samples(folder)
    run = run.model_copy(update={"notices": (*run.notices, *dropped)})
    analysis = analyse(run, samples)
    write_results(
        folder,
        run,
        samples,
        analysis=analysis,
        summary=summary_frame(analysis),
        crossover=crossover_frame(analysis),
    )
    if out.is_terminal:
        out.print(closing_table(run, analysis))
    else:
        out.print(plain_table(run, analysis), markup=False)
    for name, said, _ in check_rows(run):
        out.print(f"{name}: {said}", markup=False)
    for notice in run.notices:
        out.print(f"notice: {notice.message}", markup=False)
    out.print(describe_answer(run, samples, analysis), markup=False)
    out.print(str(folder), markup=False)
    if run.state != "complete" or not samples:
        raise typer.Exit(FAILED)
    raise typer.Exit(0 if is_sound(run, samples, analysis) else SUSPECT)


def _say_error(error: Exception) -> None:
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}, not {first['input']!r}"
    print(f"kvcross: {' '.join(text.split())}", file=sys.stderr)


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="python -m bench")
    except USER_ERRORS as error:
        _say_error(error)
        sys.exit(USAGE)
    except FAILURES as error:
        _say_error(error)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
