"""The answer as tables, for summary.csv and crossover.csv: each figure with its unit in its column's name."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bench.estimate.bandwidth import SCALES
from bench.estimate.results import Analysis, Crossing, Estimate, HybridPoint, Kind, Point, SweetSpot
from bench.estimate.tiers import Tier, TierTable

Row = Mapping[str, Any]


# whose rows give a frame of nothing its columns
NO_POINT = Point(
    "", 0, 0, 0, None, None, None, None, None, None, None, None, None, None, recompute_scaled=False
)
NO_SPOT = SweetSpot("", "whole", "p50", "inconclusive", None)


def summary_frame(analysis: Analysis) -> pd.DataFrame:
    """One row for each load series and length; missing is <NA>."""
    hybrids = {
        (curve.load_series, point.prefix_tokens): point
        for curve in analysis.hybrids
        for point in curve.points
    }
    rows = [
        _summary_row(point, hybrids.get((point.series, point.prefix_tokens))) for point in analysis.points
    ]
    return _frame(rows) if rows else _frame([_summary_row(NO_POINT, None)]).head(0)


def crossover_frame(analysis: Analysis) -> pd.DataFrame:
    """One row for each crossing, one for a spot without any; `kind` tells C* (whole) from P* (marginal)."""
    rows: list[Row] = []
    for spot in analysis.spots:
        crossings = spot.crossings or (None,)
        rows += [_crossover_row(spot, number, crossing) for number, crossing in enumerate(crossings)]
    return _frame(rows) if rows else _frame([_crossover_row(NO_SPOT, 0, None)]).head(0)


def tier_frame(table: TierTable) -> pd.DataFrame:
    """One row for each tier, fastest first, and recompute, if measured, in the last; seconds at every length measured."""
    rows = [_tier_row(table, tier) for tier in table.tiers]
    seconds = {f"at_{tokens}_tokens_s": estimate.value for tokens, estimate in table.recompute_s.items()}
    return _frame([*rows, {"series": "recompute", **seconds}] if seconds else rows)


def _frame(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows).convert_dtypes()


def _spread(name: str, unit: str, estimate: Estimate | None) -> Row:
    """Three columns: the value and both ends of its 95 % interval."""
    return {
        f"{name}{unit}": None if estimate is None else estimate.value,
        f"{name}_low{unit}": None if estimate is None else estimate.low,
        f"{name}_high{unit}": None if estimate is None else estimate.high,
    }


def _summary_row(point: Point, hybrid: HybridPoint | None) -> Row:
    return {
        "series": point.series,
        "prefix_tokens": point.prefix_tokens,
        "num_rounds": point.num_rounds,
        "num_samples": point.num_samples,
        **_spread("recompute", "_s", point.recompute_s),
        **_spread("load", "_s", point.load_s),
        **_spread("recompute_per_load", "_ratio", point.ratio),
        "load_p95_s": point.load_p95_s,
        "load_p99_s": point.load_p99_s,
        "first_token_s": point.first_token_s,
        "num_bytes": point.num_bytes,
        **_spread("read", "_bytes_per_s", point.bytes_per_s),
        "break_even_bytes_per_s": point.break_even_bytes_per_s,
        "mfu_ratio": point.mfu,
        "recompute_scaled": point.recompute_scaled,
        "load_scaled": point.load_scaled,
        **_spread("hybrid", "_s", None if hybrid is None else hybrid.hybrid_s),
        "load_fraction": None if hybrid is None else hybrid.load_fraction,
        "better_arm": None if hybrid is None else hybrid.better_arm,
        **_spread("better_per_hybrid", "_ratio", None if hybrid is None else hybrid.speedup),
        "notices": ";".join(point.notices),
    }


def _crossover_row(spot: SweetSpot, number: int, crossing: Crossing | None) -> Row:
    low, high = spot.measured_range or (None, None)
    below, above = crossing.bracket if crossing else (None, None)
    return {
        "series": spot.series,
        "kind": spot.kind,
        "statistic": spot.statistic,
        "verdict": spot.verdict,
        "crossing": number if crossing else None,
        **_spread("crossover", "_tokens", crossing.tokens if crossing else None),
        "bracket_below_tokens": below,
        "bracket_above_tokens": above,
        "load_wins_beyond": crossing.load_wins_beyond if crossing else None,
        "extrapolated": crossing.extrapolated if crossing else None,
        "export_tokens": spot.export_tokens,
        "measured_from_tokens": low,
        "measured_to_tokens": high,
        **_sensitivity_cells(spot),
        "reason": spot.reason,
        "notices": "; ".join(f"{notice.kind}: {notice.detail}" for notice in spot.notices),
    }


def _sensitivity_cells(spot: SweetSpot) -> Row:
    """C* at other read rates, each with its interval."""
    cells: dict[str, Any] = {}
    for scale in SCALES:
        cells |= _spread(f"crossover_at_{scale:g}x_bandwidth", "_tokens", spot.sensitivity.get(f"{scale:g}x"))
    return cells


def _tier_row(table: TierTable, tier: Tier) -> Row:
    seconds = {point.prefix_tokens: point.load_s for point in tier.points}
    homes = [home.prefix_tokens for home in table.homes if tier.series in home.all_series]
    return {
        "series": tier.series,
        "place": tier.place,
        "backend": tier.backend,
        "layout": tier.layout,
        "data_path": tier.data_path,
        "cache_state": tier.cache_state,
        **_spread("read", "_bytes_per_s", tier.bytes_per_s),
        "read_at_tokens": tier.rate_tokens,
        **_spot_cells("whole", tier.whole),
        **_spot_cells("marginal", tier.marginal),
        "from_tokens": tier.from_tokens,
        "cheapest_at_tokens": ";".join(map(str, homes)),
        **{
            f"at_{tokens}_tokens_s": None if (found := seconds.get(tokens)) is None else found.value
            for tokens in table.lengths
        },
    }


def _spot_cells(kind: Kind, spot: SweetSpot | None) -> Row:
    """Verdict and place of a crossover; the place is empty unless there is just one."""
    single = spot.crossings[0].tokens if spot is not None and spot.verdict == "crossover" else None
    return {
        f"{kind}_verdict": None if spot is None else spot.verdict,
        **_spread(f"{kind}_crossover", "_tokens", single),
    }
