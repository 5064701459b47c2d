"""Coefficients of the cost model from times that were measured, and how far they can be trusted.

    T_recompute(n) = o + g kernel_gemm(n) + a kernel_attention(n)          o, g, a >= 0
    T_load(n) - step(n) = o + m move(n)                                    o, m >= 0

Least squares of the relative error.  With few lengths that are hardly exact, g and a would be free to trade
against each other, and a long prefix to be anything.  What is known of the kernels ties them: that g and a
differ by `prior` weighs as much as a point that is off by `noise`.  What is known of a fixed cost anchors o alike.

Intervals are those of one more measurement (Student's t over the residuals, with the leverage of its length:
Draper and Smith, Applied Regression Analysis, section 8.2), so they widen away from the lengths that were fitted.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[attr-defined]
from scipy.special import stdtrit

from bench.estimate.intervals import AnalysisError
from bench.predict.bounded import Pick
from bench.predict.cost_model import CostModel
from kvio.errors import UserError

MIN_LENGTHS = 3


class CalibrationError(UserError, AnalysisError):
    """Too few measured lengths to calibrate on."""


@dataclass(frozen=True, slots=True)
class Tie:
    """Two coefficients about equal: a difference of `prior` weighs as much as a point off by `noise`."""

    one: int
    other: int
    noise: float
    prior: float


@dataclass(frozen=True, slots=True)
class Anchor:
    """A coefficient that is about `value`: a difference of `prior` of it weighs as much as a point off by `noise`."""

    one: int
    value: float
    noise: float
    prior: float


# the shares of both kernels in their peaks differ so much between GPUs (kernels.toml); published times are read to 2 %
TABLE_TIE = Tie(1, 2, noise=0.02, prior=0.10)


@dataclass(frozen=True, slots=True)
class ArmFit:
    """Coefficients of one arm, fitted to seconds by length."""

    coefficients: tuple[float, ...]
    residuals: Mapping[int, float]  # measured over fitted, less 1, by length
    # relative half-width of the 95 % interval of one more measurement amid the lengths, None with as
    # many coefficients as lengths
    width: float | None
    # of the fit's normal matrix; 0 for coefficients that ended at 0
    inverse: tuple[tuple[float, ...], ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths fitted, ascending."""
        return tuple(sorted(self.residuals))

    def width_at(self, terms: Sequence[float]) -> float:
        """Relative half-width of the interval where the basis has these terms; 0 where there is none."""
        row = np.array(terms)
        fitted = float(row @ np.array(self.coefficients))
        if self.width is None or fitted <= 0:
            return 0.0
        leverage = float(row @ np.array(self.inverse) @ row) / fitted**2
        return self.width * math.sqrt(1 + leverage)

    def bound(self, seconds: float, pick: Pick, terms: Sequence[float]) -> float:
        """Seconds at a bound of the interval at these terms of the basis; as they are where there is none."""
        width = self.width_at(terms)
        return seconds * {"value": 1.0, "low": max(1 - width, 0.0), "high": 1 + width}[pick]

    def prefill_s(
        self, num_tokens: int, terms: Sequence[float], pick: Pick, *, most_fixed_s: float = 0.0
    ) -> float:
        """Seconds of a prefill or a bound of them; below the lengths fitted the fixed cost is hardly known.

        There kernels run with fewer rows than any that was fitted, so the bounds also hold a fixed cost from
        nothing to twice the fitted one, and to `most_fixed_s`.
        """
        value, fixed_s = _dot(self.coefficients, terms), self.coefficients[0]
        seconds = self.bound(value, pick, terms)
        if pick == "value" or self.width is None or num_tokens >= self.lengths[0]:
            return seconds
        if pick == "low":
            return min(seconds, value - fixed_s)
        return max(seconds, value - fixed_s + max(2 * fixed_s, most_fixed_s))


Basis = Callable[[int], Sequence[float]]
# seconds by length; pairs where a length may have been measured more than once
Times = Mapping[int, float] | Sequence[tuple[int, float]]


def fit_arm(
    seconds: Times, basis: Basis, *, tied: Tie | None = None, anchored: Anchor | None = None
) -> ArmFit:
    """Non-negative coefficients of `basis` that give `seconds` with the least relative error.

    Args:
        seconds: measured, of at least MIN_LENGTHS lengths.
        tied: two coefficients that are about equal, of a basis in seconds.
        anchored: a coefficient that is about known.

    Raises:
        CalibrationError: fewer lengths.
    """
    lengths, measured = zip(*_points(seconds), strict=True)
    times = np.array(measured)
    rows = np.array([basis(n) for n in lengths]) / times[:, None]
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    system, target = rows, np.ones(len(lengths))
    for pull, to in _pulls(rows.shape[1], tied, anchored):
        system, target = np.vstack([system, pull]), np.append(target, to)
    found, _ = nnls(system / scale, target)
    coefficients = found / scale
    fitted = rows @ coefficients
    residuals = _residuals(lengths, fitted)
    free = len(target) - int(np.count_nonzero(found))  # what is known besides the times counts as measured
    width = None
    if free > 0:
        spread = float(np.linalg.norm(system @ coefficients - target)) / math.sqrt(free)
        width = float(stdtrit(free, 0.975)) * spread
    used = found > 0
    inverse = np.zeros((len(found), len(found)))
    inverse[np.ix_(used, used)] = np.linalg.pinv(system[:, used].T @ system[:, used])
    return ArmFit(
        tuple(float(value) for value in coefficients),
        residuals,
        width,
        tuple(tuple(float(cell) for cell in row) for row in inverse),
    )


