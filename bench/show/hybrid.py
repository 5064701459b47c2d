"""What a person reads about the hybrid arm: cells beside each length, and one sentence for each series."""

from collections.abc import Sequence

from bench.analyse.answer import Analysis, HybridCurve, HybridPoint
from bench.measure.record import RunRecord
from bench.show.facts import harmless_codes, series_label
from bench.show.numbers import (
    MISSING,
    format_ratio_estimate,
    format_seconds_estimate,
    format_share,
    format_tokens,
    printable,
    round_digits,
)

HYBRID_HEADINGS = ("hybrid [95 %]", "loaded", "better/hybrid")


def hybrid_points(analysis: Analysis, load_series: str) -> dict[int, HybridPoint]:
    """Points of the hybrid series that loads like `load_series`, by length; empty when none was measured."""
    return {
        point.prefix_tokens: point
        for curve in analysis.hybrids
        if curve.load_series == load_series
        for point in curve.points
    }


def hybrid_cells(point: HybridPoint | None) -> tuple[str, ...]:
    """The cells of one length, in the order of `HYBRID_HEADINGS`."""
    if point is None:
        return (MISSING,) * len(HYBRID_HEADINGS)
    return (
        format_seconds_estimate(point.hybrid_s),
        format_share(point.load_fraction),
        format_ratio_estimate(point.speedup),
    )


def describe_hybrids(run: RunRecord, analysis: Analysis) -> tuple[str, ...]:
    """One sentence for each hybrid series: how much faster than the better arm it was, or why it was not measured."""
    return tuple(_describe(run, curve) for curve in analysis.hybrids)


def _describe(run: RunRecord, curve: HybridCurve) -> str:
    name = f"Hybrid by {series_label(run, curve.series)}"
    if curve.skipped is not None:
        return f"{name}: skipped: {printable(curve.skipped)}."
    if not curve.points:
        why = "; ".join(curve.notices) or "no samples"
        return f"{name}: nothing measured ({printable(why)})."
    said = ", ".join(_say_point(point) for point in curve.points)
    suspects = _suspects(run, curve)
    doubt = f"; suspect: {', '.join(suspects)}" if suspects else ""
    return (
        f"{name} (recompute from the front, loading from the back) against the better of the two arms alone, by the "
        f"ratio of their times with its 95 % interval over rounds: {said} (below 1, hybrid is the slower{doubt})."
    )


def _say_point(point: HybridPoint) -> str:
    at = f"at {format_tokens(point.prefix_tokens)} tokens"
    if point.speedup is None:
        return f"not compared {at}"
    low, high = point.speedup.low, point.speedup.high
    interval = (
        "no interval" if low is None or high is None else f"{round_digits(low)} to {round_digits(high)}"
    )
    loaded = "" if point.load_fraction is None else f"; {format_share(point.load_fraction)} loaded"
    return f"{round_digits(point.speedup.value)} × as fast as {point.better_arm} {at} ({interval}{loaded})"


def _suspects(run: RunRecord, curve: HybridCurve) -> Sequence[str]:
    codes = [code for point in curve.points for code in point.notices]
    codes += [notice.partition(": ")[0] for notice in curve.notices]
    return [printable(code) for code in dict.fromkeys(codes) if code not in harmless_codes(run)]
