"""Where the noise of a sweep lies: between its rounds or between the samples of one round.

One-way random effects on relative times: sample = case median × (1 + round + repeat).  The round's share does
not shrink with more samples in the same process, which is why a sweep repeats rounds.

Source: S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components", Wiley 1992, chapter 3 (analysis of
variance estimators for the one-way model with unequal group sizes).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from bench.record.run import Sample

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Relative spread of one case: standard deviations as shares of its median.

    Args:
        between: of the rounds' true levels; 0 when the rounds differ no more than their samples do.
        within: of the samples of one round around its level; None with one sample in every round.
    """

    arm: str
    series: str
    prefix_tokens: int
    suffix_tokens: int
    num_rounds: int
    num_samples: int
    median_s: float
    between: float
    within: float | None

    @property
    def between_share(self) -> float | None:
        """Share of the variance that lies between rounds, 0 to 1; None when it cannot be told apart."""
        if self.within is None:
            return None
        total = self.between**2 + self.within**2
        return self.between**2 / total if total > 0 else None


def variance_components(samples: Sequence[Sample]) -> tuple[VarianceComponents, ...]:
    """Components of every case measured in two rounds or more, ordered by arm, series and length."""
    cases: dict[tuple[str, str, int, int], dict[int, list[float]]] = {}
    for sample in samples:
        case = sample.case
        key = (case.arm, case.series, case.prefix_tokens, case.suffix_tokens)
        cases.setdefault(key, {}).setdefault(sample.round, []).append(sample.outcome.seconds)
    return tuple(_components(key, list(cases[key].values())) for key in sorted(cases) if len(cases[key]) > 1)


def _components(key: tuple[str, str, int, int], rounds: Sequence[Sequence[float]]) -> VarianceComponents:
    every = np.concatenate([np.asarray(seconds) for seconds in rounds])
    median_s = float(np.median(every))
    groups = [np.asarray(seconds) / median_s for seconds in rounds]
    sizes = np.array([len(group) for group in groups])
    means = np.array([group.mean() for group in groups])
    freedom = int(sizes.sum()) - len(groups)
    grand = float((sizes * means).sum() / sizes.sum())
    mean_square_between = float((sizes * (means - grand) ** 2).sum()) / (len(groups) - 1)
    size = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(groups) - 1)
    within_square = None
    if freedom > 0:
        within_square = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom
    between_square = max(0.0, (mean_square_between - (within_square or 0.0)) / float(size))
    return VarianceComponents(
        *key,
        num_rounds=len(groups),
        num_samples=int(sizes.sum()),
        median_s=median_s,
        between=math.sqrt(between_square),
        within=None if within_square is None else math.sqrt(within_square),
    )


def predict_half_width(components: VarianceComponents, *, num_rounds: int, num_samples: int) -> float:
    """Relative half-width of the 95 % t interval over rounds that such noise gives on average.

    Args:
        num_rounds: fresh processes, 2 or more.
        num_samples: samples of the case in each.

    Raises:
        ValueError: fewer than 2 rounds or fewer than 1 sample.
    """
    if num_rounds < 2 or num_samples < 1:
        raise ValueError(f"{num_rounds} rounds x {num_samples} samples give no interval; take 2 x 1 or more")
    variance = components.between**2 / num_rounds
    variance += (components.within or 0.0) ** 2 / (num_rounds * num_samples)
    return float(stdtrit(num_rounds - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)


def pooled_half_width(components: VarianceComponents, *, num_samples: int) -> float:
    """Relative half-width that pooling `num_samples` samples of ONE process would claim.

    It knows nothing of the spread between rounds, so it is too narrow by about that spread.
    """
    if num_samples < 2:
        raise ValueError(f"{num_samples} samples give no interval; take 2 or more")
    factor = float(stdtrit(num_samples - 1, (1 + CONFIDENCE) / 2))
    return factor * (components.within or 0.0) / math.sqrt(num_samples)
