"""Smooth curves through the measured points: diagnostics, the only source of extrapolated values."""

from collections.abc import Iterable, Mapping

import numpy as np
from scipy.optimize import nnls  # type: ignore[attr-defined]

from bench.estimate.intervals import Floats
from bench.estimate.results import Crossing, Estimate, Fit

DEGREES = {"recompute": 2, "load": 1}  # a + b n + c n^2: attention is quadratic; a + b n: bytes are linear
EXTRAPOLATE = 4.0  # fitted curves are followed this many times beyond the measured lengths, no further


def fit_seconds(arm: str, series: str, seconds: Mapping[int, float]) -> Fit | None:
    """Non-negative least squares of the relative error; None with fewer lengths than coefficients."""
    degree = DEGREES[arm]
    lengths = sorted(seconds)
    if len(lengths) < degree + 1:
        return None
    n = np.asarray(lengths, dtype=float)
    t = np.asarray([seconds[tokens] for tokens in lengths])
    scale = float(n[-1])  # keeps the columns of similar size
    rows = np.stack([(n / scale) ** power / t for power in range(degree + 1)], axis=1)
    found, _ = nnls(rows, np.ones(len(n)))
    coefficients = tuple(float(value) / scale**power for power, value in enumerate(found))
    residuals = {
        tokens: float(time / evaluate(coefficients, tokens) - 1)
        for tokens, time in zip(lengths, t, strict=True)
    }
    return Fit(arm, series, coefficients, residuals)


def evaluate(coefficients: tuple[float, ...], tokens: float) -> float:
    """Seconds that a fit gives at a length."""
    return sum(value * tokens**power for power, value in enumerate(coefficients))


def fit_crossings(recompute: Fit, load: Fit) -> Floats:
    """Positive lengths where both fitted curves are equal, ascending."""
    gap = np.zeros(3)
    gap[: len(recompute.coefficients)] += recompute.coefficients
    gap[: len(load.coefficients)] -= load.coefficients
    if not np.any(gap[1:]):
        return np.empty(0)
    roots = np.roots(np.trim_zeros(gap, "b")[::-1])
    real = roots[np.abs(roots.imag) <= 1e-9 * np.abs(roots)].real
    return np.sort(real[real > 0])


def extrapolate(recompute: Fit, load: Fit, measured: tuple[int, int]) -> Crossing | None:
    """The fitted crossing nearest to the measured range but outside of it, within EXTRAPOLATE times.

    It has no interval; its `bracket` is the end of the measured range that it lies beyond, twice.
    """
    shortest, longest = measured
    outside = [
        float(n)
        for n in fit_crossings(recompute, load)
        if longest < n <= EXTRAPOLATE * longest or shortest / EXTRAPOLATE <= n < shortest
    ]
    if not outside:
        return None
    tokens = min(outside, key=lambda n: max(n / longest, shortest / n))
    end = longest if tokens > longest else shortest
    step = 1e-3 * tokens
    rising = _gap(recompute, load, tokens + step) > _gap(recompute, load, tokens - step)
    return Crossing(Estimate(tokens), (end, end), rising, extrapolated=True)


def _gap(recompute: Fit, load: Fit, tokens: float) -> float:
    return evaluate(recompute.coefficients, tokens) - evaluate(load.coefficients, tokens)


def describe_disagreement(recompute: Fit, load: Fit, crossing: Crossing) -> str | None:
    """What differs when the fitted curves cross outside the interval of the measured crossing."""
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is None or high is None:
        return None
    roots = fit_crossings(recompute, load)
    if any(low <= n <= high for n in roots):
        return None
    nearest = min(roots, key=lambda n: abs(np.log(n / crossing.tokens.value)), default=None)
    says = "never cross" if nearest is None else f"cross at {nearest:.0f} tokens"
    return (
        f"the fitted curves {says}, the measured points at {crossing.tokens.value:.0f} "
        f"({low:.0f} to {high:.0f})"
    )


def format_factor(lengths: Iterable[int], measured: tuple[int, int]) -> str | None:
    """How far the lengths reach outside of the measured ones; None when they do not."""
    listed = list(lengths)
    shortest, longest = min(listed), max(listed)
    said = []
    if longest > measured[1]:
        said.append(f"{longest:,} tokens are {longest / measured[1]:.3g} times the longest length measured")
    if shortest < measured[0]:
        said.append(
            f"{shortest:,} tokens are 1/{measured[0] / max(shortest, 1):.3g} of the shortest length measured"
        )
    return "; ".join(said) or None
