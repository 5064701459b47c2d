"""Prefixes that cannot be on a GPU, or are longer than the model is made for, are said to be."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.kv_capacity import RESERVE_SHARE, Cache, divide_gpu_memory
from bench.catalog.models.resolve import resolve_model
from bench.cli.predict_command import predict
from bench.predict.machine_spec import Setting, build_model
from bench.predict.memory_fit import fitting_tokens, memory_of, say_length, say_room
from tests.reference import find_plain

LLAMA = resolve_model("llama-3.1-8b")


def _notices(*arguments: str) -> list[str]:
    app = typer.Typer()
    app.add_typer(predict, name="predict")
    found = CliRunner().invoke(app, ["predict", *arguments, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    said: list[str] = json.loads(found.output)["notices"]
    return said


@pytest.mark.parametrize(
    ("key", "gpu", "ranks", "dtype"),
    [
        ("llama-3.1-8b", "L4", 1, "bfloat16"),
        ("deepseek-v3", "H200", 8, "fp8"),
        ("gemma-3-12b", "H100", 1, "fp8"),
    ],
)
def test_as_many_tokens_fit_as_capacity_says(key: str, gpu: str, ranks: int, dtype: str) -> None:
    model, devices = resolve_model(key), read_devices()
    memory = memory_of(devices, gpu)
    assert memory is not None
    cost = build_model(model, Setting(gpu, ranks, dtype, bytes_per_s=1e9), devices)
    divided = divide_gpu_memory(
        Cache(model, "bfloat16", ranks), int(memory), weight_dtype=dtype, reserve_share=RESERVE_SHARE
    )
    assert fitting_tokens(cost, memory) == divided.sequence_tokens


def test_weights_that_leave_nothing_leave_room_for_no_token() -> None:
    cost = build_model(LLAMA, Setting("L4", bytes_per_s=1e9), read_devices())
    weights = 2 * LLAMA.geometry.params_total
    assert fitting_tokens(cost, weights) == 0
    assert "at most 0 tokens do" in say_room(cost, 64, weights)[0]
    assert fitting_tokens(cost, None) is None
    assert say_room(cost, 10**9, None) == ()


def test_a_prediction_beyond_the_memory_says_how_many_tokens_fit() -> None:
    said = _notices("--model", "llama-3.1-8b", "--gpu", "L4", "--bandwidth", "5GB/s", "--tokens", "1024")
    (room,) = [notice for notice in said if "do not fit into its 24 GB" in notice]
    assert "16 GB of weights and 17 GB of KV of 131,072 tokens" in room
    assert "at most 51,418 tokens do" in room
    roomy = _notices("--model", "llama-3.1-8b", "--gpu", "H200", "--bandwidth", "5GB/s", "--tokens", "1024")
    assert not any("do not fit" in notice for notice in roomy)


def test_a_prediction_beyond_the_context_of_the_model_says_so() -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "H200", "--bandwidth", "5GB/s", "--tokens")
    due = "the model is made for 131,072 tokens; longer prefixes are modelled all the same"
    assert due in _notices(*asked, "131073")
    assert due not in _notices(*asked, "131072")
    assert say_length(LLAMA.geometry, 131_073) == (due,)


def test_a_prediction_from_a_sweep_beyond_the_context_of_the_model_says_so() -> None:
    folder = find_plain()
    model = json.loads((Path(folder) / "run.json").read_text())["plan"]["model"]
    made_for = resolve_model(model).geometry.max_position_embeddings
    assert made_for is not None
    said = _notices("--from", str(folder), "--tokens", str(made_for + 1))
    assert f"the model is made for {made_for:,} tokens; longer prefixes are modelled all the same" in said
