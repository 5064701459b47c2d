"""What a result must name: device, storage with its limit, data path, cache state, depth, what is suspect."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.analyse.answer import Analysis, Point, SweetSpot
from bench.measure.record import Notice, RunRecord, Sample
from bench.show.numbers import format_fact, format_rate, printable

# where the runner's fact dicts may say it, first match wins; a dotted key goes into a nested dict
DEVICE_KEYS = (
    "device_name",
    "device.name",
    "gpu.name",
    "gpu_name",
    "cpu_model",
    "cpu.model",
    "cpu_name",
    "device",
)
STORAGE_KEYS = (
    "name",
    "model",
    "device_model",
    "device.model",
    "device_name",
    "filesystem",
    "fs_type",
    "device",
)
VIRTUAL_KEYS = ("in_guest", "virtual_machine", "hypervisor", "virtualization")
LIMIT_KEYS = ("limit_bytes_per_s", "limit.bytes_per_s")


def look_up(facts: Mapping[str, Any], keys: Iterable[str]) -> object:
    """The first value that is there and not empty under one of the dotted `keys`; None when none is."""
    for key in keys:
        value: object = facts
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value not in (None, "") and not isinstance(value, (Mapping, list, tuple)):
            return value
    return None


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
    found = look_up(run.machine, DEVICE_KEYS)
    return format_fact(found) if found is not None else run.plan.device


def storage_name(run: RunRecord) -> str:
    """The storage, and the read limit that was set on it."""
    found = look_up(run.storage, STORAGE_KEYS)
    name = format_fact(found) if found is not None else "storage without a name"
    limit = look_up(run.storage, LIMIT_KEYS) or run.plan.limit_bytes_per_s
    return f"{name} limited to {format_rate(limit)}" if isinstance(limit, (int, float)) else name


def in_virtual_machine(run: RunRecord) -> bool:
    """True when the facts say that a hypervisor lies below."""
    said = [look_up(facts, VIRTUAL_KEYS) for facts in (run.storage, run.machine)]
    return any(str(found).lower() not in {"none", "no", "false"} for found in said)


def series_label(run: RunRecord, series: str) -> str:
    """The series as a person calls it."""
    known = run.series.get(series)
    return printable(known.label if known is not None else series)


def of_series(samples: Sequence[Sample], series: str) -> list[Sample]:
    """The samples of one series."""
    return [sample for sample in samples if sample.case.series == series]


def load_series(run: RunRecord, analysis: Analysis) -> tuple[str, ...]:
    """Every load or hybrid series with a point or a spot: planned ones first, in the plan's order."""
    found = {point.series for point in analysis.points} | {spot.series for spot in analysis.spots}
    planned = [name for name, info in run.series.items() if info.arm in {"load", "hybrid"}]
    return tuple([*planned, *sorted(found - set(planned))])


def recompute_series(run: RunRecord, samples: Sequence[Sample]) -> tuple[str, ...]:
    """Every recompute series that was measured or planned."""
    planned = [name for name, info in run.series.items() if info.arm == "recompute"]
    measured = sorted({s.case.series for s in samples if s.case.arm == "recompute"} - set(planned))
    return tuple([*planned, *measured])


def _seen(values: Iterable[str | None]) -> str:
    return " and ".join(sorted({value for value in values if value is not None}))


def data_path(samples: Sequence[Sample], series: str) -> str | None:
    """The proven way the bytes of a series took; several are joined, None when none was seen."""
    return _seen(sample.outcome.data_path for sample in of_series(samples, series)) or None


def cache_state(run: RunRecord, samples: Sequence[Sample], *, series: str) -> str | None:
    """The proven page-cache state of a series; in a virtual machine the host's cache is out of sight."""
    states = {sample.outcome.cache_state for sample in of_series(samples, series)}
    guest = in_virtual_machine(run)
    return (
        _seen(f"{state} in guest" if guest and state in {"cold", "direct"} else state for state in states)
        or None
    )


def backend_name(run: RunRecord, series: str) -> str | None:
    """The backend that read a series."""
    info = run.series.get(series)
    found = look_up(info.settings, ("backend",)) if info is not None else None
    return None if found is None else str(found)


def scaled_depth(samples: Sequence[Sample]) -> tuple[int, int] | None:
    """(measured layers, total layers) when the recompute arm was scaled from a shallower stack."""
    depths = [
        (sample.outcome.measured_layers, sample.outcome.total_layers)
        for sample in samples
        if sample.case.arm == "recompute"
    ]
    scaled = [
        (some, every) for some, every in depths if some is not None and every is not None and some < every
    ]
    return min(scaled) if scaled else None


def say_depth(samples: Sequence[Sample]) -> str | None:
    """ "recompute scaled from 4 of 36 layers", or None when the whole model ran."""
    depth = scaled_depth(samples)
    return None if depth is None else f"recompute scaled from {depth[0]} of {depth[1]} layers"


def say_repeats(samples: Sequence[Sample]) -> str:
    """Rounds and samples that were really measured."""
    rounds = len({sample.round for sample in samples})
    repeats = max((sample.sample for sample in samples), default=-1) + 1
    return f"{rounds} round{'s' * (rounds != 1)} × {repeats} sample{'s' * (repeats != 1)}"


def points_of(analysis: Analysis, series: str) -> list[Point]:
    """The points of one load series by length."""
    return sorted((p for p in analysis.points if p.series == series), key=lambda point: point.prefix_tokens)


def spots_of(analysis: Analysis, series: str) -> list[SweetSpot]:
    """The spots of one load series: C* before P*, the median before the tails."""
    found = [spot for spot in analysis.spots if spot.series == series]
    return sorted(found, key=lambda spot: (spot.kind != "whole", spot.statistic))


def main_spot(run: RunRecord, analysis: Analysis) -> SweetSpot | None:
    """The answer to say first: C* of the median for the first load series, else whatever there is."""
    ordered = [spot for series in load_series(run, analysis) for spot in spots_of(analysis, series)]
    whole = [spot for spot in ordered if spot.kind == "whole" and spot.statistic == "p50"]
    return next(iter([*whole, *ordered]), None)


def suspect_codes(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str
) -> tuple[str, ...]:
    """Codes of all that makes the answer for one series suspect, each once, in order of appearance.

    Notices that the run lists as harmless (`suspect=False`) are left out.
    """
    harmless = {notice.code for notice in run.notices if not notice.suspect}
    codes = [notice.code for notice in run.notices]
    codes += analysis.notices
    codes += [code for spot in analysis.spots if spot.series == series for code in spot.notices]
    codes += [code for point in analysis.points if point.series == series for code in point.notices]
    arms = [s for s in samples if s.case.series == series or s.case.arm == "recompute"]
    codes += [code for sample in arms for code in sample.outcome.notices]
    return tuple(code for code in dict.fromkeys(codes) if code not in harmless)


def notices_by_code(run: RunRecord) -> dict[str, Notice]:
    """The run's notices by code; the first message of a code stands."""
    found: dict[str, Notice] = {}
    for notice in run.notices:
        found.setdefault(notice.code, notice)
    return found