def _points(seconds: Times) -> list[tuple[int, float]]:
    """Lengths and seconds, ascending."""
    points = sorted(seconds.items() if isinstance(seconds, Mapping) else seconds)
    if (num_lengths := count_lengths(points)) < MIN_LENGTHS:
        raise CalibrationError(f"calibration needs {MIN_LENGTHS} measured lengths, not {num_lengths}")
    return points


def _residuals(lengths: Sequence[int], shares: Iterable[float]) -> dict[int, float]:
    """Measured over fitted, less 1, by length; the largest where a length was measured more than once."""
    found: dict[int, float] = {}
    for n, share in zip(lengths, shares, strict=True):
        found[n] = max(float(1 / share - 1), found.get(n, 0.0), key=abs)
    return found


def count_lengths(points: Sequence[tuple[int, float]]) -> int:
    """How many different lengths were measured."""
    return len({tokens for tokens, _ in points})


def _pulls(
    num_terms: int, tied: Tie | None, anchored: Anchor | None
) -> Iterator[tuple[NDArray[np.float64], float]]:
    """Rows of the system that say what is known besides the times, each with its right side."""
    if tied is not None:
        pull = np.zeros(num_terms)
        pull[tied.one], pull[tied.other] = tied.noise / tied.prior, -tied.noise / tied.prior
        yield pull, 0.0
    if anchored is not None and anchored.value > 0:
        pull = np.zeros(num_terms)
        pull[anchored.one] = anchored.noise / anchored.prior / anchored.value
        yield pull, anchored.noise / anchored.prior


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """A cost model whose coefficients come from measured times where there are some."""

    base: CostModel
    recompute: ArmFit | None
    load: ArmFit | None

    @property
    def label(self) -> str:
        """What is modelled, and that it is calibrated."""
        return f"{self.base.label}, calibrated"

    @property
    def notices(self) -> tuple[str, ...]:
        """What had to be supposed."""
        return self.base.notices

    @property
    def has_bounds(self) -> tuple[bool, bool]:
        """Whether recompute and load have bounds."""
        fits = (self.recompute, self.load)
        given = zip(fits, self.base.has_bounds, strict=True)
        recompute, load = (bounds if fit is None else fit.width is not None for fit, bounds in given)
        return recompute, load

    def recompute_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds to prefill the prefix."""
        if self.recompute is None:
            return self.base.recompute_s(num_tokens, pick)
        terms = recompute_basis(self.base)(num_tokens)
        most_fixed_s = self.base.engine.overhead_at("high")
        return self.recompute.prefill_s(num_tokens, terms, pick, most_fixed_s=most_fixed_s)

    def fixed_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds of a load that no faster storage would save."""
        if self.load is None:
            return self.base.fixed_s(num_tokens, pick)
        terms = (1.0, self.base.transfer_s(num_tokens))
        return self.load.bound(self.load.coefficients[0], pick, terms) + self.base.step_s(num_tokens)

    def transfer_s(self, num_tokens: int, pick: Pick = "value", *, scale: float = 1.0) -> float:
        """Seconds to bring the bytes in, were the storage `scale` times as fast."""
        if self.load is None:
            return self.base.transfer_s(num_tokens, pick, scale=scale)
        terms = (1.0, self.base.transfer_s(num_tokens))
        moving = self.load.coefficients[1] * self.base.transfer_s(num_tokens, scale=scale)
        return self.load.bound(moving, pick, terms)

    def both_arms_s(
        self, num_tokens: int, recompute: Pick, load: Pick, *, scale: float = 1.0
    ) -> tuple[float, float]:
        """Seconds of both arms; calibrated ones share nothing that is known."""
        if self.recompute is None and self.load is None:
            return self.base.both_arms_s(num_tokens, recompute, load, scale=scale)
        moving = self.transfer_s(num_tokens, load, scale=scale)
        return self.recompute_s(num_tokens, recompute), self.fixed_s(num_tokens, load) + moving

    @property
    def shared_range_s(self) -> float:
        """That of the model calibrated, where neither arm is."""
        return self.base.shared_range_s if self.recompute is None and self.load is None else 0.0

    def num_bytes(self, num_tokens: int) -> int:
        """Bytes that the load arm reads."""
        return self.base.num_bytes(num_tokens)


def recompute_basis(base: CostModel) -> Basis:
    """1, and the seconds of the kernels with the exchange of the ranks in the matrix products."""

    def terms(num_tokens: int) -> tuple[float, float, float]:
        gemm, attention = base.kernel_s(num_tokens)
        return 1.0, gemm + base.exchange_s(num_tokens), attention

    return terms


def calibrate(
    base: CostModel, recompute_s: Sequence[tuple[int, float]], load_s: Sequence[tuple[int, float]]
) -> CalibratedModel:
    """The model that these times make of `base`; an arm with fewer than MIN_LENGTHS lengths stays as it is."""
    recompute = load = None
    if count_lengths(recompute_s) >= MIN_LENGTHS:
        recompute = fit_arm(recompute_s, recompute_basis(base), tied=TABLE_TIE)
    if count_lengths(load_s) >= MIN_LENGTHS:
        rest = [(n, seconds - base.step_s(n)) for n, seconds in load_s]
        if min(seconds for _, seconds in rest) > 0:
            load = fit_arm(rest, lambda n: (1.0, base.transfer_s(n)))
    return CalibratedModel(base, recompute, load)


def _dot(coefficients: Sequence[float], terms: Sequence[float]) -> float:
    return sum(value * term for value, term in zip(coefficients, terms, strict=True))
