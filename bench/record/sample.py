"""A case of the grid, and the outcome of one timed call."""

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
    """A result folder cannot be read, or is incomplete."""


class CannotHoldError(Exception):
    """Device memory is too small for a case; shorter ones may fit."""


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
    """Result of one timed call.  Missing is None, never 0; every `_s` is seconds."""

    seconds: float  # of the whole arm, first-token step included
    # parts of a load, each the mean over the reading threads; with `first_token_s` their sum is about `seconds` if
    # nothing overlaps
    open_s: float | None = None
    read_s: float | None = None
    h2d_s: float | None = None
    scatter_s: float | None = None
    first_token_s: float | None = None
    num_bytes: int | None = None  # KV payload read
    # hybrid: loaded share of the prefix without its last token
    load_fraction: float | None = None
    num_requests: int | None = None  # reads passed to the backend
    request_bytes: int | None = None  # largest read passed to the backend
    queue_depth: int | None = None  # reads in flight: maximum, and on average
    achieved_queue_depth: float | None = None
    cache_state: CacheState | None = None  # as verified, not as requested
    data_path: str | None = None  # as verified (`posix-direct`, `posix-buffered` …)
    device_bytes: int | None = None  # read by the block device, by its counter
    # fetched from storage for this process, by the kernel's counter
    process_bytes: int | None = None
    # True if the bytes match the store's checksum; None if not checked
    verified: bool | None = None
    attention_kernel: str | None = None
    flops: float | None = None  # of the real model at full depth
    flops_per_s: float | None = None  # gemm samples only
    # if scaled: measured seconds by layer-kind counts, {"1": 0.2, "3": 0.5}
    depth_s: Mapping[str, float] | None = None
    measured_layers: int | None = None  # deepest stack that ran, and the model's
    total_layers: int | None = None
    notices: tuple[str, ...] = field(default=())  # codes that make the sample suspect

    @property
    def served_from_cache(self) -> bool:
        """True if a counter shows less than the payload read from storage."""
        least_bytes = PROVING_SHARE * (self.num_bytes or 0)
        return any(
            moved_bytes is not None and moved_bytes < least_bytes
            for moved_bytes in (self.process_bytes, self.device_bytes)
        )


class Arm(Protocol):
    """What is timed.  An arm times itself: it knows where its parts begin and end."""

    def warm_up(self, case: Case) -> None:
        """Warm kernels, allocator, handles and pools for this case; never the data."""

    def prepare(self, case: Case) -> None:
        """Reset the state before the timed call: poison buffers, evict files."""

    def run(self, case: Case) -> Outcome:
        """Outcome of one timed call."""

    def close(self) -> None:
        """Release everything; must be safe to call twice."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed call with its case and place in the sweep."""

    round: int  # index of the fresh process, from 0; shown from 1
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
