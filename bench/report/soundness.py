"""Whether a run answers what it was asked for: every way to load decided, and nothing suspect."""

from collections.abc import Sequence

from bench.estimate.results import Analysis
from bench.record.run import RunRecord, Sample
from bench.report.notice_text import broke, failed_checks, harmless_codes, suspect_codes
from bench.report.run_facts import load_series
from bench.report.text.hybrid_text import suspects_of
from bench.report.text.main_answer import asked_spot


def is_sound(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> bool:
    """True when the loads are sound, and no hybrid curve, no check and no notice of the run speaks against it."""
    harmless = harmless_codes(run)
    return loads_are_sound(run, samples, analysis) and not (
        failed_checks(run)
        or any(suspects_of(run, curve) for curve in analysis.hybrids)
        or any(notice.code not in harmless for notice in run.notices)
    )


def loads_are_sound(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> bool:
    """True when there is a load series, and each is decided and not suspect.

    What was skipped is said, and no fault, unless it broke.
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
