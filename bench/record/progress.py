"""What decides, after each round, which lengths the next one measures."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.record.read_setting import ReadSetting
from bench.record.run import RunRecord
from bench.record.sample import Sample


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep has come.

    Args:
        samples: all so far.
        loads: load series that are still measured; one that broke is left out, its samples are not.
        allowed: lengths that may be measured, rising.
        cost_s: by length, seconds that one sample of every arm is expected to take.
        rounds_done: finished rounds.
        budget_left_s: seconds until the budget is spent.
        startup_s: seconds that a round costs before it measures.
    """

    run: RunRecord
    samples: Sequence[Sample]
    loads: tuple[str, ...]
    allowed: tuple[int, ...]
    cost_s: Mapping[int, float]
    rounds_done: int
    budget_left_s: float
    startup_s: float


NO_ROOM = "no further round fits into the budget"  # why a sweep ends that its policy did not end


@dataclass(frozen=True, slots=True)
class End:
    """There is no further round.

    Args:
        reason: why, as a clause.
        wanted: what it would have measured, rising, had the budget allowed; empty when all is measured that was asked for.
    """

    reason: str
    wanted: tuple[int, ...] = ()


class Policy(Protocol):
    """Decides the lengths of the next round, or that there is none."""

    def __call__(self, progress: Progress) -> tuple[int, ...] | End:
        """Lengths to measure next, rising and at least one; or the end."""


class Observer(Protocol):
    """Hears what goes on, for a progress display."""

    def on_notice(self, text: str) -> None:
        """Something to be known before time is spent."""

    def on_phase(self, text: str) -> None:
        """A new phase begins."""

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        """A round begins."""

    def on_sample(self, sample: Sample) -> None:
        """A sample is on the disk."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The settings that a search may try.

    Args:
        default: what is used unless another one is proved faster.
        allowed: all settings, the default among them.
        axes: in the order to look at them: fields of `ReadSetting` that change together.
    """

    default: ReadSetting
    allowed: frozenset[ReadSetting]
    axes: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PassOver:
    """What the settings of one pass gave.

    Args:
        bytes_per_s: of each that was read with; a setting that failed, or for which no time was left, is missing.
        left_share: share of the time for the search that is left.
    """

    bytes_per_s: Mapping[ReadSetting, float]
    left_share: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting to use, and why."""

    setting: ReadSetting
    reason: str


class SearchPolicy(Protocol):
    """Decides which settings are tried, and which one is used."""

    def __call__(
        self, space: SearchSpace, *, seed: int
    ) -> Generator[tuple[ReadSetting, ...], PassOver, Choice]:
        """Gives the settings of the next pass in the order to try them, is sent what came of it; returns the choice."""
