"""What was noticed of a run or a series, and which of it makes the answer suspect."""

from collections.abc import Iterable, Mapping, Sequence

from bench.estimate.results import Analysis
from bench.record.notices import SERIES_FAILED, Notice
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import printable
from bench.report.run_facts import load_series

# noise and few rounds widen the interval that is printed; the others concern what was not measured
SAID_BY_THE_INTERVAL = frozenset(
    {"few_rounds", "noisy_recompute", "noisy_load", "noisy_reading", "noisy_first_token"}
    | {
        "possible_crossing",
        "coarse_bracket",
        "extrapolated",
        "mfu_above_one",
        "budget_left",
        "moe_random_routing",
        "padded_chunk",
        "bytes_read_again",
        "buffers_not_registered",
    }
)
SAYS_A_FAILED_CHECK = frozenset({"wrong_answer", "blind_answer_check"})


def broke(run: RunRecord, series: str) -> bool:
    """Whether the sweep had to do without a series from some moment on."""
    return any(n.code == SERIES_FAILED and n.message.partition(": ")[0] == series for n in run.notices)


def split_notice(text: str) -> tuple[str, str]:
    """(code, message) of a notice written as "code: message"; the message may be missing."""
    code, _, message = text.partition(": ")
    return code, message


def format_notices(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str
) -> dict[str, tuple[str, ...]]:
    """Code -> messages, each once, of all that was noticed for one series, its recompute arm and the run."""
    texts = [f"{n.code}: {n.message}" for n in run.notices if concerns(run, n, series)]
    texts += [text for spot in analysis.spots if spot.series == series for text in spot.notices]
    # the analysis repeats the notices of its spots and points after the name of their series
    texts += [text for text in analysis.notices if split_notice(text)[0] not in load_series(run, analysis)]
    texts += [code for point in analysis.points if point.series == series for code in point.notices]
    arms = [s for s in samples if s.case.series == series or s.case.arm == "recompute"]
    texts += [code for sample in arms for code in sample.outcome.notices]
    failed = [name for name in failed_checks(run) if _is_of(run, name.partition(":")[2], series)]
    return _by_code(texts, failed)


def format_own_notices(run: RunRecord, texts: Iterable[str], *, series: str) -> dict[str, tuple[str, ...]]:
    """Code -> messages, each once, of `texts` and of what the run noticed of this series by name."""
    own = [
        f"{n.code}: {n.message}" for n in run.notices if series in _named(run, n.message.partition(": ")[0])
    ]
    failed = [name for name in failed_checks(run) if name.partition(":")[2] == series]
    return _by_code([*own, *texts], failed)


def _by_code(texts: Iterable[str], failed: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Messages of notices by their codes, and the failed checks where nothing else says that they failed."""
    found: dict[str, dict[str, None]] = {}
    for code, message in map(split_notice, texts):
        found.setdefault(code, {}).update({message: None} if message else {})
    if failed and not SAYS_A_FAILED_CHECK & found.keys():
        found["check_failed"] = {f"{', '.join(failed)}: did not pass": None}
    return {code: tuple(messages) for code, messages in found.items()}


def failed_checks(run: RunRecord) -> tuple[str, ...]:
    """Names of the recorded checks that did not pass."""
    return tuple(
        name
        for name, result in run.checks.items()
        if isinstance(result, Mapping) and result.get("passed") is False
    )


def concerns(run: RunRecord, notice: Notice, series: str) -> bool:
    """False for what was noticed of other series, whose names the message begins with."""
    return _is_of(run, notice.message.partition(": ")[0], series)


def _is_of(run: RunRecord, subject: str, series: str) -> bool:
    """Whether `subject`, names of series or something else, is that series or concerns every one."""
    names = _named(run, subject)
    return not names or series in names


def _named(run: RunRecord, subject: str) -> set[str]:
    """The series that the beginning of a message names."""
    return run.series.keys() & set(subject.split(", "))


def suspect_codes(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str
) -> tuple[str, ...]:
    """Codes of all that makes the answer for one series suspect, each once.

    Notices that the run lists as harmless (`suspect=False`) are left out.
    """
    harmless = harmless_codes(run)
    found = format_notices(run, samples, analysis, series=series)
    return tuple(printable(code) for code in found if code not in harmless)


def harmless_codes(run: RunRecord) -> frozenset[str]:
    """Codes that do not make an answer suspect: listed so by the run, or said by the interval already."""
    return SAID_BY_THE_INTERVAL | {notice.code for notice in run.notices if not notice.suspect}
