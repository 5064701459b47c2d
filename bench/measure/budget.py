"""In which order one round measures its cases, and how often: pure functions of a seed and of costs."""

import math
import random
from collections.abc import Mapping, Sequence

from bench.measure.processes.messages import Pass
from bench.record.sample import Case


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
