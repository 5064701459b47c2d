"""`capacity`: how many bytes of KV users and contexts need, and how many fit."""

from typing import Annotated

import typer

from bench.catalog.devices.datasheet import pick_figure
from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.kv_capacity import (
    RESERVE_SHARE,
    Cache,
    gpu_table,
    length_table,
    model_table,
    require_weight_bits,
    room_table,
    token_table,
    users_table,
)
from bench.catalog.models.resolve import AUTO, read_catalogue, resolve_model
from bench.cli.options import Catalogue, Json, given_flags, option, require_unused
from bench.cli.outputs import Csv, Plot, require_places, show_tables
from bench.record.units import parse_bytes
from bench.record.validate import InputError, parse_counts, parsed, require_share
from bench.report.figures.sizing_figure import write_capacity_figure
from bench.report.text.capacity_text import capacity_text

OF_THE_LIST = {"csv", "as_json"}  # options that the list of models takes


def capacity(
    context: typer.Context,
    model: Annotated[
        str | None,
        option("catalogue key, config.json or hub name; several with commas; none: list the catalogue"),
    ] = None,
    users: Annotated[str, option("numbers of users, with commas")] = "1,100,1000,10000",
    tokens: Annotated[
        str, typer.Option("--context", help="tokens of each user, with commas")
    ] = "10000,100000",
    lengths: Annotated[str, option("lengths of one sequence, with commas")] = "1000,10000,100000,1000000",
    kv_dtype: Annotated[
        str, option("dtype of the KV cache: bfloat16, float32, fp8 …; auto: the checkpoint's, else bfloat16")
    ] = AUTO,
    dtype: Annotated[str, option("dtype of the weights: bfloat16, float32, fp8, int4 …")] = "bfloat16",
    tp: Annotated[int, option("tensor-parallel ranks")] = 1,
    dram: Annotated[str, option("room for KV in DRAM or on a drive, such as 1TB or 512GiB")] = "1TB",
    gpu: Annotated[str | None, option("a GPU of the catalogue, for its memory")] = None,
    gpu_memory: Annotated[str | None, option("memory of one GPU, such as 80GB or 79.6GiB")] = None,
    reserve: Annotated[float, option("share of GPU memory for activations and the rest")] = RESERVE_SHARE,
    catalogue: Catalogue = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """KV bytes of users and contexts, and what fits into DRAM and GPUs; arithmetic, nothing is measured."""
    require_places(csv, plot)
    if model is None:
        _refuse_unused(context)
        tables = {"models": model_table([Cache(model) for model in read_catalogue().values()])}
    else:
        if gpu is None and gpu_memory is None:
            why = "is of a GPU's memory: add --gpu NAME or --gpu-memory 80GB"
            require_unused(context, ("dtype", "reserve"), why)
        if gpu is None:
            require_unused(context, ("catalogue",), "has GPUs, and none is named: add --gpu NAME")
        require_weight_bits(dtype)
        require_share("reserve", reserve)
        models = [resolve_model(name) for name in model.split(",")]
        caches = [Cache(one, one.choose_kv_dtype(kv_dtype), tp) for one in models]
        contexts = parse_counts("context", tokens)
        tables = {
            "bytes_per_token": token_table(caches, max(contexts)),
            "lengths": length_table(caches, parse_counts("lengths", lengths)),
            "users": users_table(caches, parse_counts("users", users), contexts),
            "room": room_table(caches, parsed(parse_bytes, dram) or 0, contexts),
        }
        memory_bytes = _find_memory(gpu, parsed(parse_bytes, gpu_memory), read_devices(catalogue))
        if memory_bytes is not None:
            tables["gpu"] = gpu_table(
                caches, memory_bytes, contexts, weight_dtype=dtype, reserve_share=reserve
            )
    show_tables(tables, text=capacity_text, draw=write_capacity_figure, csv=csv, plot=plot, as_json=as_json)


def _find_memory(gpu: str | None, given_bytes: int | None, devices: Devices) -> int | None:
    """Memory of one GPU: as given, or of the catalogue; None when no GPU is named."""
    if gpu is None:
        return given_bytes
    if given_bytes is not None:
        raise InputError("give --gpu or --gpu-memory, not both")
    figure = pick_figure(devices.find_gpu(gpu).memory_bytes)
    if figure is None:
        raise InputError(f"--gpu {gpu}: its memory is not in the catalogue; try --gpu-memory 80GB")
    return round(figure.value)


def _refuse_unused(context: typer.Context) -> None:
    """Stop on options that the list of models does not take."""
    for name, flag in given_flags(context).items():
        if name not in OF_THE_LIST:
            raise InputError(f"{flag} needs a model; try --model llama-3.3-70b")
