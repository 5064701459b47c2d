"""What a person wants to know of a model: bytes, parameters and operations, as one flat table."""

from bench.catalog.models.geometry import LayerKind
from bench.catalog.models.resolve import Model
from kvio.layout.planes import KVLayout

LENGTHS = (1024, 8192, 131_072, 1_000_000)  # tokens at which kv_bytes_at is given


def describe_model(
    model: Model, kv_dtype: str = "bfloat16", *, tensor_parallel: int = 1
) -> dict[str, object]:
    """All counts of one model; KV bytes are those of the fullest tensor-parallel rank.

    `kv_bytes_per_token` is what one more token adds while no window is full, indexer keys included;
    `kv_bytes_at` includes linear-attention states.  Parameters and operations are those of the whole model.
    """
    geometry = model.geometry
    layout = geometry.layout(kv_dtype, tensor_parallel)
    return {
        "key": model.key,
        "name": model.name,
        "model_type": model.model_type,
        "attention_kind": geometry.family,
        "num_layers": len(geometry.layers),
        "layers": _count_layers(geometry.layers),
        "kv_dtype": kv_dtype,
        "tensor_parallel": tensor_parallel,
        "max_position_embeddings": geometry.max_position_embeddings,
        "window_tokens": geometry.window_tokens,
        "kv_bytes_per_token": layout.bytes_per_token,
        "kv_bytes_per_token_beyond_window": layout.bytes_per_token_beyond_window,
        "kv_window_bytes": window_bytes(layout),
        "kv_indexer_bytes_per_token": indexer_bytes_per_token(layout),
        "linear_state_bytes": layout.state_bytes,
        "kv_bytes_at": {str(length): layout.bytes_at(length) for length in LENGTHS},
        "params_total": geometry.params_total,
        "params_active": geometry.params_active,
        "prefill_gemm_flops_per_token": geometry.prefill_gemm_flops_per_token,
        "attention_flops_per_token_pair": geometry.attention_flops_per_token_pair,
        "attention_flops_per_token_pair_full": geometry.attention_flops_per_token_pair_full,
        "attention_flops_per_token_pair_window": geometry.attention_flops_per_token_pair_window,
        "source": model.source,
    }


def window_bytes(layout: KVLayout) -> int:
    """Bytes of all windows when full."""
    return sum(plane.token_bytes * plane.window_tokens for plane in layout.planes if plane.window_tokens)


def indexer_bytes_per_token(layout: KVLayout) -> int:
    """Bytes of indexer keys that one token adds."""
    return sum(plane.token_bytes for plane in layout.planes if plane.role == "indexer")


def _count_layers(layers: tuple[LayerKind, ...]) -> dict[str, int]:
    """Layers by what they attend to, and how many are mixtures of experts."""
    counts = {kind: sum(layer.attention == kind for layer in layers) for kind in ("full", "linear")}
    counts["sliding_or_chunked"] = sum(layer.attention in {"sliding", "chunked"} for layer in layers)
    counts["no_attention"] = sum(layer.attention == "none" for layer in layers)
    counts["moe"] = sum(layer.moe for layer in layers)
    return counts
