"""What a case costs in wall time, learned while measuring: the budget is planned with it."""

import statistics
from collections.abc import Callable

from bench.record.sample import Case

GROWTH = 1.2  # assumed power of the length when a longer case was never measured: between linear and square


class CostBook:
    """Wall seconds by case; lengths never measured are scaled from the nearest measured one.

    Args:
        prior_s: seconds of a case of whose series nothing is known yet.
    """

    def __init__(self, prior_s: Callable[[Case], float]) -> None:
        self._prior_s = prior_s
        self._seen: dict[tuple[str, int], dict[int, list[float]]] = {}
        self._startups_s: list[float] = []

    def add(self, case: Case, wall_s: float) -> None:
        """Remember what one call cost."""
        by_length = self._seen.setdefault((case.series, case.suffix_tokens), {})
        by_length.setdefault(case.prefix_tokens, []).append(wall_s)

    def add_startup(self, seconds: float) -> None:
        """Remember how long a fresh process took before it measured."""
        self._startups_s.append(seconds)

    @property
    def startup_s(self) -> float:
        """Seconds before a fresh process measures; 0 when none has been seen."""
        return statistics.median(self._startups_s) if self._startups_s else 0.0

    def expected_s(self, case: Case) -> float:
        """Seconds that the case is expected to cost: the median of what it did, scaled to its length."""
        return self._scaled_s(case, statistics.median)

    def least_s(self, case: Case) -> float:
        """Seconds that it costs when nothing disturbs: what must fit for a try to be worth it."""
        return self._scaled_s(case, min)

    def _scaled_s(self, case: Case, pick: Callable[[list[float]], float]) -> float:
        by_length = self._seen.get((case.series, case.suffix_tokens))
        if not by_length:
            return self._prior_s(case)
        nearest = min(by_length, key=lambda length: abs(length - case.prefix_tokens))
        known_s = pick(by_length[nearest])
        ratio = case.prefix_tokens / nearest
        return known_s * (ratio**GROWTH if ratio > 1 else 1.0 if ratio == 1 else max(ratio, 0.0))
