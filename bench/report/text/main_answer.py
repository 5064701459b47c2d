"""The main answer of a run, the answer of a series, and whether they are sound."""

from collections.abc import Sequence

from bench.estimate.results import Analysis, SweetSpot
from bench.estimate.valid_samples import FAULTS
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.report.notice_text import broke, failed_checks, suspect_codes
from bench.report.run_facts import load_series, spots_of
from bench.report.text.hybrid_text import suspects_of


def main_spot(run: RunRecord, analysis: Analysis) -> SweetSpot | None:
    """The answer to say first: C* (P* where that was asked) of the median for the first load series with samples.

    One that broke in the sweep comes after those that did not.
    """
    ordered = [spot for series in load_series(run, analysis) for spot in spots_of(analysis, series)]
    kind = "marginal" if run.plan.suffix_tokens else "whole"
    asked = [spot for spot in ordered if spot.kind == kind and spot.statistic == "p50"]
    tried = [spot for spot in asked if spot.measured_range is not None or _left_out(spot)]
    whole = [spot for spot in tried if not broke(run, spot.series)]
    return next(iter([*whole, *tried, *asked, *ordered]), None)


def _left_out(spot: SweetSpot) -> bool:
    """Whether samples were taken that do not count."""
    return any(notice.kind in FAULTS for notice in spot.notices)


def asked_spot(run: RunRecord, analysis: Analysis, series: str) -> SweetSpot | None:
    """C* of the median for one load series; P* where the run asked for that."""
    kind = "marginal" if run.plan.suffix_tokens else "whole"
    return next((s for s in spots_of(analysis, series) if s.kind == kind and s.statistic == "p50"), None)


def is_sound(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> bool:
    """True when the loads are sound, and no hybrid curve, no check and no notice of the run speaks against it."""
    return loads_are_sound(run, samples, analysis) and not (
        failed_checks(run)
        or any(suspects_of(run, curve) for curve in analysis.hybrids)
        or any(notice.suspect for notice in run.notices)
    )


def loads_are_sound(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> bool:
    """True when there is a load series, and each is decided and not suspect.

    A skipped series is no fault unless it failed.
    """
    asked = [
        series
        for series in load_series(run, analysis)
        if series not in run.series or run.series[series].skipped is None or broke(run, series)
    ]
    return bool(asked) and all(_is_series_sound(run, samples, analysis, series=series) for series in asked)


def _is_series_sound(run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str) -> bool:
    spot = asked_spot(run, analysis, series)
    decided = spot is not None and spot.verdict != "inconclusive"
    return decided and not suspect_codes(run, samples, analysis, series=series)
