"""The clock of a run, passed as an argument so that tests and simulations use their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only ever grow."""

    def now_s(self) -> float:
        """Seconds since some fixed moment."""


class MonotonicClock:
    """The host's monotonic clock; the same in all processes of one machine (CLOCK_MONOTONIC)."""

    def now_s(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()


class VirtualClock:
    """A clock that stands still until it is advanced: for simulations, which need no waiting."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """Seconds advanced so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        self._now_s += seconds
