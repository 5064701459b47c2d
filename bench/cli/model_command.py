"""`model`: KV bytes, parameters and FLOPs, from a model's dimensions."""

import json
from typing import Annotated

import typer

from bench.catalog.models.resolve import AUTO, resolve_model
from bench.catalog.models.summary import describe_model
from bench.cli.options import Json, option, out


def model(
    name: Annotated[str, typer.Argument(help="catalogue key, config.json or its folder, or hub name")],
    kv_dtype: Annotated[
        str, option("dtype of the KV cache: bfloat16, float32, fp8 …; auto: the checkpoint's, else bfloat16")
    ] = AUTO,
    tp: Annotated[int, option("tensor-parallel ranks; bytes are those of one")] = 1,
    as_json: Json = False,
) -> None:
    """KV bytes, parameters and FLOPs of a model, from its dimensions."""
    known = resolve_model(name)
    described = describe_model(known, known.choose_kv_dtype(kv_dtype), tensor_parallel=tp)
    if as_json:
        out.print(json.dumps(described, indent=1), markup=False)
        return
    for key, value in described.items():
        out.print(f"{key:36} {value}", markup=False)
