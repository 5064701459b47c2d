"""Which layer attends how: one rule per family, each following the configuration class of transformers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from bench.catalog.models.fields import Fields
from bench.catalog.models.geometry import WINDOWED, AttentionKind, LayerKind

# names in `layer_types`; anything else is refused
NAMES: dict[str, AttentionKind] = {
    "full_attention": "full",
    "attention": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """The layers in order, and the tokens that windowed ones keep."""

    layers: tuple[LayerKind, ...]
    window_tokens: int | None = None


Rule = Callable[[Fields, int], Pattern]


def full_layers(fields: Fields, num_layers: int) -> Pattern:
    """Every layer attends to everything."""
    return _pattern(fields, _explicit(fields, num_layers, {"full"}) or ["full"] * num_layers, None)


def sliding_layers(fields: Fields, num_layers: int) -> Pattern:
    """Every layer has the window when there is one (Mistral, Phi-3)."""
    window = fields.optional_count("sliding_window")
    return _pattern(fields, ["full" if window is None else "sliding"] * num_layers, window)


def windowed_layers(fields: Fields, num_layers: int) -> Pattern:
    """As sliding_layers, unless layer_types names the windowed layers (Ministral)."""
    window = fields.optional_count("sliding_window")
    return _explicit_or(fields, ["full" if window is None else "sliding"] * num_layers, window)


def upper_layers(fields: Fields, num_layers: int) -> Pattern:
    """Layers from max_window_layers on have the window, and only when use_sliding_window (Qwen2, Qwen3).

    Trap: sliding_window is set in files of models that never use it.
    """
    window, first = _switched_window(fields)
    default = ["sliding" if window is not None and i >= first else "full" for i in range(num_layers)]
    return _explicit_or(fields, default, window)


def lower_odd_layers(fields: Fields, num_layers: int) -> Pattern:
    """Every other layer below max_window_layers has the window when it is used (Qwen2-MoE)."""
    window, end = _switched_window(fields)
    default = [
        "sliding" if window is not None and i < end and i % 2 == 0 else "full" for i in range(num_layers)
    ]
    return _explicit_or(fields, default, window)


def switched_layers(fields: Fields, num_layers: int) -> Pattern:
    """Every layer has the window when use_sliding_window (Qwen3-MoE)."""
    window, _ = _switched_window(fields)
    return _pattern(fields, ["full" if window is None else "sliding"] * num_layers, window)


def every_nth_full(fields: Fields, num_layers: int) -> Pattern:
    """sliding_window_pattern - 1 windowed layers, then one full (Gemma, gpt-oss, OLMo 3, Command R7B)."""
    period = fields.count("sliding_window_pattern")
    fields.optional_count("_sliding_window_pattern")  # saved beside layer_types, which say the same
    default = ["full" if (i + 1) % period == 0 else "sliding" for i in range(num_layers)]
    return _explicit_or(fields, default, fields.optional_count("sliding_window"))


def spelled_layers(fields: Fields, num_layers: int) -> Pattern:
    """As layer_types, beside which files spell the pattern in letters; without it every_nth_full (EXAONE 4)."""
    if fields.raw("layer_types") is None:
        return every_nth_full(fields, num_layers)
    fields.raw("sliding_window_pattern")
    return _explicit_or(fields, ["full"] * num_layers, fields.optional_count("sliding_window"))


def unshared_layers(fields: Fields, num_layers: int) -> Pattern:
    """Every layer attends to everything with K and V of its own (Hunyuan)."""
    if fields.flag("use_cla"):
        raise fields.error("use_cla", "K and V that layers share are not understood")
    fields.optional_count("cla_share_factor")  # of layers that would share
    return full_layers(fields, num_layers)


def chunked_layers(fields: Fields, num_layers: int) -> Pattern:
    """Chunked attention where there is rotary embedding, full where there is none (Llama 4)."""
    chunk = fields.optional_count("attention_chunk_size")
    fields.flag("use_qk_norm")  # a norm without weights
    period = fields.count("no_rope_layer_interval")
    rotary = fields.indices("no_rope_layers") or [int((i + 1) % period != 0) for i in range(num_layers)]
    if len(rotary) != num_layers:
        raise fields.error("no_rope_layers", f"{len(rotary)} entries for {num_layers} layers")
    default = ["chunked" if has_rope and chunk is not None else "full" for has_rope in rotary]
    names = _explicit(fields, num_layers, {"full", "chunked"}) or default
    return _pattern(fields, names, chunk, window_field="attention_chunk_size")


def typed_layers(fields: Fields, num_layers: int) -> Pattern:
    """attn_type_list gives 1 for full attention; nothing else is understood (MiniMax-M2)."""
    types = fields.indices("attn_type_list", length=num_layers) or []
    if set(types) - {1}:
        raise fields.error("attn_type_list", f"type {min(set(types) - {1})} is not understood, only 1")
    return full_layers(fields, num_layers)


def indexed_layers(fields: Fields, num_layers: int) -> Pattern:
    """Full attention whose indexer is the layer's own or an earlier layer's (GLM-5.2).

    Spelled as a list, as a pattern of F and S, or as one own indexer in index_topk_freq layers.
    """
    period = fields.optional_count("index_topk_freq", low=0) or 1
    offset = fields.optional_count("index_skip_topk_offset", low=0)
    first = 2 if offset is None else offset
    types = ["shared" if max(i - first + 1, 0) % period else "full" for i in range(num_layers)]
    spelled = fields.raw("index_topk_pattern")
    if isinstance(spelled, str):
        types = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in spelled]
    elif spelled is not None:
        types = fields.names("index_topk_pattern", num_layers) or types
    types = fields.names("indexer_types", num_layers) or types
    if len(types) != num_layers or not set(types) <= {"full", "shared"} or types[0] != "full":
        raise fields.error("indexer_types", f"{types!r:.80} are not {num_layers} full or shared, full first")
    plain = full_layers(fields, num_layers)
    owned = zip(plain.layers, types, strict=True)
    return Pattern(tuple(replace(layer, own_indexer=kind == "full") for layer, kind in owned))


def every_nth_not_linear(fields: Fields, num_layers: int) -> Pattern:
    """full_attention_interval - 1 linear layers, then one full (Qwen3-Next)."""
    period = fields.count("full_attention_interval")
    default = ["full" if (i + 1) % period == 0 else "linear" for i in range(num_layers)]
    return _pattern(fields, _explicit(fields, num_layers, {"full", "linear"}) or default, None)


def single_blocks(fields: Fields, num_layers: int) -> Pattern:
    """Layers that are a state, an attention, a feed-forward or experts alone (Nemotron-H)."""
    kinds = {
        "M": LayerKind("linear", feed_forward=False),
        "*": LayerKind("full", feed_forward=False),
        "-": LayerKind("none"),
        "E": LayerKind("none", moe=True),
    }
    letters = {"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*"}
    letters |= {"mlp": "-", "moe": "E"}
    text = fields.raw("hybrid_override_pattern")
    blocks = fields.names("layers_block_type", num_layers) or fields.names("layer_types", num_layers)
    if blocks is not None:
        text = "".join(letters.get(block, "?") for block in blocks)
    if not isinstance(text, str) or len(text) != num_layers or not set(text) <= set(kinds):
        raise fields.error(
            "hybrid_override_pattern",
            f"{text!r:.80} is not {num_layers} letters, each one of {''.join(kinds)}",
        )
    return Pattern(tuple(kinds[letter] for letter in text))


def _switched_window(fields: Fields) -> tuple[int | None, int]:
    used, window = fields.flag("use_sliding_window"), fields.optional_count("sliding_window", low=0)
    return (window or None) if used else None, fields.optional_count("max_window_layers", low=0) or 0


def _explicit(fields: Fields, num_layers: int, allowed: set[AttentionKind]) -> list[str] | None:
    """`layer_types` in our words; a type that the architecture does not have is refused."""
    names = fields.names("layer_types", num_layers)
    if names is None:
        return None
    unknown = sorted({name for name in names if NAMES.get(name) not in allowed})
    if unknown:
        raise fields.error("layer_types", f"{unknown[0]!r} is not understood for this architecture")
    return [NAMES[name] for name in names]


def _explicit_or(fields: Fields, default: list[str], window: int | None) -> Pattern:
    return _pattern(fields, _explicit(fields, len(default), {"full", "sliding"}) or default, window)


def _pattern(
    fields: Fields, names: Iterable[str], window: int | None, *, window_field: str = "sliding_window"
) -> Pattern:
    by_name: dict[str, AttentionKind] = {kind: kind for kind in NAMES.values()}
    layers = tuple(LayerKind(by_name[name]) for name in names)
    if not any(layer.attention in WINDOWED for layer in layers):
        return Pattern(layers)
    if window is None:
        raise fields.error(window_field, "missing or not used, though layers have a window")
    return Pattern(layers, window)
