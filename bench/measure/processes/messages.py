"""Jobs for measuring processes, and the messages that they send back."""

from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any

from bench.arms.file_cursor import CursorPosition
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.record.read_setting import SettingSearch
from bench.record.run import BuiltLayers
from bench.record.sample import Case, Sample


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the lengths: each group holds all arms of one length, in the order to measure."""

    groups: tuple[tuple[Case, ...], ...]


@dataclass(frozen=True, slots=True)
class RoundJob:
    """Measure these passes in one fresh process and stop at the deadline."""

    plan: Plan
    number: int
    passes: tuple[Pass, ...]
    start_s: float  # when the sweep began, on the shared monotonic clock
    deadline_s: float  # on the same clock; no length begins that is expected to end later
    seed: int
    # wall seconds that a case took so far, preparation included
    expected_s: dict[Case, float] = field(default_factory=dict)
    # longest prefix that is warmed up at its own length; longer ones are warmed at this
    warmup_tokens: int = 0
    store_dirs: dict[str, Path] = field(default_factory=dict)  # by series, where its chunk files are
    # by the directory of a store, how far the run's walk through its files has come
    taken: dict[Path, CursorPosition] = field(default_factory=dict)
    # of the real model, those to build: the same in every round; None in a simulation, which builds none
    layers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PreflightJob:
    """Find out what a case costs, check the answer, price the harness: before anything is recorded."""

    plan: Plan
    # prefix lengths in rising order; the walk stops when the next would take longer than `case_limit_s`
    lengths: tuple[int, ...]
    case_limit_s: float
    deadline_s: float
    scratch_dir: Path | None  # for the files of the checks; None in a simulation, which has none
    # names of checks that an earlier part of the sweep has made; their results stand
    checked: frozenset[str] = frozenset()
    # of the real model, those that a sweep was begun with; None has the preflight decide
    layers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SearchJob:
    """Find out how the files of some series are read fastest here: before anything is recorded as a sample."""

    plan: Plan  # as asked
    store_dirs: dict[str, Path]  # the series to search for, and where their chunk files are
    most_tokens: int  # the longest prefix that the run measures
    deadline_s: float  # on the shared monotonic clock


@dataclass(frozen=True, slots=True)
class DeviceJob:
    """Say what the plan's device is here, as torch picks it; `deadline_s` is on the shared monotonic clock."""

    plan: Plan
    deadline_s: float


@dataclass(frozen=True, slots=True)
class RankSlot:
    """The place of one process among the ranks that carry out a job together."""

    rank: int  # of this process, from 0
    size: int  # number of ranks
    port: int  # on this machine, where they meet
    listener: socket | None = None  # the socket that listens there, for rank 0; None for the others


@dataclass(frozen=True, slots=True)
class SampleTaken:
    """A timed call is over; `wall_s` is what it cost with its preparation, `taken` where the walks stand after it."""

    sample: Sample
    wall_s: float
    taken: dict[Path, CursorPosition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobBegun:
    """Preflight: its process runs.  What went before, starting the fork server, is not paid again by rounds."""


@dataclass(frozen=True, slots=True)
class DeviceSeen:
    """What is computed on."""

    devices: tuple[str, ...]  # as torch numbers them, one for each rank: `cpu`, or `cuda:0` and so on
    gpu_name: str | None  # as torch calls it; None on a CPU
    torch_version: str  # which torch was asked


@dataclass(frozen=True, slots=True)
class LayersChosen:
    """Preflight: which layers all processes of this sweep build."""

    layers: BuiltLayers


@dataclass(frozen=True, slots=True)
class CaseCost:
    """Preflight: wall seconds of one call of a case, not recorded as a sample."""

    case: Case
    wall_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class CaseRefused:
    """A case that this machine cannot measure (out of memory, say), and why."""

    case: Case
    reason: str


@dataclass(frozen=True, slots=True)
class SeriesSkipped:
    """A series that cannot be measured here at any length, and why."""

    series: str
    reason: str


@dataclass(frozen=True, slots=True)
class SeriesFailed:
    """A load or hybrid series could not be opened or read.  Its round, or its check in the preflight, ends there;
    the sweep continues without it."""

    series: str
    reason: str


@dataclass(frozen=True, slots=True)
class CheckDone:
    """A named check with its result, for the header; a notice when it did not turn out well."""

    name: str
    result: dict[str, Any]
    notice: Notice | None = None


@dataclass(frozen=True, slots=True)
class SettingFound:
    """What the search for the setting of one series gave; with `broke`, it failed, and the layout's own values are used.

    `taken` is where the walks stand."""

    series: str
    search: SettingSearch
    broke: bool = False
    taken: dict[Path, CursorPosition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job failed; one line with the reason."""

    reason: str
    refused: bool = False  # what was asked cannot be done on this machine
    lost_others: bool = False  # it is another rank that failed, and this one only missed it


@dataclass(frozen=True, slots=True)
class JobDone:
    """All that was asked is done, as far as the deadline allows; `taken` is where each walk stands."""

    taken: dict[Path, CursorPosition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobStopped:
    """The job's processes did not answer within the time that they had beyond its deadline, and were ended."""


Message = (
    JobBegun
    | DeviceSeen
    | LayersChosen
    | SampleTaken
    | CaseCost
    | CaseRefused
    | SeriesSkipped
    | SeriesFailed
    | CheckDone
    | SettingFound
    | JobFailed
    | JobDone
    | JobStopped
)
Job = RoundJob | PreflightJob | SearchJob | DeviceJob
