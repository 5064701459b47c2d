"""The policy protocol: after each round it chooses the lengths of the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.record.run import RunRecord
from bench.record.sample import Sample


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a running sweep."""

    run: RunRecord
    samples: Sequence[Sample]
    # load series still measured; failed ones are excluded, their samples are not
    loads: tuple[str, ...]
    allowed: tuple[int, ...]  # lengths that may be measured, ascending
    cost_s: Mapping[int, float]  # expected seconds of one sample of every arm, by length
    rounds_done: int
    budget_left_s: float
    startup_s: float  # of a round, before it measures


NO_ROOM = "no further round fits into the budget"  # the end reason when the policy did not end the sweep


@dataclass(frozen=True, slots=True)
class End:
    """There is no further round."""

    reason: str  # a clause
    # lengths it would have measured with more budget, ascending
    wanted: tuple[int, ...] = ()


class Policy(Protocol):
    """Decides the lengths of the next round, or that there is none."""

    def __call__(self, progress: Progress) -> tuple[int, ...] | End:
        """Lengths to measure next, rising and at least one; or the end."""


class Observer(Protocol):
    """Receives events of a sweep, for a progress display."""

    def on_notice(self, text: str) -> None:
        """A notice, before time is spent."""

    def on_phase(self, text: str) -> None:
        """A new phase begins."""

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        """A round begins."""

    def on_sample(self, sample: Sample) -> None:
        """A sample is on the disk."""
