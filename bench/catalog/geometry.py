"""Dimensions of one model, and the counts that derive from them: KV bytes, parameters, FLOPs."""

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["full", "sliding", "chunked", "linear"]


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One decoder layer: how it attends and whether its feed-forward is a mixture of experts."""

    attention: AttentionKind
    moe: bool = False
