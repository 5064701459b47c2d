"""Public configurations as their authors wrote them: read right, or refused by the field that is not understood."""

import pytest
from transformers import AutoConfig

from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import Model, describe_config


def _read(config: dict[str, object]) -> Model:
    return describe_config(config, "config.json", key="k", name="n", source="s")


def _token_bytes(config: dict[str, object]) -> int:
    return _read(config).geometry.layout("bfloat16").bytes_per_token


# fields of https://huggingface.co/microsoft/Phi-4-mini-instruct
PHI_4_MINI = {
    "model_type": "phi3",
    "attention_bias": False,
    "full_attn_mod": 1,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "interpolate_factor": 1,
    "lm_head_bias": False,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 24,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75,
    "rms_norm_eps": 1e-5,
    "sliding_window": 262144,
    "tie_word_embeddings": True,
    "vocab_size": 200064,
}
# the fields that Cohere's first Cohere2 release has beside those of the class
COMMAND_R7B = {
    "model_type": "cohere2",
    "attention_bias": False,
    "cache_implementation": "hybrid",
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "layer_switch": 4,
    "logit_scale": 0.25,
    "max_position_embeddings": 132096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "order_of_interleaved_layers": "local_attn_first",
    "position_embedding_type": "rope_gptj",
    "rotary_pct": 1.0,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": False,
    "vocab_size": 256000,
}
# fields of https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct, which has no text_config
QWEN_25_VL = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "image_token_id": 151655,
    "intermediate_size": 18944,
    "max_position_embeddings": 128000,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "video_token_id": 151656,
    "vision_config": {"depth": 32, "hidden_size": 1280, "fullatt_block_indexes": [7, 15]},
    "vision_start_token_id": 151652,
    "vocab_size": 152064,
}


def test_phi_4_mini_keeps_8_of_24_heads_in_32_layers() -> None:
    assert _token_bytes(PHI_4_MINI) == 2 * 32 * 8 * 128 * 2
    assert _read(PHI_4_MINI).geometry.params_total == pytest.approx(3.84e9, rel=0.005)


def test_command_r7b_has_three_layers_with_a_window_to_one_without() -> None:
    geometry = _read(COMMAND_R7B).geometry
    assert [layer.attention for layer in geometry.layers] == ["sliding", "sliding", "sliding", "full"] * 8
    assert (geometry.window_tokens, _token_bytes(COMMAND_R7B)) == (4096, 2 * 32 * 8 * 128 * 2)
    assert geometry.params_total == pytest.approx(8.03e9, rel=0.005)


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl"])
def test_qwen_vl_is_the_decoder_of_qwen2_with_its_fields_outside_or_inside(model_type: str) -> None:
    flat = {**QWEN_25_VL, "model_type": model_type}
    text = {name: value for name, value in flat.items() if name not in {"model_type", "vision_config"}}
    nested = {"model_type": model_type, "text_config": text, "vision_config": flat["vision_config"]}
    named = {**nested, "text_config": {**text, "model_type": f"{model_type}_text"}}
    assert _token_bytes(flat) == 2 * 28 * 4 * 128 * 2
    assert _read(flat).geometry == _read(nested).geometry == _read(named).geometry
    assert _read(flat).geometry.params_total == pytest.approx(7.62e9, rel=0.005)


@pytest.mark.parametrize("rotary", ["rope_scaling", "rope_parameters"])
def test_qwen_vl_is_built_with_the_plain_positions_of_text(rotary: str) -> None:
    config = {name: value for name, value in QWEN_25_VL.items() if not name.startswith("rope")}
    config |= {
        rotary: {"type": "mrope", "rope_type": "mrope", "mrope_section": [16, 24, 24], "rope_theta": 1e6}
    }
    built = AutoConfig.for_model(**_read(config).config)
    assert built.model_type == "qwen2"
    assert built.rope_parameters["rope_type"] == "default"
    assert built.rope_parameters["rope_theta"] == 1e6
    assert "vision_config" not in _read(config).config


def test_a_command_a_vision_model_is_its_text_model() -> None:
    wrapped = {"model_type": "cohere2_vision", "text_config": COMMAND_R7B, "downsample_factor": 2}
    assert _read(wrapped).geometry == _read(COMMAND_R7B).geometry


