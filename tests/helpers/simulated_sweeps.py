"""Sweeps of simulated arms whose truth is known: what proves that the intervals cover and refinement pays.

Times are a + b n + c n^2 and a + b n seconds, multiplied by log-normal noise: one factor per round and case,
one per round and arm, one per sample; now and then a round or a case is two to three times too slow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.estimate.intervals import Floats
from bench.estimate.next_lengths import RefineState, next_lengths, should_stop
from bench.estimate.round_curves import RoundCurve, curve_of
from bench.record.sample import Case, Outcome, Sample

TOKEN_BYTES = 1000  # of KV, in simulated loads


@dataclass(frozen=True, slots=True)
class Truth:
    """Noise-free seconds of both arms.

    Args:
        recompute_s: a, b, c of a + b n + c n^2.
        load_s: a, b of a + b n; from `saturates_tokens` on each token costs `saturated_s`.
    """

    recompute_s: tuple[float, float, float] = (0.02, 2e-5, 4e-9)
    load_s: tuple[float, float] = (0.05, 1e-5)
    saturates_tokens: float = math.inf
    saturated_s: float = 0.0

    def recompute_at(self, tokens: Floats) -> Floats:
        """Seconds of the recompute arm."""
        a, b, c = self.recompute_s
        return np.asarray(a + b * tokens + c * tokens**2)

    def load_at(self, tokens: Floats) -> Floats:
        """Seconds of the load arm."""
        a, b = self.load_s
        beyond = np.maximum(tokens - self.saturates_tokens, 0.0)
        return np.asarray(a + b * tokens + (self.saturated_s - b) * beyond)

    def crossings(self, low: float, high: float) -> tuple[float, ...]:
        """True C* between two lengths, ascending."""
        grid = np.geomspace(low, high, 200_001)
        gap = self.recompute_at(grid) - self.load_at(grid)
        places = np.flatnonzero((gap[:-1] > 0) != (gap[1:] > 0))
        return tuple(float(grid[i]) for i in places)


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of log seconds, and how often what is 2 to 3 times too slow.

    Args:
        case: per round, arm and length.
        common: per round and arm, equal at all lengths.
        shared: per round, equal for both arms and all lengths.
        sample: per timed call.
        slow_rounds, slow_cases: probability that a whole arm in a round, or one case, is 2-3 times too slow.
    """

    case: float = 0.03
    common: float = 0.0
    shared: float = 0.0
    sample: float = 0.02
    slow_rounds: float = 0.0
    slow_cases: float = 0.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What is asked of the simulated sweep; `harness_s` is the price of a case beside its timed calls."""

    step_tokens: int = 256
    min_tokens: int = 256
    max_tokens: int = 32768
    num_rounds: int = 8
    num_samples: int = 5
    precision: float = 0.10
    budget_s: float | None = None
    harness_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What a simulated sweep leaves: a curve per round, and the seconds that measuring took."""

    curves: tuple[RoundCurve, ...]
    cost_s: float
    lengths: tuple[tuple[int, ...], ...] = field(default=())


def draw_seconds(exact_s: Floats, noise: Noise, rng: np.random.Generator, *, num_samples: int) -> Floats:
    """Seconds of all samples of one arm in one round, (num_lengths, num_samples)."""
    num = len(exact_s)
    factor = rng.normal(0.0, noise.case, num) + rng.normal(0.0, noise.common)
    slow = (rng.random(num) < noise.slow_cases) | (rng.random() < noise.slow_rounds)
    factor += np.where(slow, np.log(rng.uniform(2, 3, num)), 0.0)
    return np.asarray(
        exact_s[:, None] * np.exp(factor[:, None] + rng.normal(0, noise.sample, (num, num_samples)))
    )


