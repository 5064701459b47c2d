"""Modelled seconds of both arms on a described machine.

    T_recompute(n) = o + max( G(n) / (t s R_gemm) + sum_k A_k(n) / (t s R_attn(len_k)) + C(n),  W(n) / (t M) )
    T_load(n)      = o + first(n) + move(n)
    first(n)       = (W(1) + kv(n)) / M          per rank: weights once, KV of the prefix once
    move(n)        = max( sum over ranks bytes(n) / B_storage,  bytes of a rank / B_link + copies(n) copy_s )
    C(n)           = 2 layers x 2 (t - 1) / t x n hidden 2 bytes / B_peer        two ring all-reduces per layer

Rates of products were measured with 512 rows and more.  With fewer, the value and the lower bound suppose that reading
the weights hides behind computing or the reverse; the upper bound that of the shorter of the two a share 1 - n / 512
does not hide: all of it for a token, nothing from 512 rows on.  o has a range over setups; where arms are compared, a
prefill pays no more of it than a load.

with t ranks, R the measured rate of a kernel, s the engine's share of it, o its overhead, M the reachable memory
bandwidth, W the bytes of weights that a pass touches.  docs/model.md has the sources and the measured errors.

What a prefill has to compute, and which weights it touches: counts alone, no rates.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from bench.catalog.models.geometry import Geometry, LayerKind
from bench.predict.bounded import Bounded, Pick
from bench.predict.rates import ComputeRates
from kvio.layout.planes import KVLayout

LOADING_FROM = ", loading from "  # in a label, before the storage


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """Operations of one prefill, all tensor-parallel ranks together."""

    gemm_flops: float  # matrix products, the output head of the last token and linear-attention states
    # per kind of layer, its operations over query-key pairs (the causal half) and the length of a causal prompt with as
    # many pairs per query: 2 x pairs / tokens, which is n without windows
    attention: tuple[tuple[float, float], ...]

    @property
    def flops(self) -> float:
        """All operations."""
        return self.gemm_flops + sum(flops for flops, _ in self.attention)


@lru_cache(maxsize=2**14)  # curves are asked for the same lengths again and again
def prefill_work(geometry: Geometry, num_tokens: int) -> PrefillWork:
    """The operations to prefill `num_tokens` tokens: those of `Geometry.prefill_flops`, split by kernel."""
    gemm = 2.0 * geometry.hidden_size * geometry.vocab_size
    attention = []
    for kind, count in Counter(geometry.layers).items():
        products = 2 * geometry.layer_params(kind, active=True) * num_tokens
        rest = geometry.layer_flops(kind, num_tokens) - products
        if kind.attention in {"linear", "none"}:
            gemm += count * (products + rest)
            continue
        gemm += count * products
        pairs = rest / geometry.attention.pair_flops
        attention.append((float(count * rest), 2 * pairs / max(num_tokens, 1)))
    return PrefillWork(gemm, tuple(attention))


@lru_cache(maxsize=2**14)
def touched_params(geometry: Geometry, num_tokens: int) -> float:
    """Parameters of the layers and the output head that a pass over `num_tokens` tokens reads.

    Of a mixture, each expert is read if any token takes it: with routing as good as random, a share
    1 - (1 - active / experts)^n of the experts.
    """
    total = float(geometry.hidden_size * geometry.vocab_size)
    for kind, count in Counter(geometry.layers).items():
        total += count * _touched(geometry, kind, num_tokens)
    return total


def _touched(geometry: Geometry, kind: LayerKind, num_tokens: int) -> float:
    active, every = (geometry.layer_params(kind, active=active) for active in (True, False))
    experts = geometry.experts
    if not kind.moe or experts is None or experts.num_active == experts.num_experts:
        return active
    share = 1 - (1 - experts.num_active / experts.num_experts) ** num_tokens
    one = (every - active) / (experts.num_experts - experts.num_active)
    return active + one * (share * experts.num_experts - experts.num_active)


MEASURED_ROWS = 512  # of the matrix products in kernels.toml, at least
ACTIVATION_BYTES = 2  # activations travel between ranks in bfloat16 whatever the weights are
FASTER: dict[Pick, Pick] = {
    "value": "value",
    "low": "high",
    "high": "low",
}  # seconds are low where rates are high


class TimeModel(Protocol):
    """Seconds of both arms by prefix length, modelled."""

    @property
    def label(self) -> str:
        """What is modelled: model, device, storage."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What had to be supposed."""

    @property
    def has_bounds(self) -> tuple[bool, bool]:
        """Whether recompute and load have bounds."""

    def recompute_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds to prefill the prefix."""

    def fixed_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds of a load that no faster storage would save."""

    def transfer_s(self, num_tokens: int, pick: Pick = "value", *, scale: float = 1.0) -> float:
        """Seconds to bring the bytes in, were the storage `scale` times as fast."""

    def both_arms_s(
        self, num_tokens: int, recompute: Pick, load: Pick, *, scale: float = 1.0
    ) -> tuple[float, float]:
        """Seconds of both arms as one comparison may take their bounds: what they share is equal in both."""

    @property
    def shared_range_s(self) -> float:
        """By how many seconds what both arms of `both_arms_s` share may be longer than at its low end."""

    def num_bytes(self, num_tokens: int) -> int:
        """Bytes that the load arm reads from storage for this prefix, all ranks together."""


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """What a serving engine adds: see `bench.catalog.devices.device_catalog.Engine`."""

    compute_share: float = 1.0
    overhead_s: float = 0.0
    copy_s: float = 0.0
    block_tokens: int = 256
    # of `overhead_s` over setups, None where one number is all that is known
    overhead_range_s: tuple[float, float] | None = None

    def overhead_at(self, pick: Pick) -> float:
        """Seconds of a request's overhead, or a bound of them."""
        low, high = self.overhead_range_s or (self.overhead_s, self.overhead_s)
        return {"value": self.overhead_s, "low": low, "high": high}[pick]


