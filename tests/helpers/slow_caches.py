"""Slow and obvious caches that the reuse simulator is compared with."""

from collections.abc import Sequence
from functools import cache

from bench.reuse.trace import Trace

Request = tuple[list[int], int]  # block ids, input tokens


def requests_of(trace: Trace) -> list[Request]:
    """The requests of a trace as plain lists."""
    bounds = zip(trace.starts[:-1], trace.starts[1:], trace.input_tokens.tolist(), strict=True)
    return [(trace.ids[begin:end].tolist(), tokens) for begin, end, tokens in bounds]


def block_sizes(request: Request, block_tokens: int) -> list[int]:
    """Tokens of each block of the request."""
    blocks, tokens = request
    return [min(block_tokens, tokens - index * block_tokens) for index in range(len(blocks))]


def leading_tokens(request: Request, block_tokens: int, *, resident: set[int] | dict[int, int]) -> int:
    """Tokens of the leading run of resident blocks."""
    total = 0
    for block, size in zip(request[0], block_sizes(request, block_tokens), strict=True):
        if block not in resident:
            break
        total += size
    return total


def replay_slowly(
    requests: Sequence[Request], block_tokens: int, *, policy: str, capacity: int, whole_blocks: bool
) -> list[int]:
    """Hit tokens of each request by FIFO, LRU or LFU: every eviction scans the whole cache."""
    cache_: dict[int, dict[str, int]] = {}
    hits, now, used = [], 0, 0
    for request in requests:
        hits.append(leading_tokens(request, block_tokens, resident=set(cache_)))
        pairs = list(zip(request[0], block_sizes(request, block_tokens), strict=True))
        for block, size in reversed(pairs):
            now += 1
            if block in cache_:
                cache_[block]["used"] = now
                cache_[block]["uses"] += 1
                continue
            room = 1 if whole_blocks else size
            while cache_ and used + room > capacity:
                used -= cache_.pop(min(cache_, key=lambda key: _value(cache_[key], policy)))["room"]
            if room <= capacity:
                used += room
                cache_[block] = {"room": room, "came": now, "used": now, "uses": 1}
    return hits


def _value(entry: dict[str, int], policy: str) -> tuple[int, ...]:
    """What leaves first has the least."""
    return {
        "fifo": (entry["came"],),
        "lru": (entry["used"],),
        "lfu": (entry["uses"], entry["used"]),
    }[policy]


def most_block_hits(requests: Sequence[Request], capacity: int) -> int:
    """The most blocks that any cache of whole blocks can hit: every choice is tried."""

    @cache
    def best(index: int, held: frozenset[int]) -> int:
        if index == len(requests):
            return 0
        blocks = requests[index][0]
        later = {block for request in requests[index + 1 :] for block in request[0]}
        useful = (held | set(blocks)) & later
        run = next((i for i, block in enumerate(blocks) if block not in held), len(blocks))
        return run + max(best(index + 1, kept) for kept in _choices(frozenset(useful), capacity))

    return best(0, frozenset())


def _choices(blocks: frozenset[int], capacity: int) -> set[frozenset[int]]:
    """All subsets of at most `capacity` blocks that are as large as they can be."""
    found = {blocks}
    while len(next(iter(found))) > capacity:
        found = {held - {block} for held in found for block in held}
    return found


def most_token_hits(requests: Sequence[Request], block_tokens: int, *, capacity: int) -> int:
    """The most tokens that any cache of tokens can hit: each token is a block of its own, then as above."""
    split = []
    for request in requests:
        tokens = []
        for block, size in zip(request[0], block_sizes(request, block_tokens), strict=True):
            tokens.extend(block * block_tokens + index for index in range(size))
        split.append((tokens, len(tokens)))
    return most_block_hits(split, capacity)
