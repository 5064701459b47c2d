"""Hits in a stack of tiers (GPU, DRAM, SSD, shared storage), for one or several serving instances; modelled.

Every tier is an LRU cache of blocks in tokens.  A block of a request's leading run counts for the first
tier that holds it; the run ends at the first block that no tier holds.  Then the request's blocks are
touched last to first
in every tier that holds them, and written:

    through     to this tier whenever the block is used
    selective   to this tier when the block is used while some tier already holds it: on its second use
    back        to this tier when the tier above drops it

The first tier is written whenever a block is used: the request runs there.

Source of the three ways to write: SGLang HiCache, `--hicache-write-policy` (write_through,
write_through_selective, write_back).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from bench.reuse.trace import IntArray, Trace

WritePolicy = Literal["through", "selective", "back"]


@dataclass(frozen=True, slots=True)
class CacheTier:
    """One level of the cache.

    Args:
        name: what a table calls it.
        capacity_tokens: room; of each instance, or of the one pool when shared.
        write: when a block is written to it.
        shared: one pool for all instances.
    """

    name: str
    capacity_tokens: int
    write: WritePolicy = "through"
    shared: bool = False


@dataclass(frozen=True, slots=True)
class TierHits:
    """Where the tokens of each request were found; modelled.

    Args:
        names: of the tiers, from the top.
        hit_tokens: (num_requests, num_tiers) tokens that each tier served.
        input_tokens: (num_requests,) tokens of each prompt.
        written_tokens: (num_tiers,) tokens written to each tier over the whole trace.
    """

    names: tuple[str, ...]
    hit_tokens: IntArray
    input_tokens: IntArray
    written_tokens: IntArray

    @property
    def hit_ratios(self) -> dict[str, float]:
        """Share of all input tokens that each tier served."""
        shares = self.hit_tokens.sum(axis=0) / self.input_tokens.sum()
        return dict(zip(self.names, shares.tolist(), strict=True))


class _Pool:
    """An LRU cache of blocks, the longest unused first."""

    def __init__(self, capacity_tokens: int) -> None:
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.room = capacity_tokens
        self.written_tokens = 0

    def write(self, block: int, tokens: int) -> list[tuple[int, int]]:
        """Bring the block in; what had to leave for it, and the block itself when it is too large."""
        self.blocks[block] = tokens
        self.room -= tokens
        self.written_tokens += tokens
        dropped = []
        while self.room < 0:
            victim = self.blocks.popitem(last=False)
            self.room += victim[1]
            dropped.append(victim)
        return dropped


class _Path:
    """The pools that one instance sees, from the top."""

    def __init__(self, tiers: Sequence[CacheTier], pools: Sequence[_Pool]) -> None:
        self.tiers = tiers
        self.pools = pools

    def serve(self, blocks: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """Tokens found in each tier; then the blocks are touched and written."""
        found = [self._find(block) for block in blocks]
        hits = [0] * len(self.pools)
        for tier, size in zip(found, tokens, strict=True):
            if tier is None:
                break
            hits[tier] += size
        for block, size, tier in reversed(list(zip(blocks, tokens, found, strict=True))):
            self._touch(block, size, known=tier is not None)
        return hits

    def _find(self, block: int) -> int | None:
        return next((level for level, pool in enumerate(self.pools) if block in pool.blocks), None)

    def _touch(self, block: int, tokens: int, *, known: bool) -> None:
        for level, (tier, pool) in enumerate(zip(self.tiers, self.pools, strict=True)):
            if block in pool.blocks:
                pool.blocks.move_to_end(block)
            elif level == 0 or tier.write == "through" or (tier.write == "selective" and known):
                self._write(level, block, tokens=tokens)

    def _write(self, level: int, block: int, *, tokens: int) -> None:
        below = level + 1
        for victim, size in self.pools[level].write(block, tokens):
            wanted = below < len(self.tiers) and self.tiers[below].write == "back"
            if wanted and victim not in self.pools[below].blocks:
                self._write(below, victim, tokens=size)


def _make_paths(tiers: Sequence[CacheTier], num_instances: int) -> list[_Path]:
    common = [_Pool(tier.capacity_tokens) if tier.shared else None for tier in tiers]
    return [
        _Path(
            tiers,
            [
                _Pool(tier.capacity_tokens) if pool is None else pool
                for tier, pool in zip(tiers, common, strict=True)
            ],
        )
        for _ in range(num_instances)
    ]


def require_tiers(tiers: Sequence[CacheTier]) -> None:
    """Stop on tiers that cannot be stacked."""
    if not tiers:
        raise ValueError("at least one tier is needed")
    if len({tier.name for tier in tiers}) < len(tiers):
        raise ValueError(f"tiers need different names, got {[tier.name for tier in tiers]}")
    for tier in tiers:
        if tier.capacity_tokens < 0:
            raise ValueError(
                f"tier {tier.name}: capacity_tokens must not be negative, got {tier.capacity_tokens}"
            )
    for upper, lower in pairwise(tiers):
        if upper.shared and not lower.shared:
            raise ValueError(f"tier {lower.name} belongs to one instance but lies below shared {upper.name}")


def simulate_tiers(
    trace: Trace, tiers: Sequence[CacheTier], *, instances: IntArray | None = None
) -> TierHits:
    """Hit tokens of each request by tier, from a cold start; modelled.

    Args:
        trace: requests in order.
        tiers: from the top (GPU) down.
        instances: (num_requests,) the serving instance that each request goes to, from 0; None for one
            instance.
    """
    require_tiers(tiers)
    where = np.zeros(trace.num_requests, dtype=np.int64) if instances is None else instances
    if len(where) != trace.num_requests or where.min() < 0:
        raise ValueError(f"instances must be {trace.num_requests} numbers from 0, one per request")
    paths = _make_paths(tiers, int(where.max()) + 1)
    hits = np.zeros((trace.num_requests, len(tiers)), dtype=np.int64)
    last_tokens = trace.last_block_tokens.tolist()
    for request in range(trace.num_requests):
        ids = trace.ids[trace.starts[request] : trace.starts[request + 1]]
        tokens = [trace.block_tokens] * (len(ids) - 1) + [last_tokens[request]]
        hits[request] = paths[where[request]].serve(ids.tolist(), tokens)
    pools = [{id(path.pools[level]): path.pools[level] for path in paths} for level in range(len(tiers))]
    written = [sum(pool.written_tokens for pool in level.values()) for level in pools]
    return TierHits(
        names=tuple(tier.name for tier in tiers),
        hit_tokens=hits,
        input_tokens=trace.input_tokens,
        written_tokens=np.array(written, dtype=np.int64),
    )
