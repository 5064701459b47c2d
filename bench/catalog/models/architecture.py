"""What sets one architecture apart, and how its fields become a geometry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from bench.catalog.models.attention import GroupedAttention, Indexer, LatentAttention
from bench.catalog.models.experts import Rule as MixtureRule
from bench.catalog.models.experts import no_experts
from bench.catalog.models.feedforward import FeedForward
from bench.catalog.models.fields import MAX_LAYERS, Fields
from bench.catalog.models.geometry import Geometry, LayerKind
from bench.catalog.models.layer_patterns import Rule as PatternRule
from bench.catalog.models.layer_patterns import full_layers
from bench.catalog.models.linear_attention import GatedDelta, Mamba2

Switch = bool | str  # a constant, or the name of the field that decides


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one model_type of transformers is built."""

    builds: str  # the model_type to build it with
    # pattern, mixture: rules for the layers' attention and experts
    pattern: PatternRule = full_layers
    mixture: MixtureRule = no_experts
    latent: bool = False  # MLA in place of grouped heads
    indexer: bool = False  # MLA with a sparse-attention indexer
    # reader of the state block of hybrid models
    linear: Callable[[Fields], GatedDelta | Mamba2] | None = None
    # qkv_bias, output_bias, mlp_bias: biases of the projections and of the feed-forward
    qkv_bias: Switch = False
    output_bias: Switch = False
    mlp_bias: Switch = False
    # norms of queries and keys, one set of weights per "head" dimension or for "all" heads
    qk_norm: Literal["none", "head", "all"] = "none"
    qk_norm_switch: Switch = True  # field that turns them on
    # output_gate, sinks: attention with a gate on its output; with one sink per head
    output_gate: bool = False
    sinks: bool = False
    derived_head_dim: bool = False  # the class computes head_dim and ignores the field
    gated: bool = True  # feed-forward of three matrices, not two
    width: str = "intermediate_size"  # field with the size of the dense feed-forward
    # norms, norm_bias: norms around the blocks of one layer, and whether they have biases
    norms: int = 2
    norm_bias: bool = False
    # learned position embeddings beyond max_position_embeddings (OPT has 2); None for none
    positions: int | None = None
    # fields that must equal another one when given, because their difference is not understood
    repeats: Mapping[str, str] = field(default_factory=dict)
    may_omit_kv_heads: bool = False  # num_key_value_heads left out means one per head; else it is required
    # fields that must have this value when given, because others are not understood
    fixed: Mapping[str, object] = field(default_factory=dict)
    # what the class assumes for fields that public files leave out
    defaults: Mapping[str, object] = field(default_factory=dict)


def read_geometry(fields: Fields, architecture: Architecture) -> Geometry:
    """The geometry that the fields describe.

    Raises:
        CatalogError: a field is missing, wrong, or not understood though it may matter.
    """
    _require_fixed(fields, architecture)
    num_layers = _count_layers(fields)
    if num_layers > MAX_LAYERS:
        raise fields.error("num_hidden_layers", f"{num_layers} is more than {MAX_LAYERS}")
    pattern = architecture.pattern(fields, num_layers)
    layers = pattern.layers
    mixture = architecture.mixture(fields, num_layers)
    if mixture is not None and mixture.moe_layers is not None:
        layers = tuple(replace(kind, moe=moe) for kind, moe in zip(layers, mixture.moe_layers, strict=True))
    if mixture is None and any(kind.moe for kind in layers):
        raise fields.error("n_routed_experts", "missing, though layers have experts")
    hidden = fields.count("hidden_size")
    norm = hidden * (2 if architecture.norm_bias else 1)
    read_attention = _read_latent if architecture.latent else _read_grouped
    max_tokens = _read_max_tokens(fields)
    geometry = Geometry(
        hidden_size=hidden,
        vocab_size=fields.count("vocab_size"),
        max_position_embeddings=max_tokens,
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        layers=layers,
        attention=read_attention(fields, architecture),
        dense=_read_dense(fields, architecture, layers),
        experts=None if mixture is None else mixture.experts,
        linear=None if architecture.linear is None else architecture.linear(fields),
        window_tokens=pattern.window_tokens,
        layer_norm_params=architecture.norms * norm,
        other_params=norm + _position_params(fields, architecture),
    )
    fields.require_understood()
    if max_tokens is not None and (pattern.window_tokens or 0) >= max_tokens:
        return geometry.with_full_attention()  # a window as long as the context drops nothing
    return geometry


def _read_max_tokens(fields: Fields) -> int | None:
    """The longest context; with YaRN the scaled one, which files may give as max_position_embeddings or not."""
    given = fields.optional_count("max_position_embeddings")
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.raw(name)
        if (
            given is None
            or not isinstance(rope, Mapping)
            or rope.get("rope_type", rope.get("type")) != "yarn"
        ):
            continue
        factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
        if isinstance(factor, int | float) and isinstance(original, int):
            return max(given, round(factor * original))
    return given


