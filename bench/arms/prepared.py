"""A load sample before it is timed, and what the counters said of it after."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.record.sample import Case
from kvio.evidence.cold_evidence import ReadCounters
from kvio.loading.read_plan import Job
from kvio.protocol import CacheState


@dataclass(frozen=True, slots=True)
class Prepared:
    """The files of one sample, in the state before it is timed.

    Args:
        chunk_ids: number in the store of each chunk of the prefix, in order.
        jobs: what is read of them, front to back, then the states.
        first_token, last_token: tokens [first_token, last_token) that the jobs bring.
        resident_bytes: bytes of each file in the page cache; None where it cannot be known.
    """

    case: Case
    chunk_ids: tuple[int, ...]
    jobs: tuple[Job, ...]
    state_id: int | None
    first_token: int
    last_token: int
    resident_bytes: Mapping[Path, int | None]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """What the counters said about one sample; None where nothing was read from storage."""

    cache_state: CacheState | None = None
    data_path: str | None = None
    moved: ReadCounters | None = None
    notices: tuple[str, ...] = ()
