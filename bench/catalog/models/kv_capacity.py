"""How many bytes of KV so many tokens and users need, and how many fit: arithmetic over a model's dimensions.

Bytes come from `bench.catalog.models.geometry` alone.  Nothing here was measured.

What a store takes for a prefix, and what a capacity in tokens leaves out of it.

What the weights leave of a GPU's memory for KV: arithmetic over a model's parameters.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.catalog.models.geometry import Family
from bench.catalog.models.resolve import Model
from bench.record.units import format_bytes
from bench.record.validate import InputError, exact, require_positive, require_share
from kvio.layout.planes import KVLayout


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes in a store, over all ranks; heads and latents that several ranks keep count once per rank."""

    per_token: float | None  # every plane of one token, None where unknown
    states: float = 0.0  # linear-attention states of one prefix, however long it is


def format_states(state_bytes: float) -> tuple[str, ...]:
    """That a store holds fewer tokens than its bytes say, where prefixes have states; nothing where they do not."""
    if state_bytes <= 0:
        return ()
    return (
        f"each stored prefix has {format_bytes(state_bytes)} of linear-attention states too, and only one that has"
        " them is gone on from; how many a stack stores is not known, so room in bytes is counted in tokens alone:"
        " tokens held and hits are upper bounds",
    )


ORIGIN = "arithmetic"


@dataclass(frozen=True)
class Cache:
    """The KV cache of one model in one dtype, over the ranks of a tensor-parallel group."""

    model: Model  # whose dimensions count
    kv_dtype: str = "bfloat16"  # as `bench.catalog.models.kv_dtype` names them
    tensor_parallel: int = 1  # ranks of the group

    @cached_property
    def whole(self) -> KVLayout:
        """Every head, latent and state once."""
        return self.model.geometry.layout(self.kv_dtype)

    @cached_property
    def rank(self) -> KVLayout:
        """What the fullest rank keeps."""
        return self.model.geometry.layout(self.kv_dtype, self.tensor_parallel)

    @property
    def family(self) -> Family:
        """What sets its KV apart."""
        return self.model.geometry.family

    @property
    def token_bytes(self) -> int:
        """Bytes that one more token adds on all ranks, while no window is full: each stores what it keeps."""
        return self.tensor_parallel * self.rank.bytes_per_token

    @property
    def state_bytes(self) -> int:
        """Bytes of the linear-attention states of one prefix on all ranks, however long it is."""
        return self.tensor_parallel * self.rank.state_bytes

    def bytes_on_ranks(self, num_tokens: int) -> int:
        """Bytes that all ranks set aside for one sequence: each has room for what the fullest keeps."""
        return self.tensor_parallel * self.rank.bytes_at(num_tokens)

    def replication(self, num_tokens: int = 1) -> float:
        """How many times the ranks together keep what would be enough once; 1 where everything is divided."""
        return self.bytes_on_ranks(num_tokens) / self.whole.bytes_at(num_tokens)

    def mha_formula_bytes(self, num_tokens: int) -> int:
        """What 2 B S L H D gives for one sequence (B = 1) of S tokens, in bytes of the KV dtype."""
        return self.model.geometry.mha_formula_bytes_per_token(self.kv_dtype) * num_tokens


def most_tokens(layout: KVLayout, num_bytes: int) -> int | None:
    """The longest sequence whose KV fits into `num_bytes`; None where no length fills it (windows, states)."""
    per_token = layout.bytes_per_token_beyond_window
    widest = max((plane.window_tokens or 0 for plane in layout.planes), default=0)
    if per_token == 0 and layout.bytes_at(max(widest, 1)) <= num_bytes:
        return None
    bound = widest if per_token == 0 else max(num_bytes, 0) // per_token
    return max(bisect_right(range(bound + 1), num_bytes, key=layout.bytes_at) - 1, 0)


