"""An arm that several ranks carry out together: each its part, and one outcome of all parts."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch

from bench.arms import ranks as group
from bench.arms.model.memory import MemoryGuard
from bench.record.sample import Arm, Case, Outcome
from kvio.protocol import CacheState

WORST_FIRST: tuple[CacheState, ...] = ("warm", "unverified", "cold", "direct")
Number = TypeVar("Number", int, float)
SPLIT = ("open_s", "read_s", "h2d_s", "scatter_s")


class RankShortError(Exception):
    """One rank ran out of memory in the middle of what all do together; the others cannot continue."""


class RankArm:
    """One rank's part of an arm; every call is made by all ranks, with the same case.

    Each part times itself from one `finish` to the next, which no rank passes before all have come there: the
    seconds are those of the slowest rank.
    """

    def __init__(self, arm: Arm) -> None:
        self.arm = arm

    def warm_up(self, case: Case) -> None:
        """Warm this rank's part up."""
        with _fatal(case):
            self.arm.warm_up(case)
        group.wait()

    def prepare(self, case: Case) -> None:
        """Prepare this rank's part; returns when all ranks are ready."""
        with _fatal(case):
            self.arm.prepare(case)
        group.wait()

    def run(self, case: Case) -> Outcome:
        """Run all parts at once; the outcome of all of them."""
        with _fatal(case):
            own = self.arm.run(case)
        return combine(group.gather(own), divided_flops=case.arm == "gemm")

    def close(self) -> None:
        """Close this rank's part."""
        self.arm.close()


def guard(arm: Arm) -> MemoryGuard | RankArm:
    """The arm with its memory check, alone or as one rank of several."""
    return MemoryGuard(arm) if group.size() == 1 else RankArm(arm)


@contextmanager
def _fatal(case: Case) -> Iterator[None]:
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        first_line = str(error).partition("\n")[0]
        raise RankShortError(
            f"{case.arm} at {case.prefix_tokens} tokens ran out of memory: {first_line}; try shorter --tokens"
        ) from error


def combine(parts: Sequence[Outcome], *, divided_flops: bool) -> Outcome:
    """One outcome of all ranks' parts: the slowest one's seconds, everybody's bytes, the worst evidence.

    Args:
        parts: by rank.
        divided_flops: each part counts its own operations; else each counts those of the whole model.
    """
    slowest = max(parts, key=_busy_s)
    seconds = max(part.seconds for part in parts)
    flops = _total(part.flops for part in parts) if divided_flops else parts[0].flops
    return replace(
        parts[0],
        seconds=seconds,
        **{name: getattr(slowest, name) for name in SPLIT},
        first_token_s=_largest(part.first_token_s for part in parts),
        num_bytes=_total(part.num_bytes for part in parts),
        num_requests=_total(part.num_requests for part in parts),
        request_bytes=_largest(part.request_bytes for part in parts),
        queue_depth=_total(part.queue_depth for part in parts),
        achieved_queue_depth=_total(part.achieved_queue_depth for part in parts),
        cache_state=_worst(part.cache_state for part in parts),
        data_path=_joined(part.data_path for part in parts),
        device_bytes=_total(part.device_bytes for part in parts),
        process_bytes=_total(part.process_bytes for part in parts),
        verified=_all_true(part.verified for part in parts),
        attention_kernel=_joined(part.attention_kernel for part in parts),
        flops=flops,
        flops_per_s=None if parts[0].flops_per_s is None or flops is None else flops / seconds,
        notices=tuple(dict.fromkeys(code for part in parts for code in part.notices)),
    )


def _busy_s(part: Outcome) -> float:
    """Seconds that a rank itself worked; the rest it waited for others."""
    return sum(getattr(part, name) or 0.0 for name in SPLIT)


def _total(values: Iterable[Number | None]) -> Number | None:
    """The sum; None where a rank does not know its part."""
    parts = list(values)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _largest(values: Iterable[Number | None]) -> Number | None:
    return max((value for value in values if value is not None), default=None)


def _worst(states: Iterable[CacheState | None]) -> CacheState | None:
    """The state that claims least; None where a rank read nothing from storage."""
    seen = set(states)
    return None if None in seen else min(seen, key=WORST_FIRST.index)


def _joined(names: Iterable[str | None]) -> str | None:
    """Every name that a rank gave, each once."""
    return "+".join(sorted({name for name in names if name is not None})) or None


def _all_true(verified: Iterable[bool | None]) -> bool | None:
    """True where every rank's bytes were right; None where one rank's were not looked at."""
    seen = set(verified)
    return False if False in seen else None if None in seen else True