def read_gated_delta(fields: Fields) -> GatedDelta:
    """The state block of Qwen3-Next and Qwen3.5."""
    block = GatedDelta(
        hidden_size=fields.count("hidden_size"),
        num_key_heads=fields.count("linear_num_key_heads"),
        num_value_heads=fields.count("linear_num_value_heads"),
        key_dim=fields.count("linear_key_head_dim"),
        value_dim=fields.count("linear_value_head_dim"),
        conv_tokens=fields.count("linear_conv_kernel_dim"),
    )
    if block.num_value_heads % block.num_key_heads:
        raise fields.error(
            "linear_num_value_heads",
            f"{block.num_value_heads} is no multiple of {block.num_key_heads} key heads",
        )
    return block


def read_mamba2(fields: Fields) -> Mamba2:
    """The state block of Nemotron-H."""
    fields.optional_count("expand")  # heads and their size are fields of their own
    return Mamba2(
        hidden_size=fields.count("hidden_size"),
        num_heads=fields.count("mamba_num_heads"),
        head_dim=fields.count("mamba_head_dim"),
        num_groups=fields.count("n_groups"),
        state_size=fields.count("ssm_state_size"),
        conv_tokens=fields.count("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias"),
        bias=fields.flag("use_bias"),
    )


def _count_layers(fields: Fields) -> int:
    blocks = fields.raw("layers_block_type")
    if isinstance(blocks, list) and fields.raw("num_hidden_layers") is None:
        return len(blocks)
    return fields.count("num_hidden_layers")


def _require_fixed(fields: Fields, architecture: Architecture) -> None:
    for name, wanted in architecture.fixed.items():
        value = fields.raw(name)
        if value is not None and value != wanted:
            raise fields.error(name, f"{value!r:.60} is not understood here, only {wanted!r}")
    for name, other in architecture.repeats.items():
        if fields.optional_count(name) not in (None, fields.count(other)):
            raise fields.error(name, f"{fields.raw(name)} is not {other} {fields.raw(other)}: not understood")


def _switch(fields: Fields, setting: Switch) -> bool:
    return fields.flag(setting) if isinstance(setting, str) else setting


def _read_heads(fields: Fields, *, may_omit_kv_heads: bool) -> tuple[int, int]:
    heads = fields.count("num_attention_heads")
    kv_heads = fields.optional_count("num_key_value_heads")
    if kv_heads is None and not may_omit_kv_heads:
        raise fields.error("num_key_value_heads", "missing")
    kv_heads = kv_heads or heads
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide {heads} attention heads")
    return heads, kv_heads


def _read_head_dim(fields: Fields, architecture: Architecture, heads: int) -> int:
    given, hidden = fields.optional_count("head_dim"), fields.count("hidden_size")
    if given is not None and not architecture.derived_head_dim:
        return given
    if hidden % heads:
        raise fields.error("num_attention_heads", f"{heads} does not divide hidden_size {hidden}")
    if given not in (None, hidden // heads):
        raise fields.error("head_dim", f"{given} is not {hidden} / {heads}, which this architecture uses")
    return hidden // heads


def _read_grouped(fields: Fields, architecture: Architecture) -> GroupedAttention:
    heads, kv_heads = _read_heads(fields, may_omit_kv_heads=architecture.may_omit_kv_heads)
    head_dim = _read_head_dim(fields, architecture, heads)
    normed = {"none": 0, "head": 2, "all": heads + kv_heads}[architecture.qk_norm]
    norms = normed * head_dim if _switch(fields, architecture.qk_norm_switch) else 0
    return GroupedAttention(
        hidden_size=fields.count("hidden_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=_switch(fields, architecture.qkv_bias),
        output_bias=_switch(fields, architecture.output_bias),
        output_gate=architecture.output_gate,
        other_params=norms + (heads if architecture.sinks else 0),
    )


def _read_latent(fields: Fields, architecture: Architecture) -> LatentAttention:
    heads, _ = _read_heads(fields, may_omit_kv_heads=True)
    fields.optional_count("head_dim")  # files and classes disagree on what it is for MLA; nothing uses it
    fields.optional_count("qk_head_dim")
    index = None
    if architecture.indexer:
        index = Indexer(
            fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk")
        )
    return LatentAttention(
        hidden_size=fields.count("hidden_size"),
        num_heads=heads,
        kv_lora_rank=fields.count("kv_lora_rank"),
        q_lora_rank=fields.optional_count("q_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        bias=fields.flag("attention_bias"),
        indexer=index,
    )


def _read_dense(
    fields: Fields, architecture: Architecture, layers: tuple[LayerKind, ...]
) -> FeedForward | None:
    width = fields.optional_count(architecture.width)
    if not any(kind.feed_forward and not kind.moe for kind in layers):
        return None
    return FeedForward(
        fields.count("hidden_size"),
        fields.count(architecture.width) if width is None else width,
        gated=architecture.gated,
        bias=_switch(fields, architecture.mlp_bias),
    )


def _position_params(fields: Fields, architecture: Architecture) -> int:
    if architecture.positions is None:
        return 0
    return (fields.count("max_position_embeddings") + architecture.positions) * fields.count("hidden_size")
