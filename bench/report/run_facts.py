"""What a result must name: device, storage with its limit, data path, cache state, depth, what is suspect."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.estimate.results import Analysis, Point, SweetSpot
from bench.estimate.tiers import MEMORY_BACKENDS
from bench.estimate.valid_samples import COLD, samples_that_count
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import format_fact, format_rate, printable

# keys of the runner's fact dicts, first match wins; a dotted key goes into a nested dict or list
CPU_KEYS = ("device_name", "cpu_model")
GPU_KEYS = ("device_name", "gpus.0.name", "cpu_model")
STORAGE_KEYS = ("name", "fs_type")
GUEST_KEYS = ("in_guest",)
LIMIT_KEYS = ("limit_bytes_per_s",)


def look_up(facts: Mapping[str, Any], keys: Iterable[str]) -> object:
    """The first value that is there and not empty under one of the dotted `keys`; None when none is."""
    for key in keys:
        value: object = facts
        for part in key.split("."):
            value = _step(value, part)
        if value not in (None, "") and not isinstance(value, (Mapping, list, tuple)):
            return value
    return None


def _step(value: object, part: str) -> object:
    if isinstance(value, Mapping):
        return value.get(part)
    inside = isinstance(value, (list, tuple)) and part.isdigit() and int(part) < len(value)
    return value[int(part)] if inside else None  # type: ignore[index]


def flatten(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """(dotted name, value) of a nested facts dict, in its order."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
            yield from flatten({str(number): item for number, item in enumerate(value)}, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def device_name(run: RunRecord) -> str:
    """The device that computes, as the machine calls it."""
    found = look_up(run.machine, CPU_KEYS if run.plan.device == "cpu" else GPU_KEYS)
    return format_fact(found) if found is not None else run.plan.device


def format_model(run: RunRecord) -> str:
    """The model with its dtype, and over how many ranks it was divided: "Qwen3-8B (bfloat16, 2 ranks)"."""
    ranks = run.plan.tensor_parallel
    divided = f", tensor parallel over {ranks} ranks" if ranks > 1 else ""
    return f"{printable(run.model_name)} ({run.plan.dtype}{divided})"


def storage_name(run: RunRecord, series: str | None = None) -> str:
    """The storage, and the read limit set on it; of a series that reads from a server or memory, that."""
    settings = run.series[series].settings if series in run.series else {}
    if settings.get("backend") in MEMORY_BACKENDS:
        return "host memory"
    found = look_up(settings, ("server",)) or look_up(run.storage, STORAGE_KEYS)
    name = format_fact(found) if found is not None else "storage without a name"
    limit = look_up(run.storage, LIMIT_KEYS) or run.plan.limit_bytes_per_s
    return f"{name} limited to {_format_limit(limit)}" if isinstance(limit, (int, float)) else name


def _format_limit(bytes_per_s: float) -> str:
    """The limit in the unit in which it is usually set."""
    return format_rate(bytes_per_s) if bytes_per_s >= 1e9 else f"{bytes_per_s / 1e6:g} MB/s"


def in_virtual_machine(run: RunRecord) -> bool:
    """True when the facts say that a hypervisor lies below."""
    return any(look_up(facts, GUEST_KEYS) is True for facts in (run.storage, run.machine))


def series_label(run: RunRecord, series: str) -> str:
    """The series as a person calls it."""
    known = run.series.get(series)
    return printable(known.label if known is not None else series)


def arm_label(run: RunRecord, series: str, *, arm: str) -> str:
    """The series with its arm before it, once: "load: posix, best layout", "recompute (bfloat16)"."""
    label = series_label(run, series)
    return label if label.startswith(arm) else f"{arm}: {label}"


def load_series(run: RunRecord, analysis: Analysis) -> tuple[str, ...]:
    """Every load series with a point or a spot: planned ones first, in the plan's order."""
    found = {point.series for point in analysis.points} | {spot.series for spot in analysis.spots}
    planned = [name for name, info in run.series.items() if info.arm == "load"]
    return tuple([*planned, *sorted(found - set(planned))])


def recompute_series(run: RunRecord, samples: Sequence[Sample]) -> tuple[str, ...]:
    """Every recompute series that was measured or planned."""
    planned = [name for name, info in run.series.items() if info.arm == "recompute"]
    measured = sorted({s.case.series for s in samples if s.case.arm == "recompute"} - set(planned))
    return tuple([*planned, *measured])


def _seen(values: Iterable[str | None]) -> str:
    return printable(" and ".join(sorted({value for value in values if value is not None})))


def data_path(run: RunRecord, samples: Sequence[Sample], *, series: str) -> str | None:
    """The proven way the bytes of a series took; several are joined, None when none was seen."""
    return _seen(sample.outcome.data_path for sample in samples_that_count(run, samples, series)) or None


def cache_state(run: RunRecord, samples: Sequence[Sample], *, series: str) -> str | None:
    """The proven page-cache state of a series; in a virtual machine the host's cache is out of sight."""
    states = {sample.outcome.cache_state for sample in samples_that_count(run, samples, series)}
    return format_state(_seen(states), guest=in_virtual_machine(run)) or None


def format_state(joined: str, *, guest: bool) -> str:
    """Proven cache states, joined by " and "; of a guest, cold and direct hold below no hypervisor."""
    states = joined.split(" and ")
    return " and ".join(f"{state} in guest" if guest and state in COLD else state for state in states)


def format_cache(run: RunRecord, samples: Sequence[Sample], *, series: str) -> str | None:
    """The page-cache state in words; None where no page cache lies on the way."""
    state = cache_state(run, samples, series=series)
    if state is None:
        return None
    if series in run.series and "server" in run.series[series].settings:
        return "the server's caches unknown"
    return state.replace("direct", "page cache bypassed") if "direct" in state else f"{state} page cache"


def backend_name(run: RunRecord, series: str) -> str | None:
    """The backend that read a series, and the layout of its files: "posix (lmcache layout)"."""
    settings = run.series[series].settings if series in run.series else {}
    backend, preset = look_up(settings, ("backend",)), look_up(settings, ("preset",))
    if backend is None:
        return None
    return (
        format_fact(backend) if preset is None else f"{format_fact(backend)} ({format_fact(preset)} layout)"
    )


def depths_of(samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """(layers that ran, layers of the model), each once, fewest first; empty where unknown."""
    return _depths_of(samples, {"recompute", "load"})


def _depths_of(samples: Sequence[Sample], arms: Collection[str]) -> list[tuple[int, int]]:
    outcomes = [sample.outcome for sample in samples if sample.case.arm in arms]
    return sorted(
        {
            (outcome.measured_layers, outcome.total_layers)
            for outcome in outcomes
            if outcome.measured_layers is not None and outcome.total_layers is not None
        }
    )


def format_depth(samples: Sequence[Sample]) -> str | None:
    """ "recompute scaled from 4 of 36 layers", or None when the whole model ran; every depth that was sampled.

    The first-token step of each load is scaled as recompute is, and named too.
    """
    depths = depths_of(samples)
    scaled = [(some, every) for some, every in depths if some < every]
    if not scaled:
        return None
    steps = any(some < every for some, every in _depths_of(samples, {"load"}))
    what = "recompute and first-token steps" if steps else "recompute"
    said = f"{what} scaled from {' or '.join(str(some) for some, _ in scaled)} of {scaled[0][1]} layers"
    return said if len(scaled) == len(depths) else f"{said} in some samples, of all layers in others"


def points_of(analysis: Analysis, series: str) -> list[Point]:
    """The points of one load series by length."""
    return sorted((p for p in analysis.points if p.series == series), key=lambda point: point.prefix_tokens)


def spots_of(analysis: Analysis, series: str) -> list[SweetSpot]:
    """The spots of one load series: C* before P*, the median before the tails."""
    found = [spot for spot in analysis.spots if spot.series == series]
    return sorted(found, key=lambda spot: (spot.kind != "whole", spot.statistic))
