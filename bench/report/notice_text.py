"""The notices of a run or a series, and which of them make the answer suspect."""

from collections.abc import Iterable, Mapping, Sequence

from bench.estimate.results import Analysis
from bench.record.notices import SERIES_CHECK_FAILED, SERIES_FAILED, Notice, kind_of
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import printable
from bench.report.run_facts import load_series

IMPLY_FAILED_CHECK = frozenset({"wrong_answer", "blind_answer_check"})


def broke(run: RunRecord, series: str) -> bool:
    """True when a series failed in the sweep or in its check."""
    kinds = {SERIES_FAILED, SERIES_CHECK_FAILED}
    return any(notice.kind in kinds and notice.series == series for notice in run.notices)


def format_notices(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str
) -> dict[str, tuple[str, ...]]:
    """Kind -> texts, each once, of the notices of one series, its recompute arm and the run."""
    others = set(load_series(run, analysis)) - {series}
    notices = [notice for notice in run.notices if concerns(run, notice, series)]
    notices += [notice for spot in analysis.spots if spot.series == series for notice in spot.notices]
    notices += [notice for notice in analysis.notices if notice.series not in others]
    kinds = [kind for point in analysis.points if point.series == series for kind in point.notices]
    arms = [s for s in samples if s.case.series == series or s.case.arm == "recompute"]
    kinds += [kind for sample in arms for kind in sample.outcome.notices]
    failed = [
        name
        for name in failed_checks(run)
        if name.partition(":")[2] == series or name.partition(":")[2] not in run.series
    ]
    return _group(notices, kinds, failed)


def format_own_notices(
    run: RunRecord, notices: Iterable[Notice], kinds: Iterable[str], *, series: str
) -> dict[str, tuple[str, ...]]:
    """Kind -> texts, each once, of `notices`, of samples' `kinds` and of the run's notices of this series alone."""
    own = [notice for notice in run.notices if notice.series == series]
    failed = [name for name in failed_checks(run) if name.partition(":")[2] == series]
    return _group([*own, *notices], kinds, failed)


def _group(
    notices: Iterable[Notice], kinds: Iterable[str], failed: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Texts of notices by kind, and the failed checks where no notice reports them."""
    found: dict[str, dict[str, None]] = {}
    for notice in (*notices, *(Notice(kind=kind) for kind in kinds)):
        found.setdefault(notice.kind, {}).update({notice.text: None} if notice.detail else {})
    if failed and not IMPLY_FAILED_CHECK & found.keys():
        found["check_failed"] = {f"{', '.join(failed)}: did not pass": None}
    return {kind: tuple(texts) for kind, texts in found.items()}


def failed_checks(run: RunRecord) -> tuple[str, ...]:
    """Names of the recorded checks that did not pass."""
    return tuple(
        name
        for name, result in run.checks.items()
        if isinstance(result, Mapping) and result.get("passed") is False
    )


def concerns(run: RunRecord, notice: Notice, series: str) -> bool:
    """True for a notice of this series, of no series, or of what the run does not measure."""
    return notice.series == series or notice.series not in run.series


def suspect_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Those of `kinds` that make an answer suspect."""
    return tuple(printable(kind) for kind in kinds if kind_of(kind).suspect)


def suspect_codes(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str
) -> tuple[str, ...]:
    """Kinds of all notices that make the answer for one series suspect, each once."""
    return suspect_kinds(format_notices(run, samples, analysis, series=series))
