"""Band of the p95 or p99 load time, over the samples of all rounds, against the median recompute.

Interval: seeded percentile bootstrap of whole rounds, widened by t / z and sqrt(R / (R - 1)) for R rounds.  It is an
approximation: it cannot include a tail that no round contains.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri, stdtrit

from bench.estimate.intervals import Floats
from bench.estimate.valid_samples import Medians, Table

MIN_SAMPLES = {"p95": 20, "p99": 100}  # per length; with fewer, the quantile is the largest sample
QUANTILES = {"p95": 0.95, "p99": 0.99}
NUM_RESAMPLES = 300


@dataclass(frozen=True, slots=True, eq=False)
class TailBand:
    """Advantage of load at a quantile of its time."""

    lengths: Floats
    values: Floats  # (num_lengths, 1 + NUM_RESAMPLES); column 0 is the estimate
    widen: float  # factor on the interval
    _curve: PchipInterpolator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        curve = PchipInterpolator(np.log(self.lengths), self.values)  # type: ignore[no-untyped-call]
        object.__setattr__(self, "_curve", curve)

    def at(self, lengths: Floats) -> tuple[Floats, Floats, Floats]:
        """Centre, low and high at lengths within the measured range."""
        x = np.clip(np.log(lengths), np.log(self.lengths[0]), np.log(self.lengths[-1]))
        values = self._curve(x)
        centre = values[:, 0]
        if not math.isfinite(self.widen):
            unknown = np.full_like(centre, np.nan)
            return centre, unknown, unknown
        low, high = np.quantile(values[:, 1:], (0.025, 0.975), axis=1)
        return (
            centre,
            centre - self.widen * np.maximum(centre - low, 0.0),
            centre + self.widen * np.maximum(high - centre, 0.0),
        )


def enough_samples(table: Table, statistic: str) -> list[int]:
    """Lengths with enough samples over all rounds for this quantile, ascending."""
    return sorted(
        tokens
        for tokens, rounds in table.items()
        if sum(len(outcomes) for outcomes in rounds.values()) >= MIN_SAMPLES[statistic]
    )


def pair_table(recompute: Medians, load: Table) -> Table:
    """Load samples of the rounds that also measured recompute at that length; empty lengths are dropped."""
    paired = {
        tokens: {number: found for number, found in rounds.items() if number in recompute.get(tokens, {})}
        for tokens, rounds in load.items()
    }
    return {tokens: rounds for tokens, rounds in paired.items() if rounds}


def tail_seconds(rounds: Mapping[int, Sequence[float]], statistic: str) -> float | None:
    """The quantile over the samples of all rounds in seconds; None with too few."""
    seconds = [value for values in rounds.values() for value in values]
    if len(seconds) < MIN_SAMPLES[statistic]:
        return None
    return float(np.quantile(seconds, QUANTILES[statistic]))


def tail_band(recompute: Medians, load: Table, statistic: str) -> TailBand | None:
    """The band over the lengths with enough samples; None with fewer than two such lengths."""
    load = pair_table(recompute, load)
    lengths = enough_samples(load, statistic)
    if len(lengths) < 2:
        return None
    num_rounds = min(len(load[tokens]) for tokens in lengths)
    # one draw for all lengths, so that a slow round is slow at all of them
    draws = np.random.default_rng(0).random((NUM_RESAMPLES, max(len(load[tokens]) for tokens in lengths)))
    rows = [
        _advantages(recompute[tokens], load, tokens, statistic=statistic, draws=draws) for tokens in lengths
    ]
    widen = math.inf
    if num_rounds > 1:
        student = float(stdtrit(num_rounds - 1, 0.975)) / float(ndtri(0.975))
        widen = student * math.sqrt(num_rounds / (num_rounds - 1))
    return TailBand(np.asarray(lengths, dtype=float), np.stack(rows), widen)


def _advantages(
    recompute: Mapping[int, float], load: Table, tokens: int, *, statistic: str, draws: Floats
) -> Floats:
    """log(median recompute / quantile of load): the estimate, then one value for each resample of rounds."""
    rounds = sorted(load[tokens])
    width = max(len(load[tokens][number]) for number in rounds)
    samples = np.full((len(rounds), width), np.nan)
    for row, number in enumerate(rounds):
        seconds = [outcome.seconds for outcome in load[tokens][number]]
        samples[row, : len(seconds)] = seconds
    paired = np.asarray([recompute[number] for number in rounds])
    picked = (draws[:, : len(rounds)] * len(rounds)).astype(int)
    picked = np.concatenate([np.arange(len(rounds))[None, :], picked])  # (1 + NUM_RESAMPLES, num_rounds)
    tails = _quantile_rows(samples[picked].reshape(len(picked), -1), QUANTILES[statistic])
    return np.asarray(np.log(np.median(paired[picked], axis=1)) - np.log(tails))


def _quantile_rows(values: Floats, quantile: float) -> Floats:
    """Linear quantile of each row without its NaN."""
    ordered = np.sort(values, axis=1)  # NaN goes last
    last = np.count_nonzero(~np.isnan(ordered), axis=1) - 1
    place = quantile * last
    below = np.floor(place).astype(int)
    above = np.minimum(below + 1, last)
    row = np.arange(len(values))
    share = place - below
    return np.asarray((1 - share) * ordered[row, below] + share * ordered[row, above])
