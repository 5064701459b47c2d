import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalog.models.architectures import ARCHITECTURES
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.geometry import Geometry
from bench.catalog.models.resolve import describe_config, read_config, resolve_model
from tests.helpers.tiny_configs import TINY_CONFIGS


def _geometry(model_type: str, **changes: object) -> Geometry:
    return describe_config(
        {"model_type": model_type, **TINY_CONFIGS.get(model_type, {}), **changes},
        "config.json",
        key="tiny",
        name="tiny",
        source="test",
    ).geometry


def _kinds(geometry: Geometry) -> list[str]:
    return [layer.attention for layer in geometry.layers]


def test_every_architecture_has_a_tiny_configuration() -> None:
    assert TINY_CONFIGS.keys() == ARCHITECTURES.keys()


def test_a_file_and_its_folder_give_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "My Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", **TINY_CONFIGS["qwen3"]}))
    by_file, by_folder = resolve_model(str(folder / "config.json")), resolve_model(str(folder))
    assert by_file.geometry == by_folder.geometry
    assert by_file.key == by_folder.key == "my-model"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "holds a list, not an object"),
        (b'{"model_type": "llama", "num_hidden_layers": NaN}', "nan is not a whole number"),
        (b'{"model_type": "llama", "num_hidden_layers": -Infinity}', "-inf is not a whole number"),
        (b"\xff\xfe\x00{", "not valid JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b"{}", "field model_type: missing"),
        (b'{"model_type": 3}', "field model_type: missing or not a word"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, text: bytes, problem: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text)
    with pytest.raises(CatalogError) as caught:
        read_config(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert problem in message
    assert "\n" not in message


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"config\.json: No such file or directory"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("hidden_size", "4096", "'4096' is not a whole number"),
        ("hidden_size", 64.0, "64.0 is not a whole number"),
        ("hidden_size", True, "True is not a whole number"),
        ("hidden_size", -64, "-64 is not between 1"),
        ("hidden_size", 2**40, "is not between 1"),
        ("hidden_size", None, "missing"),
        ("hidden_size", float("nan"), "nan is not a whole number"),
        ("num_attention_heads", 0, "0 is not between 1"),
        ("num_attention_heads", 5, "2 does not divide 5"),
        ("num_key_value_heads", 3, "3 does not divide 4 attention heads"),
        ("num_hidden_layers", 10**6, "is more than 10000"),
        ("tie_word_embeddings", "yes", "neither true nor false"),
        ("vocab_size", [], "is not a whole number"),
    ],
)
def test_a_wrong_value_is_refused_by_file_and_field(field: str, value: object, problem: str) -> None:
    with pytest.raises(CatalogError) as caught:
        _geometry("llama", **{field: value})
    assert str(caught.value).startswith("config.json: field ")
    assert problem in str(caught.value)


def test_heads_that_do_not_divide_the_width_need_a_head_dim() -> None:
    with pytest.raises(CatalogError, match="num_attention_heads: 6 does not divide hidden_size 64"):
        _geometry("llama", num_attention_heads=6)
    assert _geometry("llama", num_attention_heads=6, head_dim=24).layout("bfloat16").bytes_per_token == (
        4 * 2 * 2 * 24 * 2
    )


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("model_type", ["llama", "deepseek_v3", "gpt_oss", "opt"])
def test_a_missing_dimension_is_named(model_type: str, field: str) -> None:
    config = {"model_type": model_type, **TINY_CONFIGS[model_type]}
    del config[field]
    with pytest.raises(CatalogError, match=f"config.json: field {field}: missing"):
        describe_config(config, "config.json", key="k", name="n", source="s")


def test_missing_key_value_heads_are_guessed_only_where_the_class_says_one_per_head() -> None:
    assert _geometry("phi3", num_key_value_heads=None).family == "sliding"
    assert _geometry("llama", num_key_value_heads=None).family == "mha"
    with pytest.raises(CatalogError, match="num_key_value_heads: missing"):
        _geometry("qwen3", num_key_value_heads=None)


@pytest.mark.parametrize("model_type", ["gemma4", "mamba2", "qwen9", "gemma3n", "falcon", "bert", "t5"])
def test_an_unknown_architecture_is_refused_by_name(model_type: str) -> None:
    with pytest.raises(CatalogError, match=f"field model_type: '{model_type}' is not understood"):
        _geometry(model_type)


