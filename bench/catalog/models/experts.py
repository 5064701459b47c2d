"""Which layers are mixtures of experts, and of which: one rule per family of field names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.catalog.models.feedforward import Experts, FeedForward
from bench.catalog.models.fields import Fields


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts, and for each layer whether it has them; None where the layer pattern has it."""

    experts: Experts
    moe_layers: tuple[bool, ...] | None


Rule = Callable[[Fields, int], Mixture | None]


def no_experts(fields: Fields, num_layers: int) -> None:
    """A dense model."""


def uniform_experts(fields: Fields, num_layers: int) -> Mixture:
    """All layers, experts of intermediate_size (Mixtral, OLMoE)."""
    return _mixture(fields, _block(fields, "intermediate_size"), [True] * num_layers)


def balanced_uniform_experts(fields: Fields, num_layers: int) -> Mixture:
    """The same with one balancing bias per expert (MiniMax-M2)."""
    return _mixture(fields, _block(fields, "intermediate_size"), [True] * num_layers, router_bias=True)


def biased_experts(fields: Fields, num_layers: int) -> Mixture:
    """All layers, with biases in experts and router (gpt-oss)."""
    expert = FeedForward(fields.count("hidden_size"), fields.count("intermediate_size"), bias=True)
    return _mixture(fields, expert, [True] * num_layers, router_bias=True)


def sparse_step_experts(fields: Fields, num_layers: int) -> Mixture:
    """Every decoder_sparse_step-th layer but mlp_only_layers (Qwen MoE); shared blocks have a gate."""
    step = fields.optional_count("decoder_sparse_step") or 1
    dense = set(fields.indices("mlp_only_layers") or [])
    shared = fields.optional_count("shared_expert_intermediate_size", low=0) or 0
    return _mixture(
        fields,
        _block(fields, "moe_intermediate_size"),
        [i not in dense and (i + 1) % step == 0 for i in range(num_layers)],
        shared=FeedForward(fields.count("hidden_size"), shared) if shared else None,
        shared_gate=shared > 0,
    )


def balanced_after_dense_experts(fields: Fields, num_layers: int) -> Mixture:
    """As after_dense_experts, with one balancing bias per expert (DeepSeek-V3, Kimi K2, GLM-4.5)."""
    return after_dense_experts(fields, num_layers, router_bias=True)


def after_dense_experts(fields: Fields, num_layers: int, *, router_bias: bool = False) -> Mixture:
    """All layers after the first first_k_dense_replace, or as in mlp_layer_types (DeepSeek-V2)."""
    if (fields.optional_count("moe_layer_freq") or 1) != 1:
        raise fields.error("moe_layer_freq", "only 1 is understood")
    first = fields.count("first_k_dense_replace", low=0)
    kinds = fields.names("mlp_layer_types", num_layers)
    if kinds is not None and not set(kinds) <= {"dense", "sparse"}:
        raise fields.error("mlp_layer_types", f"{sorted(set(kinds))} are not all 'dense' or 'sparse'")
    moe = [i >= first for i in range(num_layers)] if kinds is None else [kind == "sparse" for kind in kinds]
    expert = _block(fields, "moe_intermediate_size")
    shared = (fields.optional_count("n_shared_experts", low=0) or 0) * expert.intermediate_size
    return _mixture(
        fields,
        expert,
        moe,
        shared=FeedForward(fields.count("hidden_size"), shared) if shared else None,
        router_bias=router_bias,
    )


def interleaved_experts(fields: Fields, num_layers: int) -> Mixture:
    """Layers named by moe_layers, or every interleave_moe_layer_step-th; one shared block (Llama 4)."""
    step = fields.count("interleave_moe_layer_step")
    named = fields.indices("moe_layers")
    chosen = set(range(step - 1, num_layers, step) if named is None else named)
    expert = _block(fields, "intermediate_size")
    return _mixture(fields, expert, [i in chosen for i in range(num_layers)], shared=expert)


def single_block_experts(fields: Fields, num_layers: int) -> Mixture | None:
    """Experts of two matrices, optionally on a narrower latent, with one shared block (Nemotron 3)."""
    if fields.raw("n_routed_experts") is None:
        return None
    hidden, latent = fields.count("hidden_size"), fields.optional_count("moe_latent_size")
    if latent is not None and fields.flag("mlp_bias"):
        raise fields.error("mlp_bias", "is not understood together with moe_latent_size")
    bias = fields.flag("mlp_bias")
    expert = FeedForward(latent or hidden, fields.count("moe_intermediate_size"), gated=False)
    fields.optional_count("n_shared_experts", low=0)  # the shared block's size is a field of its own
    shared = FeedForward(hidden, fields.count("moe_shared_expert_intermediate_size"), gated=False, bias=bias)
    return _mixture(fields, expert, None, shared=shared, router_bias=True, latent_size=latent)


def _block(fields: Fields, width: str) -> FeedForward:
    return FeedForward(fields.count("hidden_size"), fields.count(width))


def _mixture(
    fields: Fields,
    expert: FeedForward,
    moe: Sequence[bool] | None,
    *,
    shared: FeedForward | None = None,
    shared_gate: bool = False,
    router_bias: bool = False,
    latent_size: int | None = None,
) -> Mixture:
    counts = [
        fields.optional_count(name) for name in ("n_routed_experts", "num_experts", "num_local_experts")
    ]
    num_experts = next((count for count in counts if count is not None), None)
    if num_experts is None:
        raise fields.error("num_experts", "missing, and so are n_routed_experts and num_local_experts")
    num_active = fields.count("num_experts_per_tok")
    if num_active > num_experts:
        raise fields.error("num_experts_per_tok", f"{num_active} is more than the {num_experts} experts")
    experts = Experts(
        fields.count("hidden_size"),
        num_experts,
        num_active,
        expert,
        shared=shared,
        shared_gate=shared_gate,
        router_bias=router_bias,
        latent_size=latent_size,
    )
    return Mixture(experts, None if moe is None else tuple(moe))
