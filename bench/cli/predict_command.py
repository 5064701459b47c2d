"""`predict`: modelled times of a described machine or of a sweep's machine; the model checked on published rows."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import AUTO, resolve_model
from bench.cli.options import Catalogue, Json, option, out
from bench.cli.outputs import Csv, Plot, require_places
from bench.record.atomic_write import writing
from bench.record.plan import PlanError
from bench.record.units import parse_rate
from bench.record.validate import InputError, parsed, require_count

if TYPE_CHECKING:
    from bench.predict.prediction import ModelledAnswer

# The verbs import the model when the options are right: numpy, scipy, pandas and matplotlib take seconds, which --help
# and usage errors must not cost.

FAILED = 1
MIN_TOKENS, MAX_TOKENS = 2, 2**31
TOKENS = re.compile(r"(\d{1,12})([kM]?)")
FACTORS = {"": 1, "k": 1000, "M": 1_000_000}

Tokens = Annotated[
    str, option("prefix lengths: 1024,8k; 1k..1M for steps of 1, 2, 5; auto for powers of two")
]
ChunkTokens = Annotated[int, option("tokens of a KV chunk, for P* and for rounding up")]
Drives = Annotated[
    str | None, option('drives or networks of the catalogue, with commas; "4x NAME" for four; dram')
]
Rates = Annotated[str | None, option("rates of the storage, with commas, such as 10GB/s,50GB/s")]

predict = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Modelled times of both arms, C*, P*, break-even bandwidth and verdict; nothing is measured.",
)


@predict.command()
def machine(
    model: Annotated[str, option("catalogue key, config.json or its folder, or hub name")],
    gpu: Annotated[str, option("GPU of the catalogue, such as H100")],
    num_gpus: Annotated[int, option("tensor-parallel GPUs")] = 1,
    ssd: Drives = None,
    bandwidth: Rates = None,
    tokens: Tokens = "auto",
    dtype: Annotated[str, option("of the weights: bfloat16, float16, fp8")] = "bfloat16",
    kv_dtype: Annotated[
        str, option("of the KV cache: bfloat16, fp8, …; auto: the checkpoint's, else bfloat16")
    ] = AUTO,
    engine: Annotated[str, option("vllm, or kernels: without an engine, a bound")] = "vllm",
    chunk_tokens: ChunkTokens = 256,
    catalogue: Catalogue = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """A model on GPUs and storage of the catalogue, each storage answered."""
    require_places(csv, plot)
    require_count("--num-gpus", num_gpus, most=MAX_TOKENS)
    require_count("--chunk-tokens", chunk_tokens, most=MAX_TOKENS)
    storages = list(_storages(ssd, bandwidth))
    if not storages:
        raise PlanError("name the storage: --ssd NAME, --bandwidth 10GB/s, or --ssd dram for host memory")
    lengths = _read_lengths(tokens)
    from bench.predict.machine_spec import MachineSpec
    from bench.predict.storage_answers import answer_machine

    answers = answer_machine(
        resolve_model(model),
        MachineSpec(gpu, num_gpus, dtype, kv_dtype, engine),
        read_devices(catalogue),
        storages=storages,
        lengths=lengths,
        chunk_tokens=chunk_tokens,
    )
    _show(answers, csv=csv, plot=plot, as_json=as_json)


@predict.command()
def sweep(
    result: Annotated[Path, typer.Argument(help="result folder of the sweep to calibrate on")],
    series: Annotated[str | None, option("its load series, where it has several")] = None,
    ssd: Drives = None,
    bandwidth: Rates = None,
    tokens: Tokens = "auto",
    chunk_tokens: ChunkTokens = 256,
    catalogue: Catalogue = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """The model calibrated on a sweep, for other lengths, and for other storage where one is named."""
    require_places(csv, plot)
    require_count("--chunk-tokens", chunk_tokens, most=MAX_TOKENS)
    storages, lengths = list(_storages(ssd, bandwidth)), _read_lengths(tokens)
    from bench.predict.storage_answers import answer_sweep

    answers = answer_sweep(
        result,
        read_devices(catalogue),
        series=series,
        storages=storages,
        lengths=lengths,
        chunk_tokens=chunk_tokens,
    )
    _show(answers, csv=csv, plot=plot, as_json=as_json)


@predict.command()
def check(
    rows: Annotated[Path, typer.Argument(help="CSV with the columns of bench/predict/published.csv")],
    calibrate: Annotated[
        str | None, option("ids of at least three rows of one setup, with commas; they are not counted")
    ] = None,
    catalogue: Catalogue = None,
) -> None:
    """Predict published rows; print the error of each and the median of all."""
    names = tuple(name.strip() for name in calibrate.split(",") if name.strip()) if calibrate else ()
    if calibrate is not None and not names:
        raise PlanError("--calibrate names no row: give the ids of at least three rows of one setup")
    from bench.predict.published import read_rows
    from bench.predict.published_check import check_rows, median_error
    from bench.report.text.prediction_text import outcome_lines

    outcomes = check_rows(read_rows(rows), read_devices(catalogue), calibrate_on=names)
    out.print("\n".join(outcome_lines(outcomes)), markup=False)
    if median_error(outcomes)[1] == 0:
        raise typer.Exit(FAILED)


def _storages(ssd: str | None, bandwidth: str | None) -> Iterator[tuple[str | None, float | None]]:
    """Each storage named, as a name or a rate."""
    for name in dict.fromkeys(ssd.split(",") if ssd is not None else ()):
        yield name.strip(), None
    for text in dict.fromkeys(bandwidth.split(",") if bandwidth is not None else ()):
        yield None, parsed(parse_rate, text)


def _read_lengths(text: str) -> tuple[int, ...] | None:
    """The lengths in "1024,8k" or "1k..1M"; None for auto."""
    if text.strip() == "auto":
        return None
    shortest, dots, longest = text.partition("..")
    if dots:
        first, last = _read_count(shortest), _read_count(longest)
        if first >= last:
            raise InputError(f"--tokens {text!r:.40}: a range starts at its shortest length")
        return spread_lengths(first, last)
    return tuple(sorted({_read_count(part) for part in text.split(",")}))


def spread_lengths(shortest: int, longest: int) -> tuple[int, ...]:
    """Lengths 1, 2, 5, 10 … times `shortest`, and the longest itself."""
    steps = [int(step * 10**power) for power in range(len(str(longest))) for step in (1, 2, 5)]
    return (*(shortest * step for step in steps if shortest * step < longest), longest)


def _read_count(text: str) -> int:
    found = TOKENS.fullmatch(text.strip())
    if found is None:
        raise InputError(f"--tokens: {text!r:.40} is not a number of tokens. Use 1024,8k or 1k..1M.")
    count = int(found[1]) * FACTORS[found[2]]
    if not MIN_TOKENS <= count <= MAX_TOKENS:
        raise InputError(f"--tokens: {count} is not between {MIN_TOKENS} and 2^31")
    return count


def _show(answers: Sequence["ModelledAnswer"], *, csv: Path | None, plot: Path | None, as_json: bool) -> None:
    from bench.report.figures.matrix_figure import write_prediction_figure
    from bench.report.text.planning_text import write_tables
    from bench.report.text.prediction_text import answer_tables, answer_text

    written = []
    if csv is not None:
        with writing(csv):
            written += write_tables(csv, answer_tables(answers))
    if plot is not None:
        with writing(plot):
            write_prediction_figure(plot, answers)
        written.append(plot)
    if as_json:
        shown = {"modelled": True, "answers": [asdict(found) for found in answers]}
        out.print(json.dumps(shown, indent=1), markup=False)
        return
    out.print("\n\n".join(map(answer_text, answers)), markup=False)
    for path in written:
        out.print(str(path), markup=False)
