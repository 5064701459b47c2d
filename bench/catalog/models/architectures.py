"""The architectures that are understood.  Adding one is an entry here; anything else is refused.

Source of every entry: the configuration and model classes of that model_type in transformers 5.24.

What several architectures have in common: the bases that the entries of `architectures` are made from.

Source of every one: the configuration and model classes of that model_type in transformers 5.24.
"""

from dataclasses import replace

from bench.catalog.models.architecture import Architecture, read_gated_delta, read_mamba2
from bench.catalog.models.experts import (
    after_dense_experts,
    balanced_after_dense_experts,
    balanced_uniform_experts,
    biased_experts,
    interleaved_experts,
    single_block_experts,
    sparse_step_experts,
    uniform_experts,
)
from bench.catalog.models.layer_patterns import (
    chunked_layers,
    every_nth_full,
    every_nth_not_linear,
    indexed_layers,
    lower_odd_layers,
    single_blocks,
    sliding_layers,
    spelled_layers,
    switched_layers,
    typed_layers,
    unshared_layers,
    upper_layers,
    windowed_layers,
)

LLAMA = Architecture(
    "llama",
    may_omit_kv_heads=True,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    mlp_bias="mlp_bias",
)
QWEN_WINDOW = {"sliding_window": 4096, "max_window_layers": 28}
QWEN2 = Architecture("qwen2", pattern=upper_layers, qkv_bias=True, defaults=QWEN_WINDOW)
# the decoder of Qwen2: positions in three sections change no count, and no file has a window in use
QWEN2_VL = Architecture("qwen2", pattern=upper_layers, qkv_bias=True, fixed={"use_sliding_window": False})
QWEN3 = Architecture(
    "qwen3",
    pattern=upper_layers,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="head",
    fixed={"use_qk_norm": True},
    defaults=QWEN_WINDOW | {"head_dim": 128},
)
DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
QWEN3_NEXT = replace(
    QWEN3,
    builds="qwen3_next",
    pattern=every_nth_not_linear,
    mixture=sparse_step_experts,
    linear=read_gated_delta,
    output_gate=True,
    fixed={"attn_output_gate": True},
    defaults=DELTA | {"head_dim": 256, "full_attention_interval": 4, "shared_expert_intermediate_size": 512},
)
GEMMA = Architecture(
    "gemma",
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    defaults={"head_dim": 256, "tie_word_embeddings": True},
)
GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}
GPT_OSS = {"attention_bias": True, "head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2}
DEEPSEEK = Architecture(
    "deepseek_v3",
    mixture=balanced_after_dense_experts,
    latent=True,
    defaults={"q_lora_rank": 1536, "first_k_dense_replace": 3, "n_shared_experts": 1},
)
DEEPSEEK_SPARSE = replace(DEEPSEEK, builds="deepseek_v32", indexer=True)
GLM = Architecture("glm", qkv_bias="attention_bias", defaults={"attention_bias": True, "head_dim": 128})
OLMO2 = Architecture(
    "olmo2", may_omit_kv_heads=True, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="all"
)
COHERE = Architecture(
    "cohere",
    may_omit_kv_heads=True,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="all",
    qk_norm_switch="use_qk_norm",
    norms=1,
    defaults={"tie_word_embeddings": True},
)
MISTRAL = Architecture("mistral", pattern=sliding_layers, defaults={"sliding_window": 4096})

QWEN3_MOE = replace(
    QWEN3,
    builds="qwen3_moe",
    pattern=switched_layers,
    mixture=sparse_step_experts,
    defaults={"sliding_window": 4096},
)


# model_type in the file -> what it is
ARCHITECTURES: dict[str, Architecture] = {
    "llama": LLAMA,
    "granite": replace(LLAMA, builds="granite"),
    "smollm3": replace(
        LLAMA,
        builds="smollm3",
        may_omit_kv_heads=False,
        fixed={"use_sliding_window": False},
        defaults={"tie_word_embeddings": True},
    ),
    "seed_oss": replace(
        LLAMA,
        builds="seed_oss",
        may_omit_kv_heads=False,
        output_bias="attention_out_bias",
        defaults={"attention_bias": True, "head_dim": 128},
    ),
    "mistral": MISTRAL,
    "ministral": replace(MISTRAL, builds="ministral", pattern=windowed_layers),
    "ministral3": replace(MISTRAL, builds="ministral3", defaults={"head_dim": 128}),
    "mixtral": Architecture("mixtral", pattern=sliding_layers, mixture=uniform_experts),
    "phi3": Architecture(
        "phi3",
        may_omit_kv_heads=True,
        pattern=sliding_layers,
        derived_head_dim=True,
        fixed={"full_attn_mod": 1},
    ),
    "qwen2": QWEN2,
    "qwen2_vl_text": QWEN2_VL,
    "qwen2_5_vl_text": QWEN2_VL,
    "qwen2_moe": replace(
        QWEN2,
        builds="qwen2_moe",
        pattern=lower_odd_layers,
        mixture=sparse_step_experts,
        qkv_bias="qkv_bias",
        defaults=QWEN_WINDOW | {"qkv_bias": True, "shared_expert_intermediate_size": 5632},
    ),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "qwen3_vl_text": QWEN3,  # the same decoder; rotary sections change no count
    "qwen3_vl_moe_text": QWEN3_MOE,
    "qwen3_next": QWEN3_NEXT,
    "qwen3_5_text": replace(QWEN3_NEXT, builds="qwen3_5_text", mixture=QWEN3.mixture),
    "qwen3_5_moe_text": replace(QWEN3_NEXT, builds="qwen3_5_moe_text"),
    "gemma": GEMMA,
    "gemma2": replace(
        GEMMA,
        builds="gemma2",
        pattern=every_nth_full,
        norms=4,
        defaults={**GEMMA.defaults, "sliding_window": 4096, "sliding_window_pattern": 2},
    ),
    "gemma3_text": replace(
        GEMMA,
        builds="gemma3_text",
        pattern=every_nth_full,
        norms=4,
        qk_norm="head",
        defaults={**GEMMA.defaults, **GEMMA3},
    ),
    "gpt_oss": Architecture(
        "gpt_oss",
        pattern=every_nth_full,
        mixture=biased_experts,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        sinks=True,
        defaults=GPT_OSS,
    ),
    "deepseek_v2": replace(
        DEEPSEEK,
        builds="deepseek_v2",
        mixture=after_dense_experts,
        defaults={"q_lora_rank": 1536, "first_k_dense_replace": 0, "n_shared_experts": 2},
    ),
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "glm4_moe_lite": replace(
        DEEPSEEK,
        builds="glm4_moe_lite",
        defaults={"q_lora_rank": 768, "first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    "deepseek_v32": DEEPSEEK_SPARSE,
    "glm_moe_dsa": replace(
        DEEPSEEK_SPARSE,
        builds="glm_moe_dsa",
        pattern=indexed_layers,
        defaults={**DEEPSEEK.defaults, "q_lora_rank": 2048},
    ),
    "llama4_text": Architecture(
        "llama4_text",
        pattern=chunked_layers,
        mixture=interleaved_experts,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        width="intermediate_size_mlp",
        defaults={
            "head_dim": 128,
            "attention_chunk_size": 8192,
            "no_rope_layer_interval": 4,
            "interleave_moe_layer_step": 1,
        },
    ),
    "glm": GLM,
    "glm4": replace(GLM, builds="glm4", norms=4),
    "glm4_moe": Architecture(
        "glm4_moe",
        mixture=balanced_after_dense_experts,
        qkv_bias="attention_bias",
        qk_norm="head",
        qk_norm_switch="use_qk_norm",
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    "olmo2": OLMO2,
    "olmo3": replace(
        OLMO2,
        builds="olmo3",
        pattern=every_nth_full,
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "olmoe": replace(OLMO2, builds="olmoe", mixture=uniform_experts),
    "cohere": COHERE,
    "cohere2": replace(
        COHERE,
        builds="cohere2",
        pattern=every_nth_full,
        qk_norm="none",
        qk_norm_switch=True,
        derived_head_dim=True,
        repeats={"layer_switch": "sliding_window_pattern"},
        fixed={
            "order_of_interleaved_layers": "local_attn_first",
            "use_parallel_block": True,
            "use_embedding_sharing": True,
        },
        defaults={**COHERE.defaults, "sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "starcoder2": Architecture(
        "starcoder2",
        pattern=sliding_layers,
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        norm_bias=True,
        derived_head_dim=True,
        defaults={"use_bias": True, "tie_word_embeddings": True},
    ),
    "gpt_neox": Architecture(
        "gpt_neox",
        may_omit_kv_heads=True,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp_bias=True,
        gated=False,
        norm_bias=True,
        derived_head_dim=True,
        defaults={"attention_bias": True},
    ),
    "opt": Architecture(
        "opt",
        qkv_bias="enable_bias",
        output_bias="enable_bias",
        mlp_bias="enable_bias",
        gated=False,
        width="ffn_dim",
        norm_bias=True,
        derived_head_dim=True,
        positions=2,
        repeats={"word_embed_proj_dim": "hidden_size"},
        may_omit_kv_heads=True,
        fixed={
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True,
        },
        defaults={"enable_bias": True, "tie_word_embeddings": True},
    ),
    "minimax_m2": Architecture(
        "minimax_m2",
        pattern=typed_layers,
        mixture=balanced_uniform_experts,
        qk_norm="all",
        fixed={
            "use_qk_norm": True,
            "qk_norm_type": "per_layer",
            "shared_moe_mode": "sigmoid",
            "use_routing_bias": True,
        },
        defaults={"head_dim": 128},
    ),
    "nemotron_h": Architecture(
        "nemotron_h",
        pattern=single_blocks,
        mixture=single_block_experts,
        linear=read_mamba2,
        mlp_bias="mlp_bias",
        gated=False,
        norms=1,
        repeats={"attention_head_dim": "head_dim"},
        defaults={"head_dim": 128, "use_conv_bias": True},
    ),
    "nemotron": Architecture(
        "nemotron",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp_bias="mlp_bias",
        gated=False,
        norm_bias=True,
    ),
    "exaone4": Architecture(
        "exaone4",
        pattern=spelled_layers,
        qk_norm="head",
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "hunyuan_v1_dense": Architecture(
        "hunyuan_v1_dense",
        pattern=unshared_layers,
        may_omit_kv_heads=True,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        repeats={"attention_head_dim": "head_dim"},
        fixed={"use_qk_norm": True, "num_experts": 1},
    ),
    "internlm3": Architecture(
        "internlm3",
        fixed={"qkv_bias": False, "bias": False, "attention_bias": False, "mlp_bias": False},
        defaults={"head_dim": 128},
    ),
    "ernie4_5": Architecture(
        "ernie4_5",
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        fixed={"compression_ratio": 1.0},
        defaults={"head_dim": 128, "tie_word_embeddings": True},
    ),
}
