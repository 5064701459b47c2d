"""What cases cost, which lengths and samples fit into the budget, and the order of a round.

All but `BudgetTooSmallError`, which looks at the load of the machine, is a function of costs and of a seed.
"""

import math
import os
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from bench.measure.processes.messages import Pass
from bench.record.plan import Plan, PlanError
from bench.record.sample import Case

ROUNDS_PLANNED = 8  # the budget is shared out over so many when no number is asked for
MIN_ROUNDS = 6  # for which the longest length is chosen: fewer give no distribution-free interval
MIN_ROUNDS_OF_TWO = 3  # enough for an interval
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


class BudgetTooSmallError(PlanError):
    """The budget ends before anything can be measured.

    Args:
        needed_s: a budget that is expected to do.
        why: what takes how long.
    """

    def __init__(self, plan: Plan, needed_s: float, why: str) -> None:
        self.needed_s = math.ceil(needed_s)
        remedies = format_remedies(plan, self.needed_s)
        super().__init__(
            f"a budget of {plan.budget_s:g} s is too small: {why}; try {remedies}{_other_work()}"
        )


def _other_work() -> str:
    """A hint where the machine is busy: that, and not the budget, may be the cause."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return (
        f"; the machine is busy (load {load:.1f} on {cores} cores): stop other work"
        if load > cores + 1
        else ""
    )


def require_budget(plan: Plan, left_s: float, shortest: int, *, cost_s: float) -> None:
    """Stop when not even one round of the shortest length fits.

    Raises:
        BudgetTooSmallError: it takes longer than `left_s`.
    """
    if cost_s > left_s:
        needed_s = plan.budget_s - left_s + ROUNDS_PLANNED * cost_s
        why = f"{shortest} tokens take about {cost_s:.0f} s and {left_s:.0f} s are left"
        raise BudgetTooSmallError(plan, needed_s, why)


def walk_lengths(shortest: int, most: int) -> tuple[int, ...]:
    """Powers of two times the shortest length, up to `most`."""
    lengths = [shortest]
    while lengths[-1] * 2 <= most:
        lengths.append(lengths[-1] * 2)
    return tuple(lengths)


def longest_within(
    lengths: Sequence[int], cost_s: Mapping[int, float], *, left_s: float, startup_s: float, num_rounds: int
) -> int:
    """The longest length for which `num_rounds` rounds over all shorter ones fit into what is left.

    At least the first; and the second where three rounds of both fit, for one length alone gives no answer.
    """
    allowance_s = left_s / num_rounds - startup_s
    spent_s = 0.0
    longest = lengths[0]
    for length in lengths:
        spent_s += cost_s[length]
        if spent_s > allowance_s:
            break
        longest = length
    if longest == lengths[0] and len(lengths) > 1:
        both_s = cost_s[lengths[0]] + cost_s[lengths[1]] + startup_s
        longest = lengths[1] if both_s * MIN_ROUNDS_OF_TWO <= left_s else longest
    return longest


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
