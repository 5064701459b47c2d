"""A point of the grid, and what one timed call at that point gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, get_type_hints

from kvio.errors import UserError
from kvio.protocol import PROVING_SHARE, CacheState

ArmName = Literal["recompute", "load", "hybrid", "gemm"]

MAX_BYTES = 1e15  # beyond any host's memory
SCHEMA = 5
# schema that a column of samples.csv came with; files of older ones lack it
SINCE = {"load_fraction": 2}


class RecordError(UserError):
    """A result folder cannot be read, or does not say what it must."""


class CannotHoldError(Exception):
    """The device has not the memory for a case; shorter ones may still fit."""


@dataclass(frozen=True, slots=True)
class Case:
    """One arm at one length.  `series` names its settings and is a key of `RunRecord.series`.

    With `suffix_tokens` > 0 the case asks the marginal question: what do the next `suffix_tokens`
    tokens cost when the KV of `prefix_tokens` is already in place?
    """

    arm: ArmName
    series: str
    prefix_tokens: int
    suffix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one timed call gave.  Missing is None, never 0; every `_s` is seconds."""

    seconds: float  # the whole arm (`recompute_s`, `load_s` …), first-token step included
    # shares of a load, each the mean over the reading threads, so that together with `first_token_s` they add
    # up to about `seconds` when nothing overlaps
    open_s: float | None = None
    read_s: float | None = None
    h2d_s: float | None = None
    scatter_s: float | None = None
    first_token_s: float | None = None
    num_bytes: int | None = None  # KV payload brought in
    # of a hybrid sample, share of the prefix (its last token left out) that was loaded
    load_fraction: float | None = None
    num_requests: int | None = None  # reads handed to the backend
    request_bytes: int | None = None  # largest read handed to the backend
    queue_depth: int | None = None  # reads in flight, at most and on average, see `LoadSplit`
    achieved_queue_depth: float | None = None
    cache_state: CacheState | None = None  # as proved, not as asked
    data_path: str | None = None  # the way the bytes took, as proved (`posix-direct`, `posix-buffered` …)
    device_bytes: int | None = None  # bytes that the block device says it read during the sample
    # bytes that the kernel says this process caused to be fetched from storage
    process_bytes: int | None = None
    # True when the bytes that arrived had the store's checksum; None when not looked at
    verified: bool | None = None
    attention_kernel: str | None = None  # the kernel that ran
    flops: float | None = None  # floating-point operations of the real model at its full depth
    flops_per_s: float | None = None  # of a gemm sample, its rate
    # measured seconds by layer-kind counts when the depth was scaled, {"1": 0.2, "3": 0.5}
    depth_s: Mapping[str, float] | None = None
    measured_layers: int | None = None  # deepest stack that really ran, and the model's
    total_layers: int | None = None
    notices: tuple[str, ...] = field(default=())  # codes of what makes the sample suspect

    @property
    def served_from_cache(self) -> bool:
        """True when a counter that was read saw less than the payload come from storage."""
        least_bytes = PROVING_SHARE * (self.num_bytes or 0)
        return any(
            moved_bytes is not None and moved_bytes < least_bytes
            for moved_bytes in (self.process_bytes, self.device_bytes)
        )


class Arm(Protocol):
    """What is timed.  An arm times itself, because only it knows where the parts begin and end."""

    def warm_up(self, case: Case) -> None:
        """Warm kernels, allocator, handles and pools for this case; never the data."""

    def prepare(self, case: Case) -> None:
        """Bring everything into the state before the timed call: buffers poisoned, files cold."""

    def run(self, case: Case) -> Outcome:
        """One timed call, and what it gave."""

    def close(self) -> None:
        """Release everything; must be safe to call twice."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed call: which case, in which round, in which order, and what came out."""

    round: int  # index of the fresh process that measured it, from 0; people are told it from 1
    order: int  # position within the round, from 0, over all arms
    sample: int  # repetition of the same case within the round, from 0
    started_s: float  # seconds since the sweep began
    case: Case
    outcome: Outcome


CASE_COLUMNS = tuple(f.name for f in fields(Case))
OUTCOME_COLUMNS = tuple(f.name for f in fields(Outcome))
COLUMNS = ("round", "order", "sample", "started_s", *CASE_COLUMNS, *OUTCOME_COLUMNS)
COLUMN_TYPES: Mapping[str, Any] = {
    **get_type_hints(Case),
    **get_type_hints(Outcome),
    "round": int,
    "order": int,
    "sample": int,
    "started_s": float,
}


OLDER_COLUMNS = tuple(
    tuple(name for name in COLUMNS if SINCE.get(name, 1) <= schema)
    for schema in range(1, max(SINCE.values()))
)