def test_an_unknown_architecture_hints_at_near_ones() -> None:
    with pytest.raises(CatalogError, match="near it: qwen3_moe"):
        _geometry("qwen3_moee")


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("llama", "num_kv_shared_layers", 2),
        ("llama", "kv_compression", {"ratio": 4}),
        ("llama", "cross_attention_layers", [1]),
        ("llama", "sliding_window", 16),
        ("llama", "attention_chunk_size", 16),
        ("llama", "layer_types", ["full_attention"] * 3 + ["mystery_attention"]),
        ("qwen3_next", "layer_types", ["sliding_attention"] * 4),
        ("mixtral", "attention_bias", True),
        ("deepseek_v3", "index_topk", 2048),
        ("glm_moe_dsa", "indexer_types", ["full", "mystery", "shared", "shared"]),
        ("deepseek_v32", "index_topk_freq", 4),
        ("qwen3", "use_qk_norm", False),
        ("deepseek_v3", "moe_layer_freq", 2),
        ("opt", "word_embed_proj_dim", 32),
        ("opt", "do_layer_norm_before", False),
        ("minimax_m2", "attn_type_list", [1, 1, 0, 1]),
        ("nemotron_h", "hybrid_override_pattern", "M*-Z"),
        ("gemma3_text", "use_bidirectional_attention", True),
        ("phi3", "head_dim", 24),
        ("smollm3", "use_sliding_window", True),
        ("qwen3_next", "attn_output_gate", False),
    ],
)
def test_a_field_that_changes_the_cache_in_an_unknown_way_is_refused_by_name(
    model_type: str, field: str, value: object
) -> None:
    with pytest.raises(CatalogError, match=f"config.json: field {field}: "):
        _geometry(model_type, **{field: value})


@settings(deadline=None, max_examples=50)
@given(
    before=st.sampled_from(["new", "my", "x9", "num"]),
    word=st.sampled_from(
        [
            "kv",
            "cache",
            "attention",
            "window",
            "latent",
            "heads",
            "layers",
            "experts",
            "ssm",
            "cross",
            "indexer",
        ]
    ),
    after=st.sampled_from(["size", "mode", "ratio", "groups"]),
    value=st.one_of(st.integers(1, 100), st.just(True), st.just([1]), st.just("on")),
)
def test_invented_fields_about_the_cache_are_refused_and_named(
    before: str, word: str, after: str, value: object
) -> None:
    field = f"{before}_{word}_{after}"
    with pytest.raises(CatalogError, match=f"field {field}: .* not understood"):
        _geometry("llama", **{field: value})


@pytest.mark.parametrize("off", [None, False, 0, []])
def test_a_switched_off_field_does_not_matter(off: object) -> None:
    assert _geometry("llama", num_kv_shared_layers=off) == _geometry("llama")


def test_fields_that_say_nothing_about_the_decoder_do_not_matter() -> None:
    added = {"initializer_range": 0.02, "rope_scaling": {"factor": 8.0}, "quantization_config": {"bits": 4}}
    more = {"attention_dropout": 0.1, "use_cache": True, "num_nextn_predict_layers": 1, "vendor": "x"}
    assert _geometry("llama", **added, **more) == _geometry("llama")


def test_an_infinite_number_in_a_field_that_does_not_matter_is_read_over(tmp_path: Path) -> None:
    config = {
        "model_type": "nemotron_h",
        **TINY_CONFIGS["nemotron_h"],
        "time_step_limit": [0.0, float("inf")],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path).geometry == _geometry("nemotron_h")


@pytest.mark.parametrize(
    "spelled",
    [
        {"indexer_types": ["full", "shared", "shared", "full"]},
        {"index_topk_pattern": "FSSF"},
        {"index_topk_freq": 3, "index_skip_topk_offset": 1},
    ],
)
def test_layers_that_share_an_indexer_keep_no_indexer_keys(spelled: dict[str, object]) -> None:
    geometry = _geometry("glm_moe_dsa", **({"index_topk_freq": 1} | spelled))
    planes = geometry.layout("bfloat16").planes
    assert [plane.layer for plane in planes if plane.role == "indexer"] == [0, 3]


def test_weight_quantization_never_decides_the_kv_dtype() -> None:
    plain = _geometry("llama", torch_dtype="bfloat16")
    quantized = _geometry("llama", torch_dtype="float8_e4m3fn", quantization_config={"quant_method": "fp8"})
    assert plain.layout("bfloat16") == quantized.layout("bfloat16")


