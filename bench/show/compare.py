"""Several runs side by side, and the refusal to do so when they come from different machines."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from bench.analyse.answer import Analysis, SweetSpot
from bench.measure.record import RunRecord, Sample
from bench.show.facts import (
    cache_state,
    data_path,
    flatten,
    load_series,
    series_label,
    spots_of,
    storage_name,
)
from bench.show.numbers import (
    format_fact,
    format_token_range,
    format_tokens,
    format_tokens_estimate,
    printable,
)
from bench.show.sentence import crossover_name
from bench.show.table import align

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
)
# facts of the moment, which differ between two runs on one machine; a name counts by its last part
MOMENTARY = frozenset(
    {"available_bytes", "free_bytes", "used_bytes", "uptime_s", "load_average", "temperature_c", "boot_id"}
    | {"frequency_hz", "clock_hz", "memory_available_bytes", "memory_free_bytes", "power_w"}
)


class DifferentMachinesError(Exception):
    """Runs of different machines are not put side by side; the message says which facts differ."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run with its samples and what was derived from them."""

    run: RunRecord
    samples: Sequence[Sample]
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class Comparison:
    """The spots of several runs, one row each, in the order of `HEADINGS`."""

    rows: tuple[tuple[str, ...], ...]

    def table(self) -> Table:
        """For a terminal."""
        table = Table(box=box.SIMPLE_HEAD)
        for heading in HEADINGS:
            table.add_column(Text(heading))
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def plain(self) -> str:
        """For a log: no colours, no control characters, no wrapping."""
        return "\n".join(align([HEADINGS, *self.rows]))


def differing_facts(runs: Sequence[RunRecord]) -> dict[str, tuple[str, ...]]:
    """Machine facts whose values are not the same in all runs: name -> value in each run."""
    known = [dict(flatten(run.machine)) for run in runs]
    names = dict.fromkeys(name for facts in known for name in facts)
    return {
        printable(name): tuple(format_fact(facts.get(name)) for facts in known)
        for name in names
        if name.split(".")[-1] not in MOMENTARY
        and any(facts.get(name) != known[0].get(name) for facts in known)
    }


def compare(results: Sequence[Result]) -> Comparison:
    """Every spot of every result.

    Raises:
        DifferentMachinesError: the runs' machines differ in a fact that lasts.
    """
    runs = [result.run for result in results]
    different = differing_facts(runs)
    if different:
        facts = "; ".join(f"{name}: {' against '.join(values)}" for name, values in different.items())
        names = ", ".join(printable(run.run_id) for run in runs)
        raise DifferentMachinesError(
            f"{names} come from different machines ({facts}); compare runs of one machine only"
        )
    rows = [
        _row(result, spot)
        for result in results
        for series in load_series(result.run, result.analysis)
        for spot in spots_of(result.analysis, series)
    ]
    return Comparison(tuple(rows))


def _row(result: Result, spot: SweetSpot) -> tuple[str, ...]:
    run = result.run
    return (
        printable(run.run_id),
        f"{printable(run.model_name)} ({run.plan.dtype})",
        storage_name(run),
        series_label(run, spot.series),
        data_path(result.samples, spot.series) or "—",
        cache_state(run, result.samples, series=spot.series) or "unverified",
        crossover_name(spot),
        spot.verdict.replace("_", " "),
        "; ".join(format_tokens_estimate(crossing.tokens) for crossing in spot.crossings) or "—",
        format_token_range(spot.measured_range),
        format_tokens(spot.export_tokens),
    )
