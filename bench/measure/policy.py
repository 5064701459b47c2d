"""What decides, after each round, which lengths the next one measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.measure.record import RunRecord, Sample


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep has come.

    Args:
        samples: all so far.
        allowed: lengths that may be measured, rising.
        cost_s: by length, seconds that one sample of every arm is expected to take.
        rounds_done: finished rounds.
        budget_left_s: seconds until the budget is spent.
        startup_s: seconds that a round costs before it measures.
    """

    run: RunRecord
    samples: Sequence[Sample]
    allowed: tuple[int, ...]
    cost_s: Mapping[int, float]
    rounds_done: int
    budget_left_s: float
    startup_s: float


class Policy(Protocol):
    """Decides the lengths of the next round; none means that the sweep is done."""

    def __call__(self, progress: Progress) -> tuple[int, ...]:
        """Lengths to measure next, rising; empty to stop."""


class Observer(Protocol):
    """Hears what goes on, for a progress display."""

    def on_phase(self, text: str) -> None:
        """A new phase begins."""

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        """A round begins."""

    def on_sample(self, sample: Sample) -> None:
        """A sample is on the disk."""
