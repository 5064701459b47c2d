"""Where a result comes from, as plain rows: checks, plan, machine, storage, software, series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure.record import RunRecord, Sample
from bench.show.facts import (
    cache_state,
    data_path,
    device_name,
    flatten,
    say_depth,
    say_repeats,
    series_label,
    storage_name,
)
from bench.show.numbers import (
    format_bytes,
    format_fact,
    format_rate,
    format_seconds,
    format_tokens,
    printable,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    title: str
    rows: tuple[tuple[str, str], ...]


def fact_rows(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Flat (name, value) rows of a facts dict; the unit in a name picks the format."""
    return tuple((say_name(name, value), format_named(name, value)) for name, value in flatten(facts))


def _in_a_line(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fact_rows(facts))


def say_name(name: str, value: object) -> str:
    """A fact's name in words, without the unit that its formatted value says itself."""
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    said = name.removesuffix("_s").removesuffix("_bytes") if numeric and not name.endswith("_per_s") else name
    return printable(said).replace("_", " ").replace(".", " · ")


def format_named(name: str, value: object) -> str:
    """A fact by the unit at the end of its name: `_bytes`, `_per_s`, `_s`, `_tokens`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return format_fact(value)
    if name.endswith("bytes_per_s"):
        return format_rate(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return format_seconds(value)
    if name.endswith("_tokens"):
        return format_tokens(value)
    return format_fact(value)


def plan_rows(run: RunRecord) -> tuple[tuple[str, str], ...]:
    """The plan as asked; loads one by one; what was left open is not listed."""
    asked = run.plan.model_dump(mode="json", exclude_none=True, exclude={"loads", "simulation"})
    loads = {
        f"load {number}": ", ".join(
            f"{say_name(name, value)} {format_named(name, value)}" for name, value in load.items()
        )
        for number, load in enumerate(run.plan.model_dump(mode="json", exclude_none=True)["loads"], start=1)
    }
    made = {} if run.plan.simulation is None else {"simulation": run.plan.simulation.model_dump(mode="json")}
    return fact_rows({**asked, **loads, **made})


def fact_sections(run: RunRecord) -> tuple[Facts, ...]:
    """Price of the harness, machine, storage, software and plan, each when it says anything."""
    sections = (
        ("Price of the harness", fact_rows(run.harness)),
        ("Storage", fact_rows(run.storage)),
        ("Machine", fact_rows(run.machine)),
        ("Software", fact_rows(run.software)),
        ("Plan", plan_rows(run)),
    )
    return tuple(Facts(title, rows) for title, rows in sections if rows)


def check_rows(run: RunRecord) -> tuple[tuple[str, str, str], ...]:
    """(check, what it gave, "ok" | "bad" | "") of every recorded check."""
    rows = []
    for name, result in run.checks.items():
        facts = dict(flatten(result)) if isinstance(result, Mapping) else {"": result}
        passed = [value for value in facts.values() if isinstance(value, bool)]
        state = "" if not passed else "ok" if all(passed) else "bad"
        said = "; ".join(
            f"{say_name(key, value)} {format_named(key, value)}".strip() for key, value in facts.items()
        )
        rows.append((printable(name.replace("_", " ")), said or "—", state))
    return tuple(rows)


def subject_rows(run: RunRecord, samples: Sequence[Sample]) -> tuple[tuple[str, str], ...]:
    """What was measured: model, device, storage, sizes, repeats."""
    rows = (
        ("model", f"{printable(run.model_name)} ({run.plan.dtype})"),
        ("device", device_name(run)),
        ("storage", storage_name(run)),
        ("KV bytes per token", f"{run.kv_bytes_per_token:,} B"),
        ("KV chunk", f"{format_tokens(run.chunk_tokens)} tokens"),
        ("tensor parallelism", str(run.plan.tensor_parallel)),
        ("repeats", say_repeats(samples)),
        ("depth", say_depth(samples) or "all layers ran"),
    )
    return rows


def way_rows(run: RunRecord, samples: Sequence[Sample]) -> tuple[tuple[str, str], ...]:
    """How each series was carried out: proven path and cache state, and its settings."""
    rows = []
    for name, info in run.series.items():
        settings = ", ".join(
            f"{say_name(key, value)} {format_named(key, value)}" for key, value in flatten(info.settings)
        )
        ways = (data_path(samples, name), cache_state(run, samples, series=name))
        rows.append(
            (f"{info.arm}: {series_label(run, name)}", "; ".join(w for w in (*ways, settings) if w) or "—")
        )
    return tuple(rows)
