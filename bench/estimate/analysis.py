"""From the samples of one run to its answer."""

from collections.abc import Mapping, Sequence

import numpy as np

from bench.estimate.hybrid_gain import make_curves
from bench.estimate.intervals import AnalysisError
from bench.estimate.paired_rounds import PairedRounds
from bench.estimate.per_length import make_points
from bench.estimate.results import Analysis, Fit, Point
from bench.estimate.sweet_spots import make_spots
from bench.estimate.valid_samples import Selection, Table, require_measurable, select_load, tabulate
from bench.record.notices import Notice
from bench.record.run import RunRecord
from bench.record.sample import ArmName, Sample

Tables = Mapping[tuple[ArmName, str, int], Table]


def analyse(run: RunRecord, samples: Sequence[Sample]) -> Analysis:
    """Points, sweet spots and fits of every load series of `run` against its recompute series.

    Raises:
        AnalysisError: impossible seconds, lengths or bytes, or two recompute series to compare with.
    """
    pairings = make_pairings(run, samples)
    points = tuple(point for pairing in pairings for point in make_points(pairing))
    spots = tuple(spot for pairing in pairings for spot in make_spots(pairing))
    notices = [notice for spot in spots for notice in spot.notices]
    notices += [*_notice_noise(points), *_notice_depths(samples), *_notice_strangers(run, samples)]
    if not pairings:
        notices.append(Notice(kind="no_load_series", detail="nothing to compare with recompute"))
    tables = {series: table for (arm, series, _), table in tabulate(samples).items() if arm == "hybrid"}
    hybrids = make_curves(run, pairings, tables)
    return Analysis(points, spots, _fits(pairings), tuple(dict.fromkeys(notices)), hybrids)


def make_pairings(run: RunRecord, samples: Sequence[Sample]) -> tuple[PairedRounds, ...]:
    """One pairing for each load series that the run names or the samples hold."""
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
                chunk_tokens=_find_chunk(run, series),
                gemm_flops_per_s=gemm,
            )
        )
    return tuple(pairings)


def _notice_noise(points: Sequence[Point]) -> list[Notice]:
    """For each series one notice of each kind of noise, with the lengths that show it."""
    lengths: dict[tuple[str, str], list[int]] = {}
    for point in points:
        for kind in point.notices:
            if kind.startswith(("noisy_", "drift_")):
                lengths.setdefault((kind, point.series), []).append(point.prefix_tokens)
    return [
        Notice(kind=kind, series=series, detail=f"at {', '.join(map(str, found))} tokens")
        for (kind, series), found in lengths.items()
    ]


def _notice_depths(samples: Sequence[Sample]) -> list[Notice]:
    """Say so when seconds scaled from one depth are pooled with those of another: each is wrong by its own error."""
    depths: dict[str, set[int]] = {}
    for sample in samples:
        if sample.outcome.measured_layers is not None:
            depths.setdefault(sample.case.series, set()).add(sample.outcome.measured_layers)
    return [
        Notice(
            kind="mixed_depths",
            series=series,
            detail=f"samples with {' and '.join(map(str, sorted(found)))} layers are pooled",
        )
        for series, found in depths.items()
        if len(found) > 1
    ]


def _notice_strangers(run: RunRecord, samples: Sequence[Sample]) -> list[Notice]:
    """Say so where nothing tells how a series was measured: which cache state it asked for, which layout."""
    known = {(name, info.arm) for name, info in run.series.items()}
    measured = dict.fromkeys((sample.case.series, sample.case.arm) for sample in samples)
    return [
        Notice(kind="unknown_series", series=name, detail=f"run.json names no {arm} series {name}")
        for name, arm in measured
        if (name, arm) not in known
    ]


def _find_recompute_series(run: RunRecord, tables: Tables) -> str | None:
    names = {series for arm, series, _ in tables if arm == "recompute"}
    if len(names) > 1:
        raise AnalysisError(
            f"{run.run_id}: {len(names)} recompute series ({', '.join(sorted(names))}); "
            "load can be compared with one, so analyse them one at a time"
        )
    return next(iter(names), None)


def _find_suffix(run: RunRecord, tables: Tables, recompute_series: str | None, *, series: str) -> int:
    """The shortest suffix that both arms were timed with, else the one asked for; 0 for none."""
    ours = {suffix for arm, name, suffix in tables if arm == "recompute" and name == recompute_series}
    theirs = {suffix for arm, name, suffix in tables if arm == "load" and name == series}
    return min((ours & theirs) - {0}, default=run.plan.suffix_tokens)


def _find_chunk(run: RunRecord, series: str) -> int:
    """Tokens of one chunk of this series, the run's unless the series has its own."""
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


def _fits(pairings: Sequence[PairedRounds]) -> tuple[Fit, ...]:
    """The recompute fit once, then one load fit for each series."""
    found = [pairing.recompute_fit for pairing in pairings[:1]] + [pairing.load_fit for pairing in pairings]
    return tuple(fit for fit in found if fit is not None)
