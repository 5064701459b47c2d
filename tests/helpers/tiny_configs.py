"""Small configurations, one for each architecture, whose dimensions differ from each other where they can."""

_BASE: dict[str, object] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_HEAD = _BASE | {"head_dim": 24}
_WINDOW = {"sliding_window": 16}
_LOCAL_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 3}
_QWEN_EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 56,
}
_ROUTED = {
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_DEEPSEEK = (
    _BASE
    | _ROUTED
    | {
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "q_lora_rank": 40,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 24,
    }
)
_INDEXER = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
_DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_MAMBA = {
    "hybrid_override_pattern": "M*-E",
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "moe_shared_expert_intermediate_size": 56,
}


def _without(fields: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in names}


TINY_CONFIGS: dict[str, dict[str, object]] = {
    "llama": _BASE | {"attention_bias": True, "mlp_bias": True},
    "granite": _BASE,
    "smollm3": _BASE,
    "seed_oss": _HEAD,
    "mistral": _HEAD | _WINDOW,
    "ministral": _HEAD | _WINDOW,
    "ministral3": _HEAD,
    "mixtral": _BASE | _LOCAL_EXPERTS,
    "phi3": _BASE | _WINDOW | {"full_attn_mod": 1},
    "qwen2": _BASE | _WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "qwen2_vl_text": _BASE,
    "qwen2_5_vl_text": _BASE | {"use_sliding_window": False, **_WINDOW},
    "qwen2_moe": _BASE | _QWEN_EXPERTS | {"mlp_only_layers": [1]},
    "qwen3": _HEAD | _WINDOW | {"use_sliding_window": True, "max_window_layers": 3, "attention_bias": True},
    "qwen3_moe": _HEAD
    | _without(_QWEN_EXPERTS, "shared_expert_intermediate_size")
    | {"decoder_sparse_step": 2},
    "qwen3_vl_text": _HEAD,
    "qwen3_vl_moe_text": _HEAD | _QWEN_EXPERTS | {"shared_expert_intermediate_size": 0},
    "qwen3_next": _HEAD | _QWEN_EXPERTS | _DELTA,
    "qwen3_5_text": _HEAD | _DELTA,
    "qwen3_5_moe_text": _HEAD | _QWEN_EXPERTS | _DELTA,
    "gemma": _HEAD,
    "gemma2": _HEAD | _WINDOW,
    "gemma3_text": _HEAD | _WINDOW | {"sliding_window_pattern": 3},
    "gpt_oss": _HEAD | _WINDOW | _LOCAL_EXPERTS,
    "deepseek_v2": _DEEPSEEK | {"q_lora_rank": None, "topk_method": "greedy"},
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK | _INDEXER,
    "glm_moe_dsa": _DEEPSEEK | _INDEXER | {"index_topk_freq": 2},
    "llama4_text": _HEAD
    | {
        "attention_chunk_size": 16,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 80,
        "num_local_experts": 8,
        "num_experts_per_tok": 1,
    },
    "glm": _HEAD,
    "glm4": _HEAD,
    "glm4_moe": _HEAD | _ROUTED | {"use_qk_norm": True, "attention_bias": True},
    "olmo2": _BASE,
    "olmo3": _BASE | _WINDOW,
    "olmoe": _BASE | {"num_experts": 8, "num_experts_per_tok": 3},
    "cohere": _BASE | {"use_qk_norm": True},
    "cohere2": _BASE | _WINDOW | {"layer_switch": 4, "order_of_interleaved_layers": "local_attn_first"},
    "starcoder2": _BASE | _WINDOW,
    "gpt_neox": _without(_BASE, "num_key_value_heads"),
    "opt": _without(_BASE, "num_key_value_heads", "intermediate_size") | {"ffn_dim": 96},
    "minimax_m2": _HEAD | _LOCAL_EXPERTS,
    "nemotron_h": _HEAD | _without(_ROUTED, "first_k_dense_replace", "n_shared_experts") | _MAMBA,
    "nemotron": _HEAD | {"attention_bias": True, "mlp_bias": True},
    "exaone4": _HEAD | _WINDOW,
    "hunyuan_v1_dense": _HEAD | {"attention_bias": True, "use_qk_norm": True, "cla_share_factor": 2},
    "internlm3": _HEAD,
    "ernie4_5": _HEAD | {"use_bias": True},
}
