"""Device memory that a prefix's KV is brought into."""

from copy import copy

import torch

from kvio.layout.planes import KVLayout, Role

POISON = 0xA5  # as bfloat16 and float16 a small negative number: stale bytes change logits, and never are NaN


class KVBlocks:
    """KV of one prefix on one device, token-major, so that a chunk's tokens are contiguous in every plane.

    Args:
        layout: what is kept.
        capacity_tokens: tokens to make room for (windowed planes too: they are indexed by token).
        device: where.
    """

    def __init__(self, layout: KVLayout, capacity_tokens: int, device: torch.device) -> None:
        self.layout = layout
        self.capacity_tokens = capacity_tokens
        self.device = device
        self.groups: tuple[torch.Tensor, ...] = tuple(
            torch.empty(
                (len(group.planes), capacity_tokens, group.token_bytes), dtype=torch.uint8, device=device
            )
            for group in layout.groups
        )  # each (num_planes, capacity_tokens, token_bytes)
        self.state = torch.empty(layout.state_bytes, dtype=torch.uint8, device=device)
        self._index = {
            (plane.layer, plane.role): (number, position)
            for number, group in enumerate(layout.groups)
            for position, plane in enumerate(group.planes)
        }

    def plane(self, layer: int, role: Role) -> torch.Tensor:
        """Bytes of one plane, (capacity_tokens, token_bytes), a view."""
        number, position = self._index[layer, role]
        return self.groups[number][position]

    def with_own_state(self) -> "KVBlocks":
        """The same memory for tokens, beside a state of its own: for whoever computes what another one loads."""
        twin = copy(self)
        twin.state = torch.empty_like(self.state)
        return twin

    def poison(self) -> None:
        """Overwrite everything, so that bytes that never arrive cannot pass for data."""
        for tensor in (*self.groups, self.state):
            tensor.fill_(POISON)
