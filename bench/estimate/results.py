"""The answer as values: points, crossings and verdicts, each with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.record.notices import Notice

Verdict = Literal[
    "crossover", "load_always_wins", "recompute_always_wins", "multiple_crossings", "inconclusive"
]
Kind = Literal["whole", "marginal"]
BetterArm = Literal["recompute", "load"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval over rounds; bounds are None when there are too few rounds."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """Both arms at one length, for one load series against the recompute series.

    `break_even_bytes_per_s` is the read rate at which load would tie with recompute at this length.
    """

    series: str
    prefix_tokens: int
    num_rounds: int
    num_samples: int
    recompute_s: Estimate | None
    load_s: Estimate | None
    ratio: Estimate | None  # recompute_s / load_s, paired by round; above 1 load wins
    load_p95_s: float | None
    load_p99_s: float | None
    first_token_s: float | None
    num_bytes: int | None
    bytes_per_s: Estimate | None
    break_even_bytes_per_s: float | None
    mfu: float | None
    recompute_scaled: bool
    load_scaled: bool = False  # its first-token step
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Crossing:
    """One sign change of the advantage."""

    tokens: Estimate
    bracket: tuple[int, int]
    load_wins_beyond: bool
    extrapolated: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of seconds = a + b n (+ c n^2) and the relative residual at each fitted length."""

    arm: str
    series: str
    coefficients: tuple[float, ...]
    residuals: dict[int, float]


@dataclass(frozen=True, slots=True)
class SweetSpot:
    """The crossover with its verdict and interval, for one load series and one statistic of its time."""

    series: str
    kind: Kind
    statistic: Literal["p50", "p95", "p99"]
    verdict: Verdict
    measured_range: tuple[int, int] | None
    crossings: tuple[Crossing, ...] = ()
    export_tokens: int | None = None  # the crossing rounded up to whole chunks
    sensitivity: dict[str, Estimate | None] = field(
        default_factory=dict
    )  # C* at "0.5x", "0.8x", "1.25x", "2x" of the bandwidth
    reason: str = ""
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class HybridPoint:
    """The hybrid arm at one length."""

    prefix_tokens: int
    num_rounds: int
    num_samples: int
    hybrid_s: Estimate | None
    load_fraction: float | None  # loaded share of the prefix, median over samples
    better_arm: BetterArm | None  # by the median over rounds
    # seconds of the better arm / seconds of the hybrid, paired by round; above 1 hybrid wins
    speedup: Estimate | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HybridCurve:
    """One hybrid series; `skipped` is the reason if it was not measured."""

    series: str
    load_series: str
    points: tuple[HybridPoint, ...]
    skipped: str | None = None
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything derived from the samples of one run."""

    points: tuple[Point, ...]
    spots: tuple[SweetSpot, ...]
    fits: tuple[Fit, ...]
    notices: tuple[Notice, ...] = ()
    hybrids: tuple[HybridCurve, ...] = ()


def choose_series(names: Sequence[str], asked: str | None) -> str:
    """The requested series, or the only one; ValueError lists the choices."""
    found = list(dict.fromkeys(names))
    if asked is None and len(found) == 1:
        return found[0]
    if asked is not None and asked in found:
        return asked
    if not found:
        raise ValueError("no load series was measured")
    wrong = f"no load series {asked!r}" if asked else f"{len(found)} load series"
    raise ValueError(f"{wrong}. Choose one with --series: {', '.join(found)}")


def fullest_series(points: Sequence[Point]) -> str | None:
    """The series with the most lengths measured by both arms; ties: the first."""
    lengths: dict[str, int] = {}
    for point in points:
        both = point.recompute_s is not None and point.load_s is not None
        lengths[point.series] = lengths.get(point.series, 0) + both
    return max(lengths, key=lambda name: lengths[name], default=None)
