"""One load series beside the recompute series: the tables that points and spots are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.estimate.bandwidth import fixed_by_round
from bench.estimate.crossover import fit_seconds
from bench.estimate.results import Fit
from bench.estimate.round_curves import RoundCurves, band_of
from bench.estimate.valid_samples import Medians, Selection, Table, pair_rounds, round_medians


@dataclass(frozen=True)
class PairedRounds:
    """All samples of one load series that count, and those of the recompute arm.

    Args:
        series: the load series.
        recompute_series: the series it is compared with; None when nothing was recomputed.
        recompute, load: whole-prefix samples.
        recompute_next, load_next: samples of the marginal question (suffix_tokens > 0).
        suffix_tokens: next tokens of the marginal question; 0 where it was not asked.
        chunk_tokens: tokens of one KV chunk.
        gemm_flops_per_s: by round, what the device's matrix multiplication reached.
    """

    series: str
    recompute_series: str | None
    recompute: Table
    load: Selection
    recompute_next: Table
    load_next: Selection
    suffix_tokens: int
    chunk_tokens: int
    gemm_flops_per_s: Mapping[int, float]

    @cached_property
    def recompute_s(self) -> Medians:
        """Within-round medians of recompute."""
        return round_medians(self.recompute)

    @cached_property
    def load_s(self) -> Medians:
        """Within-round medians of load."""
        return round_medians(self.load.table)

    @cached_property
    def fixed_s(self) -> Medians:
        """Seconds of load that do not shrink with the read rate, by length and round."""
        return fixed_by_round(self.load.table, self.load_fit.coefficients[0] if self.load_fit else 0.0)

    @cached_property
    def recompute_fit(self) -> Fit | None:
        """a + b n + c n^2 through the medians over rounds."""
        return fit_seconds("recompute", self.recompute_series or "", _over_rounds(self.recompute_s))

    @cached_property
    def load_fit(self) -> Fit | None:
        """a + b n through the medians over rounds."""
        return fit_seconds("load", self.series, _over_rounds(self.load_s))

    @cached_property
    def band(self) -> RoundCurves:
        """Advantage of load, log(recompute / load), over the rounds that measured both."""
        return band_of(pair_rounds(self.recompute_s, self.load_s))

    @property
    def measured_range(self) -> tuple[int, int] | None:
        """Shortest and longest length that both arms measured in one round."""
        lengths = self.band.lengths
        return (int(lengths[0]), int(lengths[-1])) if len(lengths) else None


def _over_rounds(medians: Medians) -> dict[int, float]:
    return {tokens: float(np.median(list(rounds.values()))) for tokens, rounds in medians.items()}