def draw_round(
    lengths: Sequence[int], truth: Truth, noise: Noise, *, setting: Setting, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Seconds of both arms in one round, recompute then load, each (num_lengths, num_samples)."""
    tokens = np.asarray(lengths, dtype=float)
    shared = math.exp(rng.normal(0.0, noise.shared))
    exact = (truth.recompute_at(tokens) * shared, truth.load_at(tokens) * shared)
    recompute = draw_seconds(exact[0], noise, rng, num_samples=setting.num_samples)
    return recompute, draw_seconds(exact[1], noise, rng, num_samples=setting.num_samples)


def measure_round(
    lengths: Sequence[int], truth: Truth, noise: Noise, *, setting: Setting, rng: np.random.Generator
) -> tuple[RoundCurve, dict[int, float]]:
    """One simulated round: its curve, and the seconds that each length took."""
    recompute, load = draw_round(lengths, truth, noise, setting=setting, rng=rng)
    costs = recompute.sum(axis=1) + load.sum(axis=1) + setting.harness_s
    advantage = np.log(np.median(recompute, axis=1)) - np.log(np.median(load, axis=1))
    curve = curve_of(dict(zip(map(float, lengths), advantage.tolist(), strict=True)))
    return curve, dict(zip(lengths, costs.tolist(), strict=True))


def sweep_grid(
    lengths: Sequence[int], truth: Truth, noise: Noise, *, setting: Setting, rng: np.random.Generator
) -> Swept:
    """Every length in every round."""
    rounds = [
        measure_round(lengths, truth, noise, setting=setting, rng=rng) for _ in range(setting.num_rounds)
    ]
    total = sum(sum(costs.values()) for _, costs in rounds)
    return Swept(tuple(curve for curve, _ in rounds), total, (tuple(lengths),) * setting.num_rounds)


def sweep_adaptively(truth: Truth, noise: Noise, *, setting: Setting, rng: np.random.Generator) -> Swept:
    """The refinement loop as a runner drives it, on a virtual clock."""
    curves: list[RoundCurve] = []
    taken: list[tuple[int, ...]] = []
    costs: dict[int, float] = {}
    spent_s = 0.0
    while not should_stop(state := _state(setting, curves, costs, spent_s)):
        lengths = next_lengths(state)
        if not lengths:
            break
        curve, cost = measure_round(lengths, truth, noise, setting=setting, rng=rng)
        curves.append(curve)
        taken.append(lengths)
        costs.update(cost)
        spent_s += sum(cost.values())
    return Swept(tuple(curves), spent_s, tuple(taken))


def _state(
    setting: Setting, curves: Sequence[RoundCurve], costs: Mapping[int, float], spent_s: float
) -> RefineState:
    return RefineState(
        curves=(tuple(curves),),
        step_tokens=setting.step_tokens,
        min_tokens=setting.min_tokens,
        max_tokens=setting.max_tokens,
        num_rounds=setting.num_rounds,
        precision=setting.precision,
        rounds_done=len(curves),
        remaining_s=None if setting.budget_s is None else setting.budget_s - spent_s,
        cost_s=costs,
    )


def draw_samples(
    rounds: Sequence[Sequence[int]], truth: Truth, noise: Noise, *, setting: Setting, rng: np.random.Generator
) -> list[Sample]:
    """Samples as a record holds them, series "recompute" and "load", for the lengths of each round.

    Both arms of a length are timed in turn; `first_token_s` is the fixed part of the true load, noise on it included.
    """
    samples: list[Sample] = []
    now_s = 0.0
    for number, lengths in enumerate(rounds):
        recompute, load = draw_round(lengths, truth, noise, setting=setting, rng=rng)
        order = 0
        for row, tokens in enumerate(lengths):
            for repetition in range(setting.num_samples):
                recompute_s, load_s = float(recompute[row, repetition]), float(load[row, repetition])
                arms = (
                    (Case("recompute", "recompute", tokens), Outcome(recompute_s)),
                    (Case("load", "load", tokens), _load_outcome(load_s, tokens, truth)),
                )
                for case, outcome in arms:
                    samples.append(Sample(number, order, repetition, now_s, case, outcome))
                    now_s += outcome.seconds
                    order += 1
    return samples


def _load_outcome(seconds: float, tokens: int, truth: Truth) -> Outcome:
    return Outcome(
        seconds,
        first_token_s=seconds * truth.load_s[0] / float(truth.load_at(np.array(float(tokens)))),
        num_bytes=tokens * TOKEN_BYTES,
        cache_state="cold",
        data_path="simulated",
        verified=True,
    )
