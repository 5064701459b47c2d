"""Where a result comes from, as plain rows: checks, plan, machine, storage, software, series."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.record.read_setting import SettingSearch
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import (
    MISSING,
    format_bytes,
    format_fact,
    format_rate,
    format_seconds,
    format_share,
    format_tokens,
    printable,
    round_digits,
)
from bench.report.run_facts import (
    arm_label,
    cache_state,
    data_path,
    device_name,
    flatten,
    format_depth,
    format_model,
    storage_name,
)
from bench.report.text.sentence import format_repeats

# ending of a fact's name -> how its number is said; the first that fits
UNITS: dict[str, Callable[[float], str]] = {
    "bytes_per_s": format_rate,
    "_bytes": format_bytes,
    "_s": format_seconds,
    "seconds": format_seconds,
    "tokens": format_tokens,
    "_error": format_share,
    "_share": format_share,
}
CHECKS = {
    "answer": "right answer",
    "truth": "simulated truth",
    "dtype": "matrix multiplication alone",
    "scaling": "layer-scaling error",
    "null": "price of the harness (null backend)",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    title: str
    rows: tuple[tuple[str, str], ...]


def fact_rows(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Flat (name, value) rows of a facts dict; the unit in a name picks the format."""
    return tuple((format_name(name, value), format_named(name, value)) for name, value in flatten(facts))


def _in_a_line(facts: Mapping[str, Any]) -> str:
    said = {name: value for name, value in facts.items() if value is not None}
    return ", ".join(f"{name} {value}" for name, value in fact_rows(said))


def format_name(name: str, value: object) -> str:
    """A fact's name in words, without the unit that its formatted value says itself."""
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    said = name.removesuffix("_s").removesuffix("_bytes") if numeric and not name.endswith("_per_s") else name
    return printable(said).replace("_", " ").replace(".", " · ")


def format_named(name: str, value: object) -> str:
    """A fact by the unit at the end of its name: `_bytes`, `_per_s`, `_s`, `_tokens`."""
    last = name.rpartition(".")[2]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return format_fact(value)
    if "flops_per_s" in name:
        return f"{round_digits(value / 1e12)} TFLOP/s"
    for ending, form in UNITS.items():
        if last.endswith(ending):
            return form(value)
    return format_fact(value)


def plan_rows(run: RunRecord) -> tuple[tuple[str, str], ...]:
    """The plan as asked; loads one by one; what was left open is not listed."""
    asked = run.plan.model_dump(mode="json", exclude_none=True, exclude={"loads", "simulation"})
    loads = {
        f"load {number}": _in_a_line(load)
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
    """(check, what it gave, "ok" | "bad" | "" when it neither passes nor fails) of every recorded check and search."""
    checks = [
        (_format_check(name), *(_format_rates(result) if name == "dtype" else _format_result(result)))
        for name, result in run.checks.items()
    ]
    return (*checks, *((printable(name), format_search(search), "") for name, search in run.searches.items()))


def format_search(search: SettingSearch) -> str:
    """What a search chose: "4 threads, 16 in flight, 4 MiB requests: 1.21 GB/s (searched 9 settings in 6.02 s; …)"."""
    chosen, own = search.chosen, search.default
    if chosen is None:
        return f"the layout's own threads, depth and request size, not searched: {printable(search.reason)}"
    beside = "none proved faster than these, the layout's own"
    if own is not None and own != chosen:
        beside = f"the layout's own {own}: {format_rate(search.bytes_per_s(own))}"
    tried = f"searched {len(search.trials)} settings in {format_seconds(search.seconds)}"
    return f"{chosen}: {format_rate(search.bytes_per_s(chosen))} ({tried}; {beside})"


def _format_check(name: str) -> str:
    kind, colon, series = name.partition(":")
    said = CHECKS.get(kind, kind.replace("_", " "))
    return printable(f"{said} ({series})" if colon else said)


def _format_rates(result: object) -> tuple[str, str]:
    """What the device multiplies: "bfloat16 0.021 TFLOP/s, float32 0.137 TFLOP/s: the dtype asked for has 15.2 % …"."""
    facts = dict(result) if isinstance(result, Mapping) else {}
    rates, ratio = facts.get("flops_per_s"), facts.get("ratio")
    if not isinstance(rates, Mapping) or not isinstance(ratio, (int, float)):
        return _format_result(result)
    said = ", ".join(f"{name} {format_named('flops_per_s', rate)}" for name, rate in rates.items())
    beside = f": the dtype asked for has {format_share(ratio)} of the other's rate" if len(rates) > 1 else ""
    return f"{printable(said)}{beside}", ""


def _format_result(result: object) -> tuple[str, str]:
    facts = dict(result) if isinstance(result, Mapping) else {"": result}
    passed = facts.pop("passed", None)
    message = printable(str(facts.pop("message", "") or ""))
    parts = [] if passed is None else ["passed" if passed else "FAILED"]
    parts += [f"{name} {value}".strip() for name, value in fact_rows(facts)]
    state = "" if passed is None else "ok" if passed else "bad"
    return "; ".join([*parts, message] if message else parts) or MISSING, state


def subject_rows(run: RunRecord, samples: Sequence[Sample]) -> tuple[tuple[str, str], ...]:
    """What was measured: model, device, storage, sizes, repeats."""
    rows = (
        ("model", format_model(run)),
        ("device", device_name(run)),
        ("storage", storage_name(run)),
        ("KV bytes per token", _format_token_bytes(run)),
        ("KV chunk", f"{format_tokens(run.chunk_tokens)} tokens"),
        ("tensor parallelism", _format_ranks(run)),
        ("repeats", format_repeats(run, samples)),
        ("depth", format_depth(samples) or "all layers ran"),
    )
    return rows


def _format_ranks(run: RunRecord) -> str:
    ranks = run.plan.tensor_parallel
    return "none, one rank" if ranks == 1 else f"{ranks} ranks, each with its shard and its own KV chunks"


def _format_token_bytes(run: RunRecord) -> str:
    ranks, num_bytes = run.plan.tensor_parallel, run.kv_bytes_per_token
    return f"{num_bytes:,} B" + (f", {num_bytes // ranks:,} B on each of {ranks} ranks" if ranks > 1 else "")


def way_rows(run: RunRecord, samples: Sequence[Sample]) -> tuple[tuple[str, str], ...]:
    """How each series was carried out: proven path and cache state, and its settings."""
    rows = []
    for name, info in run.series.items():
        settings = _in_a_line(info.settings)
        ways = (data_path(run, samples, series=name), cache_state(run, samples, series=name))
        rows.append((arm_label(run, name, arm=info.arm), "; ".join(w for w in (*ways, settings) if w) or "—"))
    return tuple(rows)
