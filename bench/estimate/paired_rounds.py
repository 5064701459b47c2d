"""Pair one load series with the recompute series, round by round: the tables of points and sweet spots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.estimate.bandwidth import fixed_by_round
from bench.estimate.crossover import fit_seconds
from bench.estimate.intervals import AnalysisError
from bench.estimate.results import Fit
from bench.estimate.round_curves import RoundCurves, band_of
from bench.estimate.valid_samples import (
    Medians,
    Selection,
    Table,
    pair_rounds,
    require_measurable,
    round_medians,
    select_load,
    tabulate,
)
from bench.record.run import RunRecord
from bench.record.sample import ArmName, Sample

Tables = Mapping[tuple[ArmName, str, int], Table]  # by arm, series and suffix_tokens


@dataclass(frozen=True)
class PairedRounds:
    """The valid samples of one load series, and those of the recompute arm."""

    series: str
    recompute_series: str | None  # None when nothing was recomputed
    recompute: Table  # whole prefixes
    load: Selection
    recompute_next: Table  # the next suffix_tokens after a prefix
    load_next: Selection
    suffix_tokens: int  # 0: not requested
    chunk_tokens: int
    gemm_flops_per_s: Mapping[int, float]  # by round

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


def make_pairings(run: RunRecord, samples: Sequence[Sample]) -> tuple[PairedRounds, ...]:
    """One pairing per load series, named by the run or found in the samples."""
    require_measurable(run, samples)
    tables = tabulate(samples)
    recompute_series = _find_recompute_series(run, tables)
    gemm = _find_gemm_rates(tables)
    names = [name for name, info in run.series.items() if info.arm == "load"]
    names += [series for arm, series, _ in tables if arm == "load"]
    pairings = []
    for series in dict.fromkeys(names):
        suffix = _find_suffix(run, tables, recompute_series, series=series)
        pairings.append(
            PairedRounds(
                series=series,
                recompute_series=recompute_series,
                recompute=tables.get(("recompute", recompute_series or "", 0), {}),
                load=select_load(run, series, tables.get(("load", series, 0), {})),
                recompute_next=tables.get(("recompute", recompute_series or "", suffix), {})
                if suffix
                else {},
                load_next=select_load(run, series, tables.get(("load", series, suffix), {}))
                if suffix
                else Selection({}),
                suffix_tokens=suffix,
                chunk_tokens=find_chunk_tokens(run, series),
                gemm_flops_per_s=gemm,
            )
        )
    return tuple(pairings)


def _find_recompute_series(run: RunRecord, tables: Tables) -> str | None:
    names = {series for arm, series, _ in tables if arm == "recompute"}
    if len(names) > 1:
        raise AnalysisError(
            f"{run.run_id}: {len(names)} recompute series ({', '.join(sorted(names))}), "
            "but load is compared with one. Analyse them one at a time."
        )
    return next(iter(names), None)


def _find_suffix(run: RunRecord, tables: Tables, recompute_series: str | None, *, series: str) -> int:
    """The shortest suffix timed by both arms, else the requested one; 0 for none."""
    ours = {suffix for arm, name, suffix in tables if arm == "recompute" and name == recompute_series}
    theirs = {suffix for arm, name, suffix in tables if arm == "load" and name == series}
    return min((ours & theirs) - {0}, default=run.plan.suffix_tokens)


def find_chunk_tokens(run: RunRecord, series: str | None) -> int:
    """Tokens per chunk of this series; the default is the run's."""
    own = run.series[series].settings.get("chunk_tokens") if series in run.series else None
    return own if isinstance(own, int) and own > 0 else run.chunk_tokens


def _find_gemm_rates(tables: Tables) -> dict[int, float]:
    """Median flops/s of each round's gemm samples."""
    rates: dict[int, list[float]] = {}
    for (arm, _, _), table in tables.items():
        for rounds in table.values() if arm == "gemm" else ():
            for number, outcomes in rounds.items():
                found = [o.flops_per_s for o in outcomes if o.flops_per_s]
                rates.setdefault(number, []).extend(found)
    return {number: float(np.median(found)) for number, found in rates.items() if found}


def list_fits(pairings: Sequence[PairedRounds]) -> tuple[Fit, ...]:
    """The recompute fit once, then one load fit for each series."""
    found = [pairing.recompute_fit for pairing in pairings[:1]] + [pairing.load_fit for pairing in pairings]
    return tuple(fit for fit in found if fit is not None)
