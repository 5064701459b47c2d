"""What decides, after each round, which lengths the next one measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.record.run import RunRecord
from bench.record.sample import Sample


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep has come."""

    run: RunRecord
    samples: Sequence[Sample]  # all so far
    # load series that are still measured; one that broke is left out, its samples are not
    loads: tuple[str, ...]
    allowed: tuple[int, ...]  # lengths that may be measured, rising
    cost_s: Mapping[int, float]  # by length, seconds that one sample of every arm is expected to take
    rounds_done: int  # finished rounds
    budget_left_s: float  # seconds until the budget is spent
    startup_s: float  # seconds that a round costs before it measures


NO_ROOM = "no further round fits into the budget"  # why a sweep ends that its policy did not end


@dataclass(frozen=True, slots=True)
class End:
    """There is no further round."""

    reason: str  # why, as a clause
    # what it would have measured, rising, had the budget allowed; empty when all is measured that was asked
    # for
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
