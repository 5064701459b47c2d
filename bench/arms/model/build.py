"""A transformers model on a device: any architecture, any of its layers, random or real weights."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import psutil
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.import_utils import is_flash_attn_2_available

from bench.arms import ranks as group
from bench.arms.model.fused_norms import speed_up_norms
from bench.arms.model.memory import require_memory
from bench.arms.model.shard import (
    attention_is_whole,
    divide,
    held_elements,
    keep_own_heads,
    local,
    plan_changes,
)
from bench.arms.model.weights import fill_weights, load_weights
from bench.catalog.models.geometry import AttentionKind, LayerKind

ATTENTION_KINDS: dict[str, AttentionKind] = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
}
LayerChoice = Literal["auto", "all", "fit"]
NOT_DIMENSIONS = {"model_type", "architectures", "auto_map", "torch_dtype", "dtype", "quantization_config"}
NOT_DIMENSIONS |= {"_attn_implementation", "attn_implementation", "use_cache", "transformers_version"}
UNFUSED_NOTICE = "attention_unfused"
ROUTING_NOTICE = "moe_random_routing"
WHOLE_ATTENTION_NOTICE = "attention_whole"  # the library's plan divides the feed-forward alone


class UnsupportedArchitectureError(Exception):
    """A model that cannot be measured truthfully; names the field or layer that is not understood."""


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """Layers of one model with weights on a device, and what there is to know about them."""

    model: PreTrainedModel  # the library's model; holds only `layers`
    layers: tuple[int, ...]  # indices in the real model of the layers that were built
    kinds: tuple[LayerKind, ...]  # of the built layers
    model_kinds: tuple[LayerKind, ...]  # of all layers of the real model
    dtype: torch.dtype
    device: torch.device
    attention: str  # the implementation as carried out (`sdpa`, `eager`, `flash_attention_2`)
    experts: str | None  # the implementation of mixtures of experts, None without one
    notices: tuple[str, ...]  # codes of what makes timings suspect

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.model.config.vocab_size)

    @contextmanager
    def only(self, positions: Sequence[int]) -> Iterator[None]:
        """Run the built layers at `positions` alone; weights stay where they are.

        A layer keeps its cache index.  `layer_types` names the kinds of the layers that run first, then all
        others, because the library makes one mask and one rotary table for every kind that it finds there:
        in this way that part costs the same at every depth.
        """
        parent, stack = find_layers(self.model)
        config = self.model.config
        types = getattr(config, "layer_types", None)
        parent.layers = nn.ModuleList(stack[position] for position in positions)
        _set_depth(config, len(positions), types and [types[p] for p in positions] + list(types))
        try:
            yield
        finally:
            parent.layers = stack
            _set_depth(config, len(stack), types)


def read_config(raw: Mapping[str, Any]) -> PretrainedConfig:
    """The library's config of the text model that a `config.json` describes.

    Raises:
        UnsupportedArchitectureError: neither its model_type nor its architecture is known to the library.
    """
    text = raw.get("text_config", raw)
    model_type = str(text.get("model_type", raw.get("model_type", "")))
    if model_type not in CONFIG_MAPPING:
        architecture = (raw.get("architectures") or ["none"])[0]
        known = (key for key, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items() if name == architecture)
        found = next(known, None)
        if found is None:
            raise UnsupportedArchitectureError(
                f"model_type {model_type!r}, architecture {architecture!r}: not known to this transformers"
            )
        model_type = found
    dimensions = {key: value for key, value in text.items() if key not in NOT_DIMENSIONS}
    return AutoConfig.for_model(model_type, **dimensions)


def usable_cores() -> int:
    """Physical cores that this process may run on: of several ranks, its share."""
    allowed = len(psutil.Process().cpu_affinity() or ())
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed) // group.size())


def find_layers(model: PreTrainedModel) -> tuple[Any, nn.ModuleList]:
    """The module that holds the decoder layers, and the layers.

    Raises:
        UnsupportedArchitectureError: no list as long as `num_hidden_layers`.
    """
    for module in model.modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, nn.ModuleList) and len(layers) == model.config.num_hidden_layers:
            return module, layers
    raise UnsupportedArchitectureError(f"{type(model).__name__}: no list of num_hidden_layers decoder layers")


def find_kinds(model: PreTrainedModel) -> tuple[LayerKind, ...]:
    """Kind of every decoder layer.

    Raises:
        UnsupportedArchitectureError: a layer type whose KV we do not know.
    """
    types, _ = get_layer_types_and_kwargs(model.config)
    unknown = sorted(set(types) - set(ATTENTION_KINDS))
    if unknown:
        raise UnsupportedArchitectureError(f"{type(model).__name__}: layer_types {', '.join(unknown)}")
    _, stack = find_layers(model)
    return tuple(
        LayerKind(
            ATTENTION_KINDS[name], moe=any(part.endswith("experts") for part, _ in layer.named_modules())
        )
        for name, layer in zip(types, stack, strict=True)
    )


def describe_model(
    raw: Mapping[str, Any], device_type: str = "cpu"
) -> tuple[tuple[LayerKind, ...], tuple[int, ...], int]:
    """Kinds of all layers, weight elements that this rank holds of each, and of what is outside the layers."""
    model = _outline(read_config(raw), torch.float32, "eager")
    kinds = find_kinds(model)
    if group.size() > 1:
        divide(model, device_type)
    sizes = tuple(held_elements(layer) for layer in find_layers(model)[1])
    return kinds, sizes, held_elements(model) - sum(sizes)


def build_model(
    raw: Mapping[str, Any],
    *,
    dtype: torch.dtype,
    device: torch.device,
    layers: Sequence[int] | None = None,
    attention: str = "auto",
    weights: str | None = None,
    seed: int = 0,
    reserve_bytes: int = 0,
) -> BuiltModel:
    """The model on `device` with only the real model's `layers` (None: all), ready for inference.

    The whole model is laid out without memory first, so that each kept layer is exactly what it is in the
    real model (its window, experts, rotary rule), and then cut down; only what is left gets memory.  In a
    group of ranks, that is this rank's shard of every kept layer.

    Args:
        raw: content of a Hugging Face config.json.
        attention: `auto` or a name that the library knows.
        weights: folder with the model's own config and safetensors; None draws random weights.
        reserve_bytes: memory that must be left for KV and activations.

    Raises:
        UnsupportedArchitectureError, MemoryShortError, WeightsError
    """
    config = read_config(raw)
    chosen = choose_attention(config, attention, device)
    model = _outline(config, dtype, chosen)
    model_kinds = find_kinds(model)
    kept = tuple(range(len(model_kinds))) if layers is None else tuple(layers)
    if weights is None:
        _keep_layers(model, kept)
    whole_attention = group.size() > 1 and attention_is_whole(model)
    changes = plan_changes(model, group.size())
    if group.size() > 1:
        divide(model, device.type)
    needed = sum(local(p).numel() * p.element_size() for p in model.parameters()) + reserve_bytes
    require_memory(needed, device, purpose=f"{config.model_type} with {len(kept)} layers")
    if device.type == "cpu":
        torch.set_num_threads(usable_cores())
    if weights is None:
        model.to_empty(device=device)
        model.tie_weights()
        fill_weights(model, seed)
    else:
        model = load_weights(
            weights, config, dtype=dtype, attention=chosen, device_type=device.type, plan_changes=changes
        )
        nn.Module.to(model, device)
        _keep_layers(model, kept)
    if group.size() > 1:
        keep_own_heads(model)
    model.requires_grad_(False)
    model.train(False)
    speed_up_norms(model)
    built = _described(model, kept, model_kinds, dtype=dtype, device=device, random=weights is None)
    return replace(built, notices=(*built.notices, WHOLE_ATTENTION_NOTICE)) if whole_attention else built


def choose_attention(config: PretrainedConfig, asked: str, device: torch.device) -> str:
    """The attention implementation for `asked`; `auto` takes the fastest that model and device support.

    Raises:
        UnsupportedArchitectureError: the model does not run with the one asked for.
    """
    kind: Any = AutoModelForCausalLM._model_mapping[type(config)]
    if asked == "auto":
        if device.type == "cuda" and kind._supports_flash_attn and is_flash_attn_2_available():
            return "flash_attention_2"
        return "sdpa" if kind._supports_sdpa else "eager"
    supported = {"sdpa": kind._supports_sdpa, "eager": True}.get(asked, kind._supports_flash_attn)
    if not supported:
        raise UnsupportedArchitectureError(
            f"{kind.__name__} does not run with attention={asked}; use auto or eager"
        )
    return asked


def _outline(config: PretrainedConfig, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """The model without memory."""
    library: Any = AutoModelForCausalLM  # its constructors are not typed
    try:
        with torch.device("meta"):
            model: PreTrainedModel = library.from_config(config, dtype=dtype, attn_implementation=attention)
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedArchitectureError(
            f"transformers cannot build {config.model_type} with attention={attention}: {reason}"
        ) from error
    return model


def _keep_layers(model: PreTrainedModel, kept: Sequence[int]) -> None:
    parent, stack = find_layers(model)
    types = getattr(model.config, "layer_types", None)
    parent.layers = nn.ModuleList(stack[index] for index in kept)
    for position, layer in enumerate(parent.layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = position
    _set_depth(model.config, len(kept), types and [types[index] for index in kept])


def _set_depth(config: PretrainedConfig, num_layers: int, layer_types: Sequence[str] | None) -> None:
    config.num_hidden_layers = num_layers
    if layer_types is not None:
        config.layer_types = list(layer_types)


def _described(
    model: PreTrainedModel,
    kept: tuple[int, ...],
    model_kinds: tuple[LayerKind, ...],
    *,
    dtype: torch.dtype,
    device: torch.device,
    random: bool,
) -> BuiltModel:
    kinds = tuple(model_kinds[index] for index in kept)
    attention = str(model.config._attn_implementation)
    has_experts = any(kind.moe for kind in kinds)
    notices = ((UNFUSED_NOTICE,) if attention == "eager" else ()) + (
        (ROUTING_NOTICE,) if random and any(kind.moe for kind in model_kinds) else ()
    )
    experts = str(model.config._experts_implementation) if has_experts else None
    return BuiltModel(model, kept, kinds, model_kinds, dtype, device, attention, experts, notices)
