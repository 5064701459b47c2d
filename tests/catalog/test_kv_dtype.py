"""Dtypes that a checkpoint's quantization_config declares, and the contexts and windows beside them."""

import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import Model, describe_config
from bench.predict.machine_spec import MachineSpec, build_model

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 40960,
}
FLOAT8 = {"num_bits": 8, "type": "float"}
PLAIN_BYTES = 131_072  # per token: 2 x 32 layers x 8 heads x 128 x 2 bytes


def _model(**changes: object) -> Model:
    return describe_config({**LLAMA, **changes}, "config.json", key="k", name="n", source="s")


def _token_bytes(model: Model, asked: str = "auto") -> int:
    return model.geometry.layout(model.choose_kv_dtype(asked)).bytes_per_token


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "compressed-tensors", "kv_cache_scheme": FLOAT8},
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": FLOAT8},
        {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
        {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}},
        {
            "quant_method": "quark",
            "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}},
        },
    ],
    ids=lambda value: "-".join(value),
)
def test_a_declared_fp8_kv_cache_takes_half_the_bytes(quantization: dict[str, object]) -> None:
    model = _model(quantization_config=quantization)
    assert _token_bytes(model) == PLAIN_BYTES // 2
    assert _token_bytes(model, "bfloat16") == PLAIN_BYTES
    machine = MachineSpec("H100", bytes_per_s=1e9)
    cost = build_model(model, machine, read_devices())
    assert cost.layout.bytes_per_token == PLAIN_BYTES // 2
    assert any("--kv-dtype" in notice for notice in cost.notices)


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "compressed-tensors", "kv_cache_scheme": None},
        {"quant_method": "fp8"},
        {"quant_method": "quark", "kv_cache_quant_config": {}},
    ],
)
def test_quantized_weights_alone_leave_the_kv_cache_as_it_is(quantization: dict[str, object]) -> None:
    assert _token_bytes(_model(quantization_config=quantization)) == PLAIN_BYTES


@pytest.mark.parametrize(
    "declared",
    [
        {"kv_cache_scheme": {"num_bits": 4, "type": "float"}},
        {"kv_cache_quant_algo": "NVFP4"},
        {"kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "int8"}}}},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_kv_cache_of_unknown_bytes_is_refused(declared: dict[str, object]) -> None:
    with pytest.raises(CatalogError, match=next(iter(declared))):
        _model(quantization_config=declared)


def _compressed(kind: str, bits: int) -> dict[str, object]:
    weights = {"num_bits": bits, "type": kind}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        (_compressed("float", 8), "fp8"),
        (_compressed("int", 4), "int4"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "compressed-tensors"}, None),
        ({"quant_method": "new-container"}, None),
    ],
)
def test_the_name_of_a_container_is_no_dtype(quantization: dict[str, object], dtype: str | None) -> None:
    assert _model(quantization_config=quantization).published_dtype == dtype


YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"rope_scaling": {"rope_type": "yarn", **YARN}}, 131_072),
        ({"rope_scaling": {"type": "yarn", **YARN}}, 131_072),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **YARN}}, 131_072),
        ({"rope_scaling": {"rope_type": "yarn", **YARN}, "max_position_embeddings": 163_840}, 163_840),
        ({"rope_scaling": {"rope_type": "llama3", **YARN}}, 40_960),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 40_960),
        ({"rope_scaling": None}, 40_960),
    ],
)
def test_yarn_lengthens_the_context(changes: dict[str, object], tokens: int) -> None:
    assert _model(**changes).geometry.max_position_embeddings == tokens


@pytest.mark.parametrize(("window", "beyond"), [(262_144, PLAIN_BYTES), (4096, 0)])
def test_a_window_longer_than_the_context_drops_nothing(window: int, beyond: int) -> None:
    model = _model(model_type="mistral", sliding_window=window)
    layout = model.geometry.layout("bfloat16")
    assert (layout.bytes_per_token, layout.bytes_per_token_beyond_window) == (PLAIN_BYTES, beyond)


def test_dual_chunk_attention_keeps_the_kv_of_every_token() -> None:
    dual = {"chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144}
    assert _token_bytes(_model(model_type="qwen2", dual_chunk_attention_config=dual)) == PLAIN_BYTES