@dataclass(frozen=True, slots=True)
class CostModel:
    """A model on a described machine; see the module for the formulas."""

    label: str
    geometry: Geometry
    layout: KVLayout  # KV of the fullest rank
    num_gpus: int
    weight_bytes: float  # bytes of one parameter
    compute: ComputeRates
    engine: EngineCosts
    memory_bytes_per_s: float | None  # reachable bandwidth of one GPU's memory, None when unknown
    peer_bytes_per_s: float | None
    link: Bounded | None  # bytes/s from host memory into one GPU, None when unknown
    # bytes/s of the storage, shared by all ranks; None when the KV lies in host memory
    storage: Bounded | None
    notices: tuple[str, ...] = field(default=())

    @property
    def has_bounds(self) -> tuple[bool, bool]:
        """Whether recompute and load have bounds."""
        rate, overhead = self.storage or self.link, self.engine.overhead_range_s is not None
        return overhead or self.compute.gemm.known, overhead or (rate is not None and rate.known)

    def kernel_s(self, num_tokens: int, pick: Pick = "value") -> tuple[float, float]:
        """Seconds of matrix products and of attention on each rank, were there no engine."""
        work = prefill_work(self.geometry, num_tokens)
        gemm = work.gemm_flops / self.compute.gemm.at(FASTER[pick]) / self.num_gpus
        attention = sum(flops / self.compute.attention_at(length) for flops, length in work.attention)
        return gemm, attention / self.num_gpus

    def exchange_s(self, num_tokens: int) -> float:
        """Seconds of the all-reduces of tensor parallelism; 0 on one GPU or where the peers' rate is unknown."""
        if self.num_gpus == 1 or self.peer_bytes_per_s is None:
            return 0.0
        share = 2 * (self.num_gpus - 1) / self.num_gpus
        activations = num_tokens * self.geometry.hidden_size * ACTIVATION_BYTES
        return 2 * len(self.geometry.layers) * share * activations / self.peer_bytes_per_s

    def recompute_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds to prefill the prefix."""
        shorter_s, longer_s = sorted((self._compute_s(num_tokens, pick), self._weights_s(num_tokens)))
        unhidden = max(1 - num_tokens / MEASURED_ROWS, 0.0) if pick == "high" else 0.0
        return self.engine.overhead_at(pick) + longer_s + unhidden * shorter_s

    def _compute_s(self, num_tokens: int, pick: Pick) -> float:
        return sum(self.kernel_s(num_tokens, pick)) / self.engine.compute_share + self.exchange_s(num_tokens)

    def _weights_s(self, num_tokens: int) -> float:
        return self._read_s(touched_params(self.geometry, num_tokens) * self.weight_bytes / self.num_gpus)

    def both_arms_s(
        self, num_tokens: int, recompute: Pick, load: Pick, *, scale: float = 1.0
    ) -> tuple[float, float]:
        """Seconds of both arms of one request: a load may add to what a request costs, a prefill pays no more."""
        overhead_s = self.engine.overhead_at(recompute)
        shared_s = min(overhead_s, self.engine.overhead_at(load))
        moving = self.transfer_s(num_tokens, load, scale=scale)
        recompute_s = self.recompute_s(num_tokens, recompute) - overhead_s + shared_s
        return recompute_s, self.fixed_s(num_tokens, load) + moving

    @property
    def shared_range_s(self) -> float:
        """Width of the range of a request's overhead, seconds."""
        return self.engine.overhead_at("high") - self.engine.overhead_at("low")

    def step_s(self, num_tokens: int) -> float:
        """Seconds of the first-token step: one token's weights and the KV of the prefix are read."""
        weights = touched_params(self.geometry, 1) * self.weight_bytes / self.num_gpus
        return self._read_s(weights + self.layout.bytes_at(num_tokens))

    def fixed_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds of a load that no faster storage would save."""
        return self.engine.overhead_at(pick) + self.step_s(num_tokens)

    def transfer_s(self, num_tokens: int, pick: Pick = "value", *, scale: float = 1.0) -> float:
        """Seconds to bring the bytes in, storage and link overlapped."""
        through_link = 0.0
        if self.link is not None:
            copies = math.ceil((num_tokens - 1) / self.engine.block_tokens)
            rank_bytes = self.layout.bytes_at(num_tokens - 1)
            through_link = rank_bytes / self.link.at(FASTER[pick]) + copies * self.engine.copy_s
        if self.storage is None:
            return through_link / scale
        return max(self.num_bytes(num_tokens) / (self.storage.at(FASTER[pick]) * scale), through_link)

    def load_s(self, num_tokens: int) -> float:
        """Seconds of the load arm."""
        return self.fixed_s(num_tokens) + self.transfer_s(num_tokens)

    def num_bytes(self, num_tokens: int) -> int:
        """Bytes that all ranks read: of the prefix but its last token, what is replicated once per rank."""
        return self.num_gpus * self.layout.bytes_at(num_tokens - 1)

    def _read_s(self, num_bytes: float) -> float:
        return 0.0 if self.memory_bytes_per_s is None else num_bytes / self.memory_bytes_per_s
