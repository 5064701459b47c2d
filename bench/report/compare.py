"""Several runs side by side, and the refusal to do so when they come from different machines."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from bench.estimate.results import Analysis, SweetSpot
from bench.estimate.tiers import find_place
from bench.estimate.valid_samples import samples_that_count
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Sample
from bench.record.units import MISSING, format_fact, format_token_range, format_tokens, printable
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import (
    cache_state,
    data_path,
    depths_of,
    flatten,
    format_model,
    load_series,
    series_label,
    spots_of,
    storage_name,
)
from bench.report.text.main_answer import asked_spot, loads_are_sound
from bench.report.text.sentence import crossover_name, format_crossing, of_suffix
from bench.report.text.terminal import render
from kvio.errors import UserError

HEADINGS = (
    "run",
    "model",
    "storage",
    "load by",
    "data path",
    "cache",
    "kind",
    "verdict",
    "tokens [95 %]",
    "measured",
    "setting",
    "depth",
    "suspect",
)
# what makes a machine another one, by the last part of a fact's name; clocks, load, kernel and drivers do not
LASTING = frozenset(
    {"device_name", "cpu_model", "usable_cores", "isa", "in_guest", "memory_bytes", "memory_limit_bytes"}
    | {"name", "mig", "pcie_generation_max", "pcie_width_max"}
)
READING = ("chunk_tokens", "num_threads", "queue_depth", "request_bytes")
GIB = 2**30
REVISION, REVISION_DIGITS = re.compile(r"\b[0-9a-f]{40}\b"), 12


class DifferentMachinesError(UserError):
    """Runs of different machines cannot be compared; the message names the facts that differ."""


@dataclass(frozen=True, slots=True)
class ComparedResult:
    """One run with its samples and what was derived from them."""

    run: RunRecord
    samples: Sequence[Sample]
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class Comparison:
    """The spots of several runs."""

    rows: tuple[tuple[str, ...], ...]  # one for each spot, in the order of `HEADINGS`
    remarks: tuple[str, ...] = ()  # what else differs, a line each
    is_sound: bool = True  # every load series of every run is decided, and none is suspect

    def table(self) -> RenderableType:
        """The rows, then the remarks."""
        return Group(render(HEADINGS, self.rows), *map(Text, self.remarks))


def differing_facts(runs: Sequence[RunRecord]) -> dict[str, tuple[str, ...]]:
    """Lasting facts of the machine that are not the same in all runs: name -> value in each run."""
    known = [{name: _plain(name, value) for name, value in flatten(run.machine)} for run in runs]
    names = dict.fromkeys(name for facts in known for name in facts)
    lasting = [name for name in names if name.rpartition(".")[2] in LASTING]
    return {
        printable(name): tuple(facts.get(name, MISSING) for facts in known)
        for name in lasting
        if any(facts.get(name) != known[0].get(name) for facts in known)
    }


def _plain(name: str, value: object) -> str:
    """One text before and after JSON; memory in whole GiB, as kernels reserve more or less at each boot."""
    if name.endswith(("memory_bytes", "memory_limit_bytes")) and isinstance(value, int):
        return f"{round(value / GIB)} GiB"
    return format_fact(value)


def compare(results: Sequence[ComparedResult]) -> Comparison:
    """Every spot of every result."""
    runs = [result.run for result in results]
    different = differing_facts(runs)
    if different:
        facts = "; ".join(f"{name}: {_format_values(runs, values)}" for name, values in different.items())
        raise DifferentMachinesError(
            f"these runs come from different machines ({facts}); compare runs of one machine only"
        )
    rows = [row for result in results for row in _rows(result)]
    unfinished = [f"{printable(run.run_id)}: {run.state}" for run in runs if run.state != "complete"]
    return Comparison(
        tuple(rows),
        (*differing_settings(runs), *differing_questions(results), *differing_software(runs), *unfinished),
        all(loads_are_sound(result.run, result.samples, result.analysis) for result in results),
    )


def _format_values(runs: Sequence[RunRecord], values: Sequence[str]) -> str:
    """Each value once, with the runs that have it: "x in first, third against y in second"."""
    having: dict[str, list[str]] = {}
    for run, value in zip(runs, values, strict=True):
        having.setdefault(value, []).append(printable(run.run_id))
    return " against ".join(f"{value} in {', '.join(names)}" for value, names in having.items())


def differing_settings(runs: Sequence[RunRecord]) -> list[str]:
    """A line for each load series that not all runs read with the same chunks, threads, depth and request size."""
    lines = []
    names = dict.fromkeys(name for run in runs for name, info in run.series.items() if info.arm == "load")
    for name in names:
        said = {run.run_id: _format_reading(run.series[name]) for run in runs if name in run.series}
        if len(set(said.values())) > 1:
            each = "; ".join(f"{printable(run_id)}: {setting}" for run_id, setting in said.items())
            lines.append(f"{printable(name)}: the settings differ: {each}")
    return lines


def _format_reading(info: SeriesInfo) -> str:
    said = {name: info.settings.get(name) for name in READING}
    return ", ".join(f"{name} {format_fact(value)}" for name, value in said.items())


def differing_questions(results: Sequence[ComparedResult]) -> list[str]:
    """A line for each part of the question that is not the same in all runs: their times are then of other things."""
    runs = [result.run for result in results]
    asked: dict[str, list[str]] = {
        "suffix tokens": [format_tokens(run.plan.suffix_tokens or None) for run in runs],
        "prefill chunk": [format_tokens(run.plan.prefill_chunk) for run in runs],
        "layers that ran": [_format_depth(result.samples) for result in results],
        "attention": [run.plan.attention for run in runs],
    }
    return [
        f"the runs differ in {name}: {_format_values(runs, values)}"
        for name, values in asked.items()
        if len(set(values)) > 1
    ]


def differing_software(runs: Sequence[RunRecord]) -> list[str]:
    """One line with all versions and settings of software that are not the same in all runs."""
    known = [{name: format_fact(value) for name, value in flatten(run.software)} for run in runs]
    said = []
    for name in dict.fromkeys(name for facts in known for name in facts):
        values = [facts.get(name, MISSING) for facts in known]
        if len(set(values)) > 1:
            said.append(f"{printable(name)}: {_format_values(runs, [_shorten(value) for value in values])}")
    return [f"the software differs: {'; '.join(said)}"] if said else []


def _shorten(value: str) -> str:
    """The value with each revision cut to 12 digits."""
    return REVISION.sub(lambda found: found[0][:REVISION_DIGITS], value)


def _format_depth(samples: Sequence[Sample]) -> str:
    """How many layers of the model ran: "4 of 36", "all 36", "4 of 36 or all 36"."""
    depths = depths_of(samples)
    return (
        " or ".join(f"all {every}" if some == every else f"{some} of {every}" for some, every in depths)
        or MISSING
    )


def _format_cache(result: ComparedResult, series: str) -> str:
    """The proven page-cache state of what counts; none where nothing does, or no page cache is on the way."""
    state = cache_state(result.run, result.samples, series=series)
    in_memory = find_place(result.run, series) == "host memory"
    counts = any(True for _ in samples_that_count(result.run, result.samples, series))
    return state or ("unverified" if counts and not in_memory else MISSING)


def _rows(result: ComparedResult) -> Iterator[tuple[str, ...]]:
    """A row for each spot of each load series that is its answer or has a result."""
    run, depth = result.run, _format_depth(result.samples)
    for series in load_series(run, result.analysis):
        suspects = suspect_codes(run, result.samples, result.analysis, series=series)
        asked = asked_spot(run, result.analysis, series)
        for spot in spots_of(result.analysis, series):
            if spot is not asked and not spot.crossings and spot.measured_range is None:
                continue
            yield (*_row(result, spot), depth, ", ".join(suspects) or MISSING)


def _row(result: ComparedResult, spot: SweetSpot) -> tuple[str, ...]:
    run = result.run
    return (
        printable(run.run_id),
        format_model(run),
        storage_name(run, spot.series),
        series_label(run, spot.series),
        data_path(run, result.samples, series=spot.series) or "—",
        _format_cache(result, spot.series),
        crossover_name(spot) + of_suffix(run, spot),
        spot.verdict.replace("_", " "),
        "; ".join(map(format_crossing, spot.crossings)) or "—",
        format_token_range(spot.measured_range),
        format_tokens(spot.export_tokens),
    )
