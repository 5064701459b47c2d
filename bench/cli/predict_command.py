"""`predict`: what a described machine would do, modelled; `predict check`: the model against published rows."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.resolve import resolve_model
from bench.cli.options import Catalogue, Json, given_flags, option, out, require_unused
from bench.estimate.fits import EXTRAPOLATE
from bench.predict.bounded import Bounded
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.memory_fit import format_length, format_room, memory_of
from bench.predict.prediction import ModelledAnswer, answer
from bench.predict.published import read_rows
from bench.predict.published_check import check_rows, median_error
from bench.predict.rates import find_storage_rate
from bench.predict.sweep_model import SweepModel, fit_sweep
from bench.record.plan import PlanError, parse_lengths
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.record.units import parse_rate
from bench.record.validate import parsed
from bench.report.text.prediction_text import answer_csv, answer_text, outcome_lines

FAILED = 1
MIN_TOKENS, MAX_TOKENS = 2, 2**31
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
MAX_LENGTH = 131_072
OF_A_MACHINE = ("num_gpus", "dtype", "kv_dtype", "engine")

predict = typer.Typer(add_completion=False, rich_markup_mode=None, invoke_without_command=True)


@predict.callback()
def predict_setting(
    context: typer.Context,
    model: Annotated[str | None, option("catalogue key, config.json or its folder, or hub name")] = None,
    gpu: Annotated[str | None, option("GPU of the catalogue, such as H100")] = None,
    num_gpus: Annotated[int, option("tensor-parallel GPUs")] = 1,
    ssd: Annotated[
        str | None, option('drive or network of the catalogue, "4x NAME" for four, or dram')
    ] = None,
    bandwidth: Annotated[str | None, option("rate of the storage, such as 10GB/s")] = None,
    tokens: Annotated[str, option("prefix lengths, such as 1024,8192; auto for powers of two")] = "auto",
    dtype: Annotated[str, option("of the weights: bfloat16, float16, fp8")] = "bfloat16",
    kv_dtype: Annotated[str, option("of the KV cache: bfloat16, fp8, …")] = "bfloat16",
    engine: Annotated[str, option("vllm, or kernels: without an engine, a bound")] = "vllm",
    chunk_tokens: Annotated[int, option("tokens of a KV chunk, for P* and for rounding up")] = 256,
    sweep: Annotated[
        Path | None, typer.Option("--from", help="calibrate on the sweep in this result folder")
    ] = None,
    series: Annotated[str | None, option("the load series of --from, when it has several")] = None,
    catalogue: Catalogue = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
) -> None:
    """Modelled times of both arms, C*, P*, break-even bandwidth and verdict; nothing is measured."""
    if context.invoked_subcommand is not None:
        unread = f"is not read by `predict {context.invoked_subcommand}`: leave it out"
        require_unused(context, given_flags(context), unread)
        return
    if as_json and as_csv:
        raise PlanError("--json and --csv are two formats: ask for one")
    if ssd is not None and bandwidth is not None:
        raise PlanError("--ssd and --bandwidth are two storages: name one")
    lengths = _read_lengths(tokens)
    _require_counts(num_gpus, chunk_tokens)
    rate, devices = parsed(parse_rate, bandwidth), read_devices(catalogue)
    if sweep is not None:
        if model is not None or gpu is not None:
            raise PlanError("--from takes model and machine from the sweep: leave --model and --gpu out")
        require_unused(context, OF_A_MACHINE, "is of a described machine; --from has its own: leave it out")
        fitted = _from_sweep(sweep, series, ssd=ssd, rate=rate, devices=devices)
        _print(_answer_sweep(fitted, lengths, chunk_tokens), as_json=as_json, as_csv=as_csv)
        return
    require_unused(context, ("series",), "chooses a load series of --from: add --from RESULT")
    if model is None or gpu is None:
        raise PlanError(
            "name a model and a GPU, such as: predict --model llama-3.1-8b --gpu H100 --ssd pm9a3"
        )
    if ssd is None and rate is None:
        raise PlanError("name the storage: --ssd NAME, --bandwidth 10GB/s, or --ssd dram for host memory")
    known = resolve_model(model)
    setting = MachineSpec(
        gpu=gpu,
        num_gpus=num_gpus,
        dtype=dtype,
        kv_dtype=kv_dtype,
        engine=engine,
        storage=None if ssd is None or ssd.lower() == "dram" else ssd,
        bytes_per_s=rate,
    )
    longest = known.geometry.max_position_embeddings or MAX_LENGTH
    described = build_model(known, setting, devices)
    asked = lengths or tuple(n for n in LENGTHS if n <= longest) or (max(longest, MIN_TOKENS),)
    found = answer(described, asked, chunk_tokens=chunk_tokens, longest=longest)
    limits = (
        *format_length(known.geometry, max(asked)),
        *format_room(described, found.searched[1], memory_of(devices, gpu)),
    )
    _print(replace(found, notices=(*found.notices, *limits)), as_json=as_json, as_csv=as_csv)


@predict.command()
def check(
    rows: Annotated[Path, typer.Argument(help="CSV with the columns of bench/predict/published.csv")],
    calibrate: Annotated[
        str | None, option("ids of at least three rows of one setup, with commas; they are not counted")
    ] = None,
    catalogue: Catalogue = None,
) -> None:
    """Predict published rows, print the error of each, and the median of all."""
    names = tuple(name.strip() for name in calibrate.split(",") if name.strip()) if calibrate else ()
    if calibrate is not None and not names:
        raise PlanError("--calibrate names no row: give the ids of at least three rows of one setup")
    outcomes = check_rows(read_rows(rows), read_devices(catalogue), calibrate_on=names)
    out.print("\n".join(outcome_lines(outcomes)), markup=False)
    if median_error(outcomes)[1] == 0:
        raise typer.Exit(FAILED)


def _read_lengths(tokens: str) -> tuple[int, ...] | None:
    lengths = parse_lengths(tokens)
    if lengths is not None and not all(MIN_TOKENS <= n <= MAX_TOKENS for n in lengths):
        raise PlanError(f"token list {tokens!r:.60}: a prefix has at least 2 tokens, and at most 2^31")
    return None if lengths is None else tuple(sorted(set(lengths)))


def _require_counts(num_gpus: int, chunk_tokens: int) -> None:
    for name, value in (("--num-gpus", num_gpus), ("--chunk-tokens", chunk_tokens)):
        if value < 1:
            raise PlanError(f"{name} {value} is not 1 or more")
        if value > MAX_TOKENS:
            raise PlanError(f"{name} {value} is more than 2^31")


def _from_sweep(
    folder: Path, series: str | None, *, ssd: str | None, rate: float | None, devices: Devices
) -> SweepModel:
    run, (samples, _) = read_run(folder), read_samples(folder)
    fitted = fit_sweep(run, samples, resolve_model(run.plan.model).geometry, series=series)
    if rate is not None:
        return fitted.with_storage(f"one of {rate / 1e9:g} GB/s", Bounded(rate))
    if ssd is not None:
        name, spread, notices = find_storage_rate(devices, ssd)
        return fitted.with_storage(name, spread, *notices)
    return fitted


def _answer_sweep(fitted: SweepModel, lengths: tuple[int, ...] | None, chunk_tokens: int) -> ModelledAnswer:
    """The answer within EXTRAPOLATE times the measured lengths; what lies outside of them says so."""
    longest, asked = int(EXTRAPOLATE * fitted.measured[1]), lengths or fitted.recompute.lengths
    found = answer(fitted, asked, chunk_tokens=chunk_tokens, longest=longest, measured=fitted.measured)
    return replace(found, notices=(*found.notices, *format_length(fitted.geometry, max(asked))))


def _print(found: ModelledAnswer, *, as_json: bool, as_csv: bool) -> None:
    if as_json:
        print(json.dumps({"modelled": True, **asdict(found)}, indent=1))
    elif as_csv:
        print(answer_csv(found), end="")
    else:
        out.print(answer_text(found), markup=False)
