"""Random weights of a realistic magnitude, as fast as memory can be written.

A model with saved weights, each rank reading its own shard.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils.import_utils import is_accelerate_available

from bench.arms import ranks as group
from bench.arms.model.shard import own_part


class WeightsError(Exception):
    """Real weights that cannot be used as they are."""


def load_weights(
    folder: str,
    config: PretrainedConfig,
    *,
    dtype: torch.dtype,
    attention: str,
    device_type: str,
    plan_changes: Mapping[str, str],
) -> PreTrainedModel:
    """The model with the safetensors in `folder`; of several ranks, this one's shard of it.

    Args:
        plan_changes: rules of the library's tensor-parallel plan that are to be others.

    Raises:
        WeightsError: no safetensors, some missing, a group without accelerate, or on another device than the
            library would use.
    """
    path = Path(folder)
    if not any(path.glob("*.safetensors")):
        raise WeightsError(f"{folder}: no *.safetensors here; download the model's folder first and name it")
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        str(path),
        config=config,
        dtype=dtype,
        attn_implementation=attention,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
        **_shared_among_ranks(folder, device_type, plan_changes),
    )
    model: PreTrainedModel = loaded[0]
    report: dict[str, Any] = loaded[1]
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise WeightsError(
            f"{folder}: {len(lacking)} tensors missing or of another shape, first {lacking[0]}"
        )
    return model


def _shared_among_ranks(folder: str, device_type: str, plan_changes: Mapping[str, str]) -> dict[str, Any]:
    if group.size() == 1:
        return {}
    if not is_accelerate_available():
        raise WeightsError(
            f"{folder}: with --tp, transformers reads weights by accelerate, which is not installed: "
            "pip install 'kvcross[tp-weights]'"
        )
    accelerator = torch.accelerator.current_accelerator()
    found = "cpu" if accelerator is None else accelerator.type
    if found != device_type:  # the library takes no other device for its ranks than the machine's best
        raise WeightsError(
            f"{folder}: with --tp, transformers loads weights to {found} only, not to {device_type}; try --device {found}"
        )
    changes = dict(plan_changes) or None
    return {"distributed_config": DistributedConfig(tp_size=group.size(), tp_plan=changes)}


POOL_ELEMENTS = 4_194_301  # a prime near 2**22, so that no matrix row length divides it
BLOCK_ELEMENTS = 2**20  # of a divided matrix that are made whole at a time: a processor's cache holds them


def fill_weights(model: PreTrainedModel, seed: int) -> None:
    """Give every matrix normal values of standard deviation 1/sqrt(fan-in), and the rest what the library
    gives.

    Drawing billions of normal values takes minutes on a CPU, and every round is a fresh process.  So one
    pool of normal values is drawn and laid end to end into each matrix, beginning elsewhere for each one
    and with its own sign.  For timing that is enough: the values are dense, of both signs, and repeat only
    every 8 to 16 MB. For correctness it is too: every layer differs, and since the pool's length is prime,
    so does every row. With 1/sqrt(fan-in) activations, queries, keys and values are of order one whatever
    the depth.

    The input embedding shares memory with the head where the shapes allow: a lookup reads as many bytes
    either way, and the first touch of gigabytes is most of the time that building takes.

    A rank of several fills its shards with what the whole model would have there, so that all ranks together
    are the model that one would be.

    Norms, biases, sinks, gates and the buffers (rotary frequencies among them, which `to_empty` leaves
    undefined) come from the library's own initialisation, which draws from the same seed.
    """
    _share_embeddings(model)
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if parameter.dim() < 2 or name.endswith("bias"):
            continue
        std = parameter.shape[-1] ** -0.5
        if isinstance(parameter, DTensor):
            fill_shard(parameter, seed, number=number, std=std)
        else:
            fill_normal(parameter.data, seed, number=number, std=std)
        parameter._is_hf_initialized = True  # type: ignore[attr-defined]
    for module in model.modules():
        module._is_hf_initialized = False  # type: ignore[assignment]
    device = next(model.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # some initialisers draw: decays of linear attention
        model.initialize_weights()  # type: ignore[no-untyped-call]
    _clear_expert_biases(model)


def fill_normal(tensor: torch.Tensor, seed: int, *, number: int, std: float, first: int = 0) -> None:
    """Normal values from the pool, another stretch of it with another sign for every `number`.

    The tensor may be of any dtype and must be contiguous; float8 is written through float32.  It is the part
    of a larger one that begins at element `first` there.
    """
    wide = tensor.dtype.itemsize > 1  # float8 has no arithmetic
    pool = _pool(tensor.device, seed, tensor.dtype if wide else torch.float32)
    flat = tensor.view(-1)
    scale = -std if number % 2 else std
    offset = (number * 2_654_435_761 + seed + first) % POOL_ELEMENTS  # Knuth's multiplicative hash
    done = 0
    while done < flat.numel():
        count = min(flat.numel() - done, POOL_ELEMENTS - offset)
        source, target = pool[offset : offset + count], flat[done : done + count]
        if wide:
            torch.mul(source, scale, out=target)
        else:
            target.copy_(source * scale)
        done, offset = done + count, 0


def fill_shard(parameter: DTensor, seed: int, *, number: int, std: float) -> None:
    """This rank's part of what `fill_normal` would write to the whole parameter.

    Where the parameter is divided along a later dimension, so that its part is scattered over the whole, the
    whole is made a few megabytes at a time and cut.
    """
    dim, ranges = own_part(parameter)
    before, size, after = prod(parameter.shape[:dim]), parameter.shape[dim], prod(parameter.shape[dim + 1 :])
    shard = parameter.to_local().data.view(before, -1, after)
    rows = 1 if before == 1 else min(before, max(1, BLOCK_ELEMENTS // (size * after)))
    block = None if before == 1 else shard.new_empty(rows, size, after)
    for row in range(0, before, rows):
        part = None if block is None else block[: min(rows, before - row)]
        if part is not None:
            fill_normal(part, seed, number=number, std=std, first=row * size * after)
        at = 0
        for start, end in ranges:
            own = shard[row : row + rows, at : at + end - start]
            if part is None:
                fill_normal(own, seed, number=number, std=std, first=start * after)
            else:
                own.copy_(part[:, start:end])
            at += end - start


@lru_cache(maxsize=2)
def _pool(device: torch.device, seed: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(POOL_ELEMENTS, generator=generator, device=device).to(dtype)


def _share_embeddings(model: PreTrainedModel) -> None:
    library: Any = model  # its accessors are not typed
    head, embedding = library.get_output_embeddings(), library.get_input_embeddings()
    if head is not None and head.weight.shape == embedding.weight.shape:
        embedding.weight = head.weight


def _clear_expert_biases(model: nn.Module) -> None:
    """Biases of fused experts are matrices that some initialisers leave out; zero is what the others get."""
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and name.endswith("bias"):
            parameter.data.zero_()