def test_a_text_model_is_read_out_of_its_multimodal_wrapper() -> None:
    text = {"model_type": "gemma3_text", **TINY_CONFIGS["gemma3_text"]}
    wrapped = {"model_type": "gemma3", "text_config": text, "vision_config": {"num_hidden_layers": 27}}
    model = describe_config(wrapped, "config.json", key="k", name="n", source="s")
    assert model.geometry == _geometry("gemma3_text")
    assert model.config["model_type"] == "gemma3_text"


def test_a_wrapper_passes_tied_embeddings_on() -> None:
    text = {"model_type": "mistral", **TINY_CONFIGS["mistral"]}
    wrapped = {"model_type": "mistral3", "text_config": text, "tie_word_embeddings": True}
    model = describe_config(wrapped, "config.json", key="k", name="n", source="s")
    assert model.geometry.tie_word_embeddings
    assert model.config["tie_word_embeddings"] is True


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"model_type": "gemma3"}, "field text_config: gemma3 needs it"),
        ({"model_type": "gemma3", "text_config": 5}, "field text_config: gemma3 needs it"),
        ({"model_type": "gemma3", "text_config": {"model_type": "mystery"}}, "'mystery' is not understood"),
        ({"model_type": "omni", "text_config": {"model_type": "llama"}}, "'omni' around a text_config"),
        (
            {
                "model_type": "gemma3",
                "num_kv_shared_layers": 3,
                "text_config": {"model_type": "gemma3_text", **TINY_CONFIGS["gemma3_text"]},
            },
            "field num_kv_shared_layers",
        ),
    ],
)
def test_wrappers_that_are_not_understood_are_refused(config: dict[str, object], problem: str) -> None:
    with pytest.raises(CatalogError, match=problem):
        describe_config(config, "config.json", key="k", name="n", source="s")


def test_a_window_that_is_set_but_not_used_is_no_window() -> None:
    assert _kinds(_geometry("qwen2", use_sliding_window=False)) == ["full"] * 4
    assert _kinds(_geometry("qwen3", use_sliding_window=False)) == ["full"] * 4


def test_qwen_windows_begin_at_max_window_layers() -> None:
    assert _kinds(_geometry("qwen2")) == ["full", "sliding", "sliding", "sliding"]
    assert _geometry("qwen2").window_tokens == 16


def test_mistral_with_null_window_attends_to_everything() -> None:
    assert _kinds(_geometry("mistral", sliding_window=None)) == ["full"] * 4
    assert _kinds(_geometry("mistral")) == ["sliding"] * 4


def test_layer_types_of_the_file_come_before_the_pattern_of_the_class() -> None:
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert _kinds(_geometry("gemma2")) == ["sliding", "full", "sliding", "full"]
    assert _kinds(_geometry("gemma2", layer_types=types)) == ["full", "sliding", "sliding", "full"]


def test_layer_types_of_another_length_are_refused() -> None:
    with pytest.raises(CatalogError, match="layer_types: 3 entries for 4 layers"):
        _geometry("gemma2", layer_types=["full_attention"] * 3)


def test_llama_4_chunks_layers_with_rotary_embedding_only() -> None:
    assert _kinds(_geometry("llama4_text")) == ["chunked", "chunked", "chunked", "full"]
    assert _kinds(_geometry("llama4_text", no_rope_layers=[0, 1, 0, 1])) == ["full", "chunked"] * 2


def test_dense_layers_come_first_in_deepseek() -> None:
    assert [layer.moe for layer in _geometry("deepseek_v3").layers] == [False, True, True, True]


def test_kimi_k2_is_built_as_deepseek_v3() -> None:
    model = describe_config(
        {"model_type": "kimi_k2", **TINY_CONFIGS["kimi_k2"]}, "c", key="k", name="n", source="s"
    )
    assert model.config["model_type"] == "deepseek_v3"


def test_what_is_built_from_carries_no_quantization_and_no_code() -> None:
    config = {
        "model_type": "llama",
        **TINY_CONFIGS["llama"],
        "quantization_config": {},
        "torch_dtype": "float16",
    }
    config |= {"auto_map": {"AutoConfig": "x.Y"}, "use_cache": False}
    built = describe_config(config, "c", key="k", name="n", source="s").config
    assert built == {"model_type": "llama", **TINY_CONFIGS["llama"], "dtype": "float16"}
