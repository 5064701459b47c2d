"""What the weights leave of a GPU's memory for KV: arithmetic over a model's parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from bench.catalog.models.kv_capacity import Cache, label, most_tokens
from bench.record.validate import InputError, exact, require_positive, require_share

RESERVE_SHARE = (
    0.05  # activations and the rest: "the remaining small percentage" of arXiv 2309.06180, section 1
)
# bits of one weight, scales of quantised formats not counted
WEIGHT_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU of a tensor-parallel group.

    Args:
        memory_bytes: of the GPU.
        weight_bytes: the rank's share of the weights.
        reserve_bytes: activations, CUDA context, whatever else is not KV.
        sequence_tokens: longest sequence whose KV the rank can hold; None where no length fills it.
    """

    memory_bytes: int
    weight_bytes: int
    reserve_bytes: int
    sequence_tokens: int | None

    @property
    def kv_bytes(self) -> int:
        """Bytes left for KV; negative by what is missing when the weights do not fit."""
        return self.memory_bytes - self.weight_bytes - self.reserve_bytes

    @property
    def weight_share(self) -> float:
        """Share of the memory that weights take."""
        return self.weight_bytes / self.memory_bytes

    @property
    def kv_share(self) -> float:
        """Share of the memory left for KV; negative when the weights do not fit."""
        return self.kv_bytes / self.memory_bytes


def divide_gpu_memory(
    cache: Cache, memory_bytes: int, *, weight_dtype: str = "bfloat16", reserve_share: float = 0.0
) -> GpuMemory:
    """How one GPU's memory divides into weights, reserve and KV.

        KV = memory - parameters x bytes of a weight / ranks - reserve share x memory

    Every rank is taken to hold 1/TP of the parameters (norms, which ranks repeat, are below 0.1 %).

    Source: Kwon et al. (arXiv 2309.06180), figure 1: on an A100 with 40 GB, the weights of a 13B model take
    about 65 %, KV close to 30 %, the rest is for activations.

    Raises:
        InputError: unknown dtype, no memory, or a reserve that is no share.
    """
    require_positive("GPU memory", memory_bytes, unit="bytes")
    require_share("reserve", reserve_share)
    bits = require_weight_bits(weight_dtype)
    weight_bytes = -(-cache.model.geometry.params_total * bits // (8 * cache.tensor_parallel))
    reserve_bytes = round(exact(reserve_share) * memory_bytes)
    left = memory_bytes - weight_bytes - reserve_bytes
    return GpuMemory(
        memory_bytes, weight_bytes, reserve_bytes, most_tokens(cache.rank, left) if left > 0 else 0
    )


def require_weight_bits(weight_dtype: str) -> int:
    """Bits of one weight.

    Raises:
        InputError: the dtype is unknown.
    """
    bits = WEIGHT_BITS.get(weight_dtype)
    if bits is None:
        raise InputError(f"weight dtype {weight_dtype!r:.40} is unknown; known: {', '.join(WEIGHT_BITS)}")
    return bits


def gpu_table(
    caches: Sequence[Cache],
    memory_bytes: int,
    contexts: Sequence[int],
    *,
    weight_dtype: str = "bfloat16",
    reserve_share: float = 0.0,
) -> pd.DataFrame:
    """One row per model and context: the division of one GPU, and the users that a group of TP such GPUs holds.

    Columns: model, tensor_parallel, memory_bytes, weight_dtype, weight_bytes, reserve_bytes, kv_bytes (negative:
    what is missing), weight_share, kv_share, sequence_tokens (longest single sequence, missing where no length
    fills the rest), tokens (of each user), rank_user_bytes, users.
    """
    rows = []
    for cache in caches:
        memory = divide_gpu_memory(
            cache, memory_bytes, weight_dtype=weight_dtype, reserve_share=reserve_share
        )
        for tokens in contexts:
            user_bytes = cache.rank.bytes_at(tokens)
            rows.append(
                {
                    "model": cache.model.key,
                    "tensor_parallel": cache.tensor_parallel,
                    "memory_bytes": memory.memory_bytes,
                    "weight_dtype": weight_dtype,
                    "weight_bytes": memory.weight_bytes,
                    "reserve_bytes": memory.reserve_bytes,
                    "kv_bytes": memory.kv_bytes,
                    "weight_share": memory.weight_share,
                    "kv_share": memory.kv_share,
                    "sequence_tokens": memory.sequence_tokens,
                    "tokens": tokens,
                    "rank_user_bytes": user_bytes,
                    "users": max(memory.kv_bytes, 0) // user_bytes,
                }
            )
    return label(rows)
