"""A modelled number with the bounds that its sources give, if they give any."""

from dataclasses import dataclass
from typing import Literal

Pick = Literal["value", "low", "high"]


@dataclass(frozen=True, slots=True)
class Bounded:
    """A rate with its bounds; None where the source gives a single number."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> bool:
        """Whether there are bounds."""
        return self.low is not None and self.high is not None

    def at(self, pick: Pick) -> float:
        """The value or a bound; the value where there is no bound."""
        found = {"value": self.value, "low": self.low, "high": self.high}[pick]
        return self.value if found is None else found

    def times(self, factor: float) -> "Bounded":
        """All of it `factor` times as large."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Bounded(self.value * factor, low, high)
