"""Small configs, one for each kind of architecture, and the layout of their KV by hand."""

from collections.abc import Mapping
from typing import Any

import torch

from bench.arms.model.build import BuiltModel, build_model, read_config
from bench.arms.model.kv_cache import sub_layout
from kvio.layout.planes import KVLayout, Plane

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 211,
}
MLA = BASE | {
    "num_key_value_heads": 4,
    "head_dim": 8,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": BASE | {"model_type": "qwen3"},
    "qwen2": BASE | {"model_type": "qwen2"},
    "llama": BASE | {"model_type": "llama"},
    "llama_mha": BASE | {"model_type": "llama", "num_key_value_heads": 4},
    "mistral": BASE | {"model_type": "mistral", "sliding_window": 8},
    "phi3": BASE | {"model_type": "phi3", "pad_token_id": 0},
    "opt": {
        "model_type": "opt",
        "hidden_size": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "word_embed_proj_dim": 64,
        "vocab_size": 211,
        "max_position_embeddings": 64,
    },
    "qwen3_moe": BASE
    | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "mixtral": BASE | EXPERTS | {"model_type": "mixtral"},
    "gpt_oss": BASE | EXPERTS | {"model_type": "gpt_oss", "sliding_window": 8},
    "gemma2": BASE | {"model_type": "gemma2", "sliding_window": 8},
    "gemma3": {
        "model_type": "gemma3",
        "text_config": BASE | {"model_type": "gemma3_text", "sliding_window": 8, "num_hidden_layers": 6},
    },
    "llama4": {
        "model_type": "llama4",
        "text_config": BASE
        | {
            "model_type": "llama4_text",
            "attention_chunk_size": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 96,
            "interleave_moe_layer_step": 2,
        },
    },
    "deepseek_v2": MLA | {"model_type": "deepseek_v2", "q_lora_rank": None},
    "deepseek_v3": MLA | {"model_type": "deepseek_v3"},
    "qwen3_next": BASE
    | {
        "model_type": "qwen3_next",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
    },
}
WINDOWED = {"sliding_attention": 8, "chunked_attention": 8}


def build_small(name: str, **options: object) -> BuiltModel:
    """The small model `name` in float32 on the CPU, unless `options` say otherwise."""
    settings: dict[str, Any] = {"dtype": torch.float32, "device": torch.device("cpu")} | options
    return build_model(CONFIGS[name], **settings)


def full_layout(raw: Mapping[str, Any], element_bytes: int = 4) -> KVLayout:
    """What all layers of the model keep."""
    config = read_config(raw)
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    if config.model_type == "mistral":
        types = ["sliding_attention"] * config.num_hidden_layers
    planes: list[Plane] = []
    for layer, kind in enumerate(types):
        window = WINDOWED.get(kind)
        if kind == "linear_attention":
            continue
        if hasattr(config, "kv_lora_rank"):
            planes += [
                Plane(layer, "latent", config.kv_lora_rank * element_bytes, window),
                Plane(layer, "rope", config.qk_rope_head_dim * element_bytes, window),
            ]
        else:
            heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
            token_bytes = heads * 16 * element_bytes
            planes += [Plane(layer, "k", token_bytes, window), Plane(layer, "v", token_bytes, window)]
    # recurrent states are float32: heads * 8 * 8; convolution: (2 * 2 * 8 + 4 * 8) channels, kernel 4
    each = 4 * 8 * 8 * 4 + 64 * 3 * element_bytes
    return KVLayout(tuple(planes), each * types.count("linear_attention"))


def layout_of(name: str, built: BuiltModel) -> KVLayout:
    """What the built layers keep."""
    whole = full_layout(CONFIGS[name], built.dtype.itemsize)
    return sub_layout(whole, built.layers, num_layers=len(built.model_kinds))
