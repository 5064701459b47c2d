"""Geometry of a KV cache: which tensors are kept for each token, and how many bytes they are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Role = Literal["k", "v", "latent", "rope", "indexer"]


@dataclass(frozen=True, slots=True)
class Plane:
    """One tensor that one layer keeps for the tokens: its K, its V, an MLA latent.

    Args:
        layer: index of the layer in the model, from 0.
        role: what the tensor is.
        token_bytes: bytes for one token (one tensor-parallel rank).
        window_tokens: only the last this many tokens are kept; None keeps all.
    """

    layer: int
    role: Role
    token_bytes: int
    window_tokens: int | None = None

    def tokens_kept(self, num_tokens: int) -> int:
        """Tokens that this plane still holds after a prefix of `num_tokens`."""
        return num_tokens if self.window_tokens is None else min(num_tokens, self.window_tokens)


@dataclass(frozen=True, slots=True)
class PlaneGroup:
    """Planes of equal size and window, stored side by side: (num_planes, tokens, token_bytes)."""

    planes: tuple[Plane, ...]

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in one plane."""
        return self.planes[0].token_bytes

    @property
    def window_tokens(self) -> int | None:
        """Tokens kept, None for all."""
        return self.planes[0].window_tokens


@dataclass(frozen=True, slots=True)
class KVLayout:
    """All that one rank keeps for a prefix; every byte count derives from it.

    Args:
        planes: the per-token tensors, layer by layer.
        state_bytes: linear-attention states of all layers, independent of the prefix length.
    """

    planes: tuple[Plane, ...]
    state_bytes: int = 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more token adds while no window is full."""
        return sum(plane.token_bytes for plane in self.planes)

    @property
    def bytes_per_token_beyond_window(self) -> int:
        """Bytes that one more token adds once every window is full."""
        return sum(plane.token_bytes for plane in self.planes if plane.window_tokens is None)

    def bytes_at(self, num_tokens: int) -> int:
        """Bytes that a prefix of `num_tokens` needs to go on: windows and states do not grow."""
        kept = sum(plane.token_bytes * plane.tokens_kept(num_tokens) for plane in self.planes)
        return kept + (self.state_bytes if num_tokens > 0 else 0)

    @property
    def groups(self) -> tuple[PlaneGroup, ...]:
        """Planes by (window, size): unlimited first, then wide windows before narrow ones.

        In this order, what an old chunk still has to contribute is always a front part of its file.
        """
        found: dict[tuple[float, int], list[Plane]] = {}
        for plane in self.planes:
            window = float("inf") if plane.window_tokens is None else plane.window_tokens
            found.setdefault((-window, -plane.token_bytes), []).append(plane)
        return tuple(PlaneGroup(tuple(found[key])) for key in sorted(found))


def uniform_layout(num_layers: int, token_bytes: int, *, roles: Iterable[Role] = ("k", "v")) -> KVLayout:
    """The layout of a model whose layers all keep the same planes of `token_bytes` each."""
    kinds = tuple(roles)
    return KVLayout(tuple(Plane(layer, role, token_bytes) for layer in range(num_layers) for role in kinds))
