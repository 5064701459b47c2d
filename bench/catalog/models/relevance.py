"""Whether a field that nobody read could change the KV cache or the weights, judged by its name."""

import re

# words that say: what is kept per token, or the weights around it, may depend on me
RELEVANT = re.compile(
    r"""(?x) (?:^|_) (?:
    kv | cache | keys? | values? | attn | attention | heads? | layers? | window | sliding | latent | lora
    | rank | mla | indexer | index | topk | experts? | moe | ssm | mamba | conv | states? | linear | recurrent
    | recurrence | chunk | chunked | block | shared? | sharing | compress | compressed | compression
    | compressor | cross | sinks? | memory | hybrid | pattern | sparse | qk | qkv | nope | gqa | mqa | yoco
    | ngram | loops? | per | bidirectional | bias
    ) \d* (?:_|$)"""
)
# names with such a word that change neither the bytes nor the weights of the decoder
INERT = re.compile(
    r"""(?x)
    use_cache | cache_implementation | attention_dropout | attn_pdrop | attn_logit_softcapping
    | attn_implementation | attn_implementation_internal | attn_scale | attn_temperature_tuning
    | attention_multiplier | layerdrop | experts_implementation | output_attentions
    | layer_?norm_(?:eps|epsilon) | query_pre_attn_scalar | scale_attn_weights | sliding_window_size
    | norm_topk_prob | topk_group | topk_method | output_router_logits | experts_per_token
    | num_nextn_predict_layers | chunk_size_feed_forward
    | mamba_ssm_dtype | mamba_ssm_cache_dtype | use_mamba_kernels | mamba_chunk_size | chunk_size
    | moe_shared_expert_overlap | mm_tokens_per_image | no_rope_layers | no_rope_layer_interval
    | max_window_layers | index_skip_topk_offset | indexer_rope_interleave | ignore_index
    | (?:rope|quantization|boi|eoi|mm|projection|projector|time_step)_.* | .*_token_id | .*_act | .*_dtype
    | (?:.*_)?(?:vision|image|video|audio|mtp)(?:_.*)?
    """
)


def is_relevant(name: str) -> bool:
    """Whether nothing may be counted while this field is not understood."""
    bare = re.sub(r"\W+", "_", name.lower()).strip("_")
    return INERT.fullmatch(bare) is None and RELEVANT.search(bare) is not None
