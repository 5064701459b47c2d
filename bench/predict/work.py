"""What a prefill has to compute, and which weights it touches: counts alone, no rates."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from bench.catalog.models.geometry import Geometry, LayerKind


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one prefill, all tensor-parallel ranks together.

    Args:
        gemm_flops: matrix products, the output head of the last token and linear-attention states.
        attention: per kind of layer, its operations over query-key pairs (the causal half) and the length of
            a causal prompt with as many pairs per query: 2 x pairs / tokens, which is n without windows.
    """

    gemm_flops: float
    attention: tuple[tuple[float, float], ...]

    @property
    def flops(self) -> float:
        """All operations."""
        return self.gemm_flops + sum(flops for flops, _ in self.attention)


@lru_cache(maxsize=2**14)  # curves are asked for the same lengths again and again
def prefill_work(geometry: Geometry, num_tokens: int) -> Work:
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
    return Work(gemm, tuple(attention))


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
