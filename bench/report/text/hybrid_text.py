"""What a person reads about the hybrid arm: cells beside each length, and one sentence for each series."""

from collections.abc import Sequence

from bench.estimate.results import Analysis, HybridCurve, HybridPoint
from bench.record.run import RunRecord
from bench.record.units import MISSING, format_share, format_tokens, printable, round_digits
from bench.report.notice_text import format_own_notices, suspect_kinds
from bench.report.run_facts import series_label
from bench.report.text.format import format_ratio_estimate, format_seconds_estimate

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
        why = "; ".join(f"{notice.kind}: {notice.detail}" for notice in curve.notices) or "no samples"
        return f"{name}: nothing measured ({printable(why)})."
    suspects = suspects_of(run, curve)
    doubt = f" (suspect: {', '.join(suspects)})" if suspects else ""
    return f"{name} {_format_wins(curve.points)}{_format_longest(curve.points[-1])}{doubt}."


def _format_wins(points: Sequence[HybridPoint]) -> str:
    """At how many lengths hybrid beats the better arm beyond its interval, and from which on."""
    wins = [point.prefix_tokens for point in points if _low_speedup(point) > 1]
    lengths = f"{len(points)} length{'s' * (len(points) != 1)}"
    if not wins:
        return f"surely beats the better arm alone at none of {lengths}"
    start = "at" if len(wins) == 1 else "the shortest of them"
    return f"surely beats the better arm alone at {len(wins)} of {lengths}, {start} {format_tokens(wins[0])} tokens"


def _low_speedup(point: HybridPoint) -> float:
    """The lower end of the speedup's interval; 0 where there is none."""
    return 0.0 if point.speedup is None or point.speedup.low is None else point.speedup.low


def _format_longest(point: HybridPoint) -> str:
    """By how much at one length: below 1, hybrid is the slower."""
    if point.speedup is None:
        return ""
    value, low, high = point.speedup.value, point.speedup.low, point.speedup.high
    interval = (
        "no interval" if low is None or high is None else f"{round_digits(low)} to {round_digits(high)}"
    )
    return (
        f"; {round_digits(value)} × as fast as {point.better_arm} at {format_tokens(point.prefix_tokens)} tokens "
        f"({interval})"
    )


def suspects_of(run: RunRecord, curve: HybridCurve) -> Sequence[str]:
    """Codes of all that makes a hybrid curve suspect, each once."""
    return suspect_kinds(format_hybrid_notices(run, curve))


def format_hybrid_notices(run: RunRecord, curve: HybridCurve) -> dict[str, tuple[str, ...]]:
    """Code -> messages, each once, of all that was noticed of a hybrid curve and of nothing else."""
    kinds = [kind for point in curve.points for kind in point.notices]
    return format_own_notices(run, curve.notices, kinds, series=curve.series)
