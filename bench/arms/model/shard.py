"""A model divided among ranks by the library's own tensor-parallel plan.

The plan is applied while the model has no memory yet, as the library does before it reads a checkpoint: each
parameter becomes a shard, and only the shard gets memory.  No rank ever holds the whole model.

The library divides K and V heads only where each rank gets the same number of whole ones.  With fewer heads
than ranks each rank needs one head whole, and several ranks keep the same one, as serving engines do it; the
plan is changed so that K and V are made whole first, and then cut to the rank's head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.sharding_utils import DtensorShardOperation
from transformers.distributed.tensor_parallel import apply_tensor_parallelism, get_kv_heads_per_rank
from transformers.utils import logging

from bench.arms import ranks as group

KV_PROJECTIONS = ("k_proj", "v_proj")


class NotDivisibleError(Exception):
    """The library cannot divide the model among ranks as a serving engine would; one line with the reason."""


def kv_heads_of(config: PretrainedConfig) -> int:
    """K and V heads of the whole model."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def repeats_kv_heads(config: PretrainedConfig, num_ranks: int) -> bool:
    """True when there are more ranks than K and V heads, so that several keep the same one; never for MLA."""
    return not hasattr(config, "kv_lora_rank") and kv_heads_of(config) < num_ranks


def require_divisible(model: PreTrainedModel, num_ranks: int) -> None:
    """Stop on a model whose KV cache the library's plan does not divide (or, for MLA, keep whole) as engines do.

    Raises:
        NotDivisibleError: no plan, heads that do not come out even, K and V whole on every rank, or states.
    """
    config, plan = model.config, model.tp_plan
    name = f"{config.model_type} with --tp {num_ranks}"
    if config.num_attention_heads % num_ranks:
        raise NotDivisibleError(f"{name}: {config.num_attention_heads} attention heads do not divide evenly")
    if not any("layers." in rule for rule in plan):
        raise NotDivisibleError(
            f"{name}: transformers has no tensor-parallel plan for its layers; try --tp 1"
        )
    if "linear_attention" in (getattr(config, "layer_types", None) or ()):
        raise NotDivisibleError(
            f"{name}: the plan of transformers keeps linear-attention states whole on every rank; try --tp 1"
        )
    if hasattr(config, "kv_lora_rank"):
        return
    kv_heads = kv_heads_of(config)
    if kv_heads % num_ranks and num_ranks % kv_heads:
        raise NotDivisibleError(f"{name}: {kv_heads} K and V heads do not divide evenly")
    if get_kv_heads_per_rank(plan, kv_heads, num_ranks) == kv_heads:
        raise NotDivisibleError(
            f"{name}: the plan of transformers leaves keys and values whole on every rank; try --tp 1"
        )


def attention_is_whole(model: PreTrainedModel) -> bool:
    """True when the plan divides the feed-forward alone, so that every rank computes all of the attention."""
    return not any(".self_attn.o_proj" in rule for rule in model.tp_plan)


def plan_changes(model: PreTrainedModel, num_ranks: int) -> dict[str, str]:
    """Rules that differ from the library's: K and V made whole where each rank is to keep one head of fewer."""
    if not repeats_kv_heads(model.config, num_ranks):
        return {}
    return {rule: "replicate" for rule in model.tp_plan if rule.rpartition(".")[2] in KV_PROJECTIONS}


def divide(model: PreTrainedModel, device_type: str) -> None:
    """Make every parameter of a model without memory a shard, and have its forward exchange activations.

    Raises:
        NotDivisibleError: see `require_divisible`.
    """
    num_ranks = group.size()
    require_divisible(model, num_ranks)
    library: Any = model  # resolves the wildcards of its plan itself, in a method that is not public
    with _quiet():
        plan, _, _ = library._resolve_parallel_plans(
            DistributedConfig(tp_size=num_ranks, tp_plan=plan_changes(model, num_ranks) or None)
        )
        mesh = init_device_mesh(device_type, (num_ranks,), mesh_dim_names=("tp",))
        _untie(library)  # the plan names both of two tied parameters, and must find both
        apply_tensor_parallelism(library, mesh, plan)
        library.tie_weights()


def _untie(model: Any) -> None:  # noqa: ANN401 (the library's model, whose accessors are not typed)
    for name in model.all_tied_weights_keys:
        owner, _, parameter = name.rpartition(".")
        tied = model.get_parameter(name)
        setattr(model.get_submodule(owner), parameter, nn.Parameter(torch.empty_like(tied)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's warnings of rules that name what this model does not have."""
    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def keep_own_heads(model: PreTrainedModel) -> None:
    """Cut K and V, whole on every rank so far, to the one head that this rank's queries look at."""
    num_ranks, config = group.size(), model.config
    if not repeats_kv_heads(config, num_ranks):
        return
    head = group.rank() * kv_heads_of(config) // num_ranks
    for module in model.modules():
        if not all(hasattr(module, name) for name in KV_PROJECTIONS):
            continue
        attention: Any = module
        for name in KV_PROJECTIONS:
            _keep_rows(getattr(attention, name), head * attention.head_dim, attention.head_dim)
        attention.num_key_value_groups = config.num_attention_heads // num_ranks


def _keep_rows(linear: nn.Linear, first: int, count: int) -> None:
    for name in ("weight", "bias"):
        whole = getattr(linear, name)
        if whole is not None:
            own = whole.detach()[first : first + count].clone()
            setattr(linear, name, nn.Parameter(own, requires_grad=whole.requires_grad))
    linear.out_features = count


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard, or the tensor itself where it is not divided."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def held_elements(module: nn.Module) -> int:
    """Elements of the module's parameters that this rank holds."""
    return sum(local(parameter).numel() for parameter in module.parameters())


def own_part(parameter: DTensor) -> tuple[int, list[tuple[int, int]]]:
    """Along which dimension a parameter is divided, and the ranges (first, beyond the last) of this rank there.

    Asked of the operation that the library reads checkpoints with; packed weights (gate and up in one) have
    several ranges.  A parameter that every rank keeps whole has one range, of all.
    """
    placement: Any = parameter.placements[0]
    dim = placement.dim % parameter.dim() if hasattr(placement, "dim") else 0
    numbers = torch.arange(parameter.shape[dim]).view([-1 if d == dim else 1 for d in range(parameter.dim())])
    owned = DtensorShardOperation(parameter).shard_tensor(numbers)
    ranges: list[tuple[int, int]] = []
    for number in () if owned is None else owned.flatten().tolist():
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return dim, ranges
