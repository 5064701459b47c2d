"""In which order one round measures its cases, and how often: pure functions of a seed and of costs.

What a case costs in wall time, learned while measuring: the budget is planned with it.

What to try where a budget was too small: never what was done already.
"""

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from bench.measure.processes.messages import Pass
from bench.record.plan import Plan
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


def format_remedies(plan: Plan, enough_s: int) -> str:
    """Another budget, and what would make a round cheaper: "--budget 90s, or --layers fit, or fewer tokens"."""
    others = {
        "--layers fit": plan.layers != "fit" and plan.simulation is None,
        "fewer tokens": plan.tokens is not None,
        "fewer backends or layouts": len(plan.loads) > 1,
        "no --hybrid": plan.hybrid,
    }
    return ", or ".join((f"--budget {enough_s}s", *(what for what, helps in others.items() if helps)))


def shuffle_round(
    groups: Sequence[Sequence[Case]], *, num_samples: Mapping[int, int], seed: int
) -> tuple[Pass, ...]:
    """Passes of one round: lengths in random order, and all arms of a length next to each other.

    Arms that are to be compared are measured within seconds of each other, in random order, so that
    what disturbs the machine for longer than that disturbs them alike.

    Args:
        groups: the cases of each length, all arms.
        num_samples: samples wanted of the length at each index of `groups`.
        seed: decides the order; recorded in the plan.
    """
    chance = random.Random(seed)
    passes = []
    for repetition in range(max(num_samples.values(), default=0)):
        due = [list(group) for index, group in enumerate(groups) if num_samples[index] > repetition]
        chance.shuffle(due)
        for group in due:
            chance.shuffle(group)
        passes.append(Pass(tuple(tuple(group) for group in due)))
    return tuple(passes)


def samples_per_length(costs_s: Sequence[float], *, allowance_s: float, most: int) -> list[int]:
    """How many samples each length gets so that a round stays within its allowance; at least one.

    Cheap lengths get `most`; samples are taken from the costliest length first, because one more
    round is worth more than one more sample of a slow case.
    """
    counts = [most] * len(costs_s)
    total_s = sum(cost * most for cost in costs_s)
    for index in sorted(range(len(costs_s)), key=lambda i: -costs_s[i]):
        if total_s > allowance_s and costs_s[index] > 0:
            fewer = min(most - 1, math.ceil((total_s - allowance_s) / costs_s[index]))
            counts[index] -= fewer
            total_s -= fewer * costs_s[index]
    return counts


def fitting_lengths(
    lengths: Sequence[int], costs_s: Sequence[float], *, allowance_s: float
) -> tuple[int, ...]:
    """The longest front part of rising `lengths` whose costs together stay within the allowance; at least one."""
    kept: list[int] = []
    spent_s = 0.0
    for length, cost_s in zip(lengths, costs_s, strict=True):
        if kept and spent_s + cost_s > allowance_s:
            break
        kept.append(length)
        spent_s += cost_s
    return tuple(kept)
