"""What a store takes for a prefix, and what a capacity in tokens leaves out of it."""

from dataclasses import dataclass

from bench.record.units import format_bytes


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes in a store, over all ranks: each stores what it keeps, so heads and latents that several keep count for each.

    Args:
        per_token: every plane of one token, None where nobody said it.
        states: linear-attention states of one prefix, however long it is.
    """

    per_token: float | None
    states: float = 0.0


def say_states(state_bytes: float) -> tuple[str, ...]:
    """That a store holds fewer tokens than its bytes say, where prefixes have states; nothing where they do not."""
    if state_bytes <= 0:
        return ()
    return (
        f"each stored prefix has {format_bytes(state_bytes)} of linear-attention states too, and only one that has"
        " them is gone on from; how many a stack stores is not known, so room in bytes is counted in tokens alone:"
        " tokens held and hits are upper bounds",
    )
