"""What a sweep says beside its numbers: of the machine it shares, of what its preflight found, of what was read again."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.arms.file_cursor import Taken
from bench.measure.preflight import Findings
from bench.measure.session import Site
from bench.measure.setup import Setup, name_hybrid
from bench.measure.stores import count_reads
from bench.record.run import SERIES_FAILED, Notice, RunRecord, SeriesInfo
from kvio.backends import find_backend

OF_ROUNDS = frozenset({"failed", SERIES_FAILED, "lengths_dropped"})
CHECK_FAILED = "its check failed"  # of a series that broke before any round
BUSY_SHARE = 0.25  # of all cores, above which timings are noise
# notices of what each part of a sweep finds out for itself: the next part measures again what one had to leave out
FOUND_ANEW = frozenset(
    {
        "failed",
        SERIES_FAILED,
        "lengths_dropped",
        "length_refused",
        "series_skipped",
        "answer_unchecked",
        "slow_dtype",
        "nothing_measured",
        "series_unmeasured",
        "lengths_unmeasured",
        "budget_left",
    }
)


def notice_company(busy_share: float, other_runs: int, *, when: str = "began") -> tuple[Notice, ...]:
    """Say so when others are at work on the machine: whatever is measured then is disturbed.

    Args:
        busy_share: of all cores, 0 to 1, taken by other work.
        other_runs: sweeps seen at work on the same drive.
        when: what the sweep did when they were seen.
    """
    found = []
    if busy_share > BUSY_SHARE:
        message = (
            f"other work took {busy_share:.0%} of the processor when the sweep {when}: expect wide intervals"
        )
        found.append(Notice(code="busy_machine", message=message))
    if other_runs:
        others = f"{other_runs} other sweep{'s' if other_runs > 1 else ''}"
        message = f"{others} used the same folder when this one {when}: each disturbs the other"
        found.append(Notice(code="another_run", message=message))
    return tuple(found)


def keep_latest(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Of each thing that is said again, the latest: what a message begins with names the thing."""
    return tuple({(notice.code, notice.message.partition(":")[0]): notice for notice in notices}.values())


def note_findings(run: RunRecord, findings: Findings) -> RunRecord:
    """The header with what the preflight found; each notice once, however often a sweep is resumed.

    What an earlier part said of things that this one finds out anew goes: it is said again if it is still true.
    """
    harness = {"startup_s": findings.startup_s, **run.harness}
    broken = {name: reason for load, reason in findings.failed.items() for name in (load, name_hybrid(load))}
    reasons = {**findings.skipped, **broken}
    series = {
        name: _skip(info, reasons.get(name)) if name in failed_series(run) | reasons.keys() else info
        for name, info in run.series.items()
    }
    notices = [
        Notice(code="length_refused", message=f"{length} tokens: {reason}")
        for length, reason in findings.refused.items()
    ]
    notices += _notice_broken(series, broken)
    checks = {**run.checks, **findings.checks}
    layers = findings.layers or run.built_layers
    found_anew = FOUND_ANEW if "scaling" in run.checks else FOUND_ANEW | {"scaling_unchecked"}
    unsaid = {name: info for name, info in series.items() if name not in broken}
    notices += [*findings.notices, *_notice_skipped(unsaid), *_notice_unchecked(run, series, checks)]
    if layers is not None and layers.scaled and "scaling" not in checks:
        message = "the error of scaling a few layers was not measured: the preflight had no time for it"
        notices.append(
            Notice(code="scaling_unchecked", message=f"{message}; a longer --budget gives it some")
        )
    kept = [notice for notice in run.notices if notice.code not in found_anew]
    return run.model_copy(
        update={
            "series": series,
            "checks": checks,
            "built_layers": layers,
            "harness": harness,
            "notices": tuple(dict.fromkeys((*kept, *notices))),
        }
    )


def found_in_rounds(run: RunRecord) -> tuple[Notice, ...]:
    """Notices that rounds gave, which stand until a later part has measured again."""
    return tuple(n for n in run.notices if n.code in OF_ROUNDS and CHECK_FAILED not in n.message)


def failed_series(run: RunRecord) -> set[str]:
    """Names of what broke in an earlier part: the next part tries it again."""
    return {notice.message.partition(":")[0] for notice in run.notices if notice.code == SERIES_FAILED}


def _skip(info: SeriesInfo, reason: str | None) -> SeriesInfo:
    """The series as skipped for `reason`; None: as one that is measured."""
    settings = {name: value for name, value in info.settings.items() if name != "skipped"}
    return info.model_copy(
        update={"settings": settings if reason is None else {**settings, "skipped": reason}}
    )


def _notice_broken(series: Mapping[str, SeriesInfo], reasons: Mapping[str, str]) -> list[Notice]:
    return [
        Notice(code=SERIES_FAILED, message=f"{name}: {CHECK_FAILED}, so it was left out: {reason}")
        for name, reason in reasons.items()
        if name in series
    ]


def _notice_skipped(series: Mapping[str, SeriesInfo]) -> list[Notice]:
    return [
        Notice(code="series_skipped", message=f"{name}: skipped: {info.skipped}", suspect=False)
        for name, info in series.items()
        if info.skipped is not None
    ]


def _notice_unchecked(
    run: RunRecord, series: Mapping[str, SeriesInfo], checks: Mapping[str, Any]
) -> list[Notice]:
    """One for each series that brings bytes in and whose right-answer check the preflight had no time for."""
    if run.plan.simulation is not None:
        return []
    loading = [
        name
        for name, info in series.items()
        if info.arm in {"load", "hybrid"} and info.skipped is None and _moves_bytes(info)
    ]
    message = "the preflight had no time for its right-answer check; a longer --budget gives it some"
    return [
        Notice(code="answer_unchecked", message=f"{name}: {message}")
        for name in loading
        if f"answer:{name}" not in checks
    ]


def _moves_bytes(info: SeriesInfo) -> bool:
    backend = info.settings.get("backend")
    return backend is not None and find_backend(str(backend)).moves_bytes


def notice_repeats(setup: Setup, site: Site, taken: Mapping[Path, Taken]) -> tuple[Notice, ...]:
    """Say so where a file of this machine was read a second time, by whichever series.

    Args:
        taken: by the directory of a store, the files read since they were written: by samples, warm-ups and searches.
    """
    if site.scratch is None:
        return ()
    found = []
    for reads in count_reads(setup, site.scratch, taken):
        names = ", ".join(load.name for load in reads.loads)
        if reads.again and any(load.reads_files for load in reads.loads):
            message = (
                f"{names}: {reads.read_bytes / 1e9:.2f} GB were read from {reads.held_bytes / 1e9:.2f} GB of files; a "
                f"cache below this system's page cache, which no counter here sees, may have answered; "
                f"--working-set makes the files larger"
            )
            found.append(Notice(code="bytes_read_again", message=message, suspect=False))
    return tuple(found)
