"""What several architectures have in common: the bases that the entries of `architectures` are made from.

Source of every one: the configuration and model classes of that model_type in transformers 5.24.
"""

from dataclasses import replace

from bench.catalog.models.architecture import Architecture, read_gated_delta
from bench.catalog.models.experts import balanced_after_dense_experts, sparse_step_experts
from bench.catalog.models.layer_patterns import (
    every_nth_not_linear,
    sliding_layers,
    switched_layers,
    upper_layers,
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