def token_table(caches: Sequence[Cache], at_tokens: int) -> pd.DataFrame:
    """One row per model: KV bytes of a token, and by what factor the formula for MHA is wrong.

    Columns: model, attention_kind, kv_dtype, tensor_parallel, kv_bytes_per_token, beyond_window_bytes_per_token
    (once every window is full), state_bytes, rank_bytes_per_token, replication_factor, mha_formula_bytes_per_token,
    at_tokens, mha_formula_factor (formula / real bytes of a sequence of `at_tokens`).
    """
    rows = [
        {
            "model": cache.model.key,
            "attention_kind": cache.family,
            "kv_dtype": cache.kv_dtype,
            "tensor_parallel": cache.tensor_parallel,
            "kv_bytes_per_token": cache.whole.bytes_per_token,
            "beyond_window_bytes_per_token": cache.whole.bytes_per_token_beyond_window,
            "state_bytes": cache.whole.state_bytes,
            "rank_bytes_per_token": cache.rank.bytes_per_token,
            "replication_factor": cache.replication(at_tokens),
            "mha_formula_bytes_per_token": cache.mha_formula_bytes(1),
            "at_tokens": at_tokens,
            "mha_formula_factor": cache.mha_formula_bytes(at_tokens) / cache.whole.bytes_at(at_tokens),
        }
        for cache in caches
    ]
    return label(rows)


def model_table(caches: Sequence[Cache]) -> pd.DataFrame:
    """One row per model: its kind of attention, KV bytes of a token and longest context."""
    rows = [
        {
            "model": cache.model.key,
            "attention_kind": cache.family,
            "kv_dtype": cache.kv_dtype,
            "kv_bytes_per_token": cache.whole.bytes_per_token,
            "context_tokens": cache.model.geometry.max_position_embeddings,
        }
        for cache in caches
    ]
    return label(rows)


def length_table(caches: Sequence[Cache], lengths: Sequence[int]) -> pd.DataFrame:
    """One row per model and length: model, tokens, kv_bytes (once), kv_bytes_on_ranks (all ranks together)."""
    rows = [
        {
            "model": cache.model.key,
            "tokens": tokens,
            "kv_bytes": cache.whole.bytes_at(tokens),
            "kv_bytes_on_ranks": cache.bytes_on_ranks(tokens),
        }
        for cache in caches
        for tokens in lengths
    ]
    return label(rows)


def users_table(caches: Sequence[Cache], users: Sequence[int], contexts: Sequence[int]) -> pd.DataFrame:
    """One row per model, context and number of users: KV bytes of all of them, none of it shared.

    Columns: model, users, tokens (of each user), user_bytes, kv_bytes, kv_bytes_on_ranks.
    """
    rows = [
        {
            "model": cache.model.key,
            "users": number,
            "tokens": tokens,
            "user_bytes": cache.whole.bytes_at(tokens),
            "kv_bytes": number * cache.whole.bytes_at(tokens),
            "kv_bytes_on_ranks": number * cache.bytes_on_ranks(tokens),
        }
        for cache in caches
        for tokens in contexts
        for number in users
    ]
    return label(rows)


def room_table(caches: Sequence[Cache], room_bytes: int, contexts: Sequence[int]) -> pd.DataFrame:
    """What fits into DRAM or a drive of `room_bytes`, every head stored once.

    Columns: model, room_bytes, sequence_tokens (longest single sequence, missing where nothing fills the room),
    tokens (of each user), user_bytes, users (that fit), users_as_ranks_keep_it (each rank stores its own copy).

    Raises:
        InputError: no room.
    """
    require_positive("room", room_bytes, unit="bytes")
    rows = [
        {
            "model": cache.model.key,
            "room_bytes": room_bytes,
            "sequence_tokens": most_tokens(cache.whole, room_bytes),
            "tokens": tokens,
            "user_bytes": cache.whole.bytes_at(tokens),
            "users": room_bytes // cache.whole.bytes_at(tokens),
            "users_as_ranks_keep_it": room_bytes // cache.bytes_on_ranks(tokens),
        }
        for cache in caches
        for tokens in contexts
    ]
    return label(rows)


def label(rows: Sequence[Mapping[str, object]], origin: str = ORIGIN) -> pd.DataFrame:
    """Rows as a frame with the figures' origin as last column; whole numbers stay whole."""
    table = pd.DataFrame(rows, dtype=object)
    table["origin"] = origin
    table.attrs["origin"] = origin
    return table


RESERVE_SHARE = (
    0.05  # activations and the rest: "the remaining small percentage" of arXiv 2309.06180, section 1
)
# bits of one weight, scales of quantised formats not counted
WEIGHT_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU of a tensor-parallel group."""

    memory_bytes: int  # of the GPU
    weight_bytes: int  # the rank's share of the weights
    reserve_bytes: int  # activations, CUDA context, whatever else is not KV
    sequence_tokens: int | None  # longest sequence whose KV the rank can hold; None where no length fills it

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
