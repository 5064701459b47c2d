"""`longctx`: recomputing against loading as contexts grow to a million tokens."""

from typing import Annotated

import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import resolve_model
from bench.cli.options import Catalogue, Json, given_flags, option
from bench.cli.outputs import Csv, Plot, require_places, show_tables
from bench.predict.longctx import longctx_tables, series_to
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.memory_fit import memory_of
from bench.record.units import parse_rate
from bench.record.validate import InputError, parsed
from bench.report.figures.longctx_figure import write_longctx_figure
from bench.report.text.longctx_text import longctx_text

SHORTEST, LONGEST = 1_000, 1_000_000
MAX_TOKENS = 100_000_000


def longctx(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="catalogue key, config.json or its folder, or hub name")
    ] = "llama-4-maverick",
    gpu: Annotated[str, option("GPU of the catalogue")] = "h200-sxm",
    num_gpus: Annotated[int, option("tensor-parallel GPUs")] = 8,
    bandwidth: Annotated[
        str, option("rate of the storage, shared by all GPUs; several with commas")
    ] = "10GB/s,50GB/s",
    longest: Annotated[int, option("tokens of the longest prefix")] = LONGEST,
    dtype: Annotated[str, option("of the weights: bfloat16, float16, fp8")] = "bfloat16",
    kv_dtype: Annotated[str, option("of the KV cache: bfloat16, fp8, …")] = "bfloat16",
    engine: Annotated[str, option("vllm, or kernels: without an engine, a bound")] = "vllm",
    catalogue: Catalogue = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Recompute against load to a million tokens, windows and chunks respected; modelled, nothing is measured."""
    require_places(csv, plot)
    if not SHORTEST < longest <= MAX_TOKENS:
        raise InputError(f"--longest must be above {SHORTEST:,} and at most {MAX_TOKENS:,}, not {longest:,}")
    if num_gpus < 1:
        raise InputError(f"--num-gpus must be 1 or more, not {num_gpus}")
    known, devices = resolve_model(model), read_devices(catalogue)
    rates = [parsed(parse_rate, text) for text in bandwidth.split(",")]
    costs = [
        build_model(
            known,
            MachineSpec(gpu, num_gpus, dtype, kv_dtype, engine, bytes_per_s=rate),
            devices,
        )
        for rate in dict.fromkeys(rates)
    ]
    chosen = "num_gpus" in given_flags(context)
    tables = longctx_tables(
        known,
        costs,
        series_to(longest, SHORTEST),
        kv_dtype=kv_dtype,
        memory_bytes=memory_of(devices, gpu),
        taken=None if chosen else f"{num_gpus} GPUs together, since --num-gpus names no other number",
    )
    show_tables(tables, text=longctx_text, draw=write_longctx_figure, csv=csv, plot=plot, as_json=as_json)
