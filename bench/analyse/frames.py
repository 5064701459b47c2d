"""The answer as tables, for summary.csv and crossover.csv: each figure with its unit in its column's name."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bench.analyse.answer import Analysis, Crossing, Estimate, HybridPoint, Point, SweetSpot
from bench.analyse.bandwidth import SCALES

Row = Mapping[str, Any]


def summary_frame(analysis: Analysis) -> pd.DataFrame:
    """One row for each load series and length; missing is <NA>."""
    hybrids = {
        (curve.load_series, point.prefix_tokens): point
        for curve in analysis.hybrids
        for point in curve.points
    }
    return _frame(
        [_summary_row(point, hybrids.get((point.series, point.prefix_tokens))) for point in analysis.points]
    )


def crossover_frame(analysis: Analysis) -> pd.DataFrame:
    """One row for each crossing, one for a spot without any; `kind` tells C* (whole) from P* (marginal)."""
    rows: list[Row] = []
    for spot in analysis.spots:
        crossings = spot.crossings or (None,)
        rows += [_crossover_row(spot, number, crossing) for number, crossing in enumerate(crossings)]
    return _frame(rows)


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
        **{
            f"crossover_at_{scale:g}x_bandwidth_tokens": spot.sensitivity.get(f"{scale:g}x")
            for scale in SCALES
        },
        "reason": spot.reason,
        "notices": "; ".join(spot.notices),
    }