EXAONE = {
    "model_type": "exaone4",
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 27392,
    "num_attention_heads": 40,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "sliding_window_pattern": "LLLG",
    "vocab_size": 102400,
}
TYPES = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 16


def test_exaone_spells_its_layers_in_letters_beside_their_types() -> None:
    geometry = _read({**EXAONE, "layer_types": TYPES}).geometry
    assert [layer.attention for layer in geometry.layers] == ["sliding", "sliding", "sliding", "full"] * 16
    assert geometry.params_total == pytest.approx(32.0e9, rel=0.005)
    with pytest.raises(CatalogError, match="field sliding_window_pattern: 'LLLG' is not a whole number"):
        _read(EXAONE)
    with pytest.raises(CatalogError, match="field sliding_window: missing"):
        _read({**EXAONE, "layer_types": TYPES, "sliding_window": None})


BASE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**PHI_4_MINI, "full_attn_mod": 2}, "full_attn_mod"),
        ({**PHI_4_MINI, "lm_head_bias": True}, "lm_head_bias"),
        ({**COMMAND_R7B, "layer_switch": 2}, "layer_switch"),
        ({**COMMAND_R7B, "order_of_interleaved_layers": "global_attn_first"}, "order_of_interleaved_layers"),
        ({**COMMAND_R7B, "use_parallel_block": False}, "use_parallel_block"),
        ({**QWEN_25_VL, "use_sliding_window": True}, "use_sliding_window"),
        ({**BASE, "model_type": "hunyuan_v1_dense", "use_cla": True, "cla_share_factor": 2}, "use_cla"),
        ({**BASE, "model_type": "hunyuan_v1_dense", "use_qk_norm": False}, "use_qk_norm"),
        ({**BASE, "model_type": "internlm3", "qkv_bias": True}, "qkv_bias"),
        ({**BASE, "model_type": "ernie4_5", "compression_ratio": 2.0}, "compression_ratio"),
        ({"model_type": "mllama", "text_config": {"model_type": "mllama_text_model"}}, "model_type"),
        ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}}, "model_type"),
        ({"model_type": "qwen3_omni_moe", "thinker_config": {}}, "model_type"),
        ({"model_type": "glm4v_moe", "text_config": {"model_type": "glm4v_moe_text"}}, "model_type"),
        ({**BASE, "model_type": "granitemoehybrid"}, "model_type"),
        ({**BASE, "model_type": "baichuan"}, "model_type"),
        ({**BASE, "model_type": "phimoe"}, "model_type"),
        ({**BASE, "model_type": "minimax"}, "model_type"),
        ({**BASE, "model_type": "ernie4_5_moe"}, "model_type"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value["model_type"]),
)
def test_what_is_not_understood_is_refused_by_its_field(config: dict[str, object], field: str) -> None:
    with pytest.raises(CatalogError, match=f"config.json: field {field}: "):
        _read(config)


def test_a_ministral_window_is_of_all_layers_or_of_those_that_are_named() -> None:
    config = {**BASE, "model_type": "ministral", "sliding_window": 8}
    types = ["sliding_attention", "full_attention"] * 2
    found = [
        [layer.attention for layer in _read({**config, **more}).geometry.layers]
        for more in ({}, {"sliding_window": None}, {"layer_types": types})
    ]
    assert found == [["sliding"] * 4, ["full"] * 4, ["sliding", "full"] * 2]


def test_a_hunyuan_file_says_much_that_changes_nothing() -> None:
    config = {**BASE, "model_type": "hunyuan_v1_dense", "attention_head_dim": 16, "attention_bias": False}
    more = {
        "cla_share_factor": 2,
        "use_cla": False,
        "mlp_bias": False,
        "use_qk_norm": True,
        "dense_list": [64, 0],
    }
    assert _token_bytes({**config, **more}) == _token_bytes(config) == 2 * 4 * 2 * 16 * 2
    with pytest.raises(CatalogError, match="field attention_head_dim: 24 is not head_dim 16"):
        _read({**config, "attention_head_dim": 24})
