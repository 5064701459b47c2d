"""Search threads, queue depth and request size of the series of layout best: which series, which settings, the record.

A search may try every value that the user left open, within what memory allows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.arms.file_cursor import CursorPosition
from bench.measure.processes.messages import JobFailed, SearchJob, SettingFound
from bench.measure.rounds import Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import LoadSeries, ResolvedPlan, name_hybrid, resolve_plan
from bench.measure.tuning.tuning_rule import TuningGrid
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.record.progress import Observer
from bench.record.read_setting import ReadSetting, SettingSearch, settle
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Sample
from kvio.backends import BackendKind, find_backend
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset
from kvio.store.chunk_store import ChunkStore

MIN_BYTES = 16_000_000  # of one read: shorter reads measure the opening of files, not the drive
THREADS = (1, 2, 4, 8, 16, 32, 64)
IN_FLIGHT = (1, 2, 4, 8, 16, 32)
REQUEST_BYTES = tuple(2**power for power in range(18, 25))  # 256 KiB to 16 MiB
MAX_IN_FLIGHT = 256  # over all threads
BUFFER_BYTES = 512 * 2**20  # of all threads together
BUFFER_SHARE = 0.02  # of the available memory, for several settings are kept ready at once


def make_grid(load: LoadSeries, *, available_bytes: int) -> TuningGrid:
    """The settings to search for `load`; where everything is fixed, the default alone."""
    kind = find_backend(load.spec.backend)
    preset = load.geometry.preset
    default = ReadSetting(
        num_threads=preset.num_threads,
        in_flight=load.in_flight,
        request_bytes=preset.request_bytes or load.geometry.slot_bytes,
    )
    axes = _axes(load, kind)
    free = {name for axis in axes for name in axis}
    sizes = _request_sizes(load) if "request_bytes" in free else {default.request_bytes: load.geometry}
    room_bytes = min(BUFFER_BYTES, int(BUFFER_SHARE * available_bytes))
    allowed = {
        setting
        for num_threads in (THREADS if "num_threads" in free else (default.num_threads,))
        for in_flight in (IN_FLIGHT if "in_flight" in free else (default.in_flight,))
        for request_bytes, geometry in sizes.items()
        if _fits(
            setting := ReadSetting(num_threads=num_threads, in_flight=in_flight, request_bytes=request_bytes),
            load,
            kind=kind,
            room_slots=room_bytes // geometry.slot_bytes,
        )
    }
    return TuningGrid(default, frozenset(allowed | {default}), axes)


def _axes(load: LoadSeries, kind: BackendKind) -> tuple[tuple[str, ...], ...]:
    """What the user left open; a depth that was asked for is kept while threads and reads of each vary."""
    spec = load.spec
    axes: list[tuple[str, ...]] = []
    several = kind.max_in_flight > 1
    if spec.num_threads is None and spec.queue_depth is None:
        axes.append(("num_threads",))
    if several and spec.queue_depth is None:
        axes.append(("in_flight",))
    if several and spec.queue_depth is not None and spec.num_threads is None:
        axes.append(("num_threads", "in_flight"))
    if spec.request_bytes is None and kind.from_storage:  # copies from memory have no request size
        axes.append(("request_bytes",))
    return tuple(axes)


def _request_sizes(load: LoadSeries) -> dict[int, ChunkGeometry]:
    """Request sizes that differ in the reads of a chunk, each with its geometry; of those alike the layout's own."""
    preset, layout = load.geometry.preset, load.geometry.layout
    own = preset.request_bytes or load.geometry.slot_bytes
    found: dict[object, tuple[int, ChunkGeometry]] = {}
    for request_bytes in (own, *REQUEST_BYTES):
        geometry = ChunkGeometry(layout, adapt_preset(preset, request_bytes=request_bytes))
        tokens = geometry.chunk_tokens
        found.setdefault(
            (geometry.units_for(0, tokens), geometry.reads_for(0, tokens)), (request_bytes, geometry)
        )
    return dict(found.values())


def _fits(setting: ReadSetting, load: LoadSeries, *, kind: BackendKind, room_slots: int) -> bool:
    slots = setting.num_threads * (setting.in_flight + 1)  # one is copied from meanwhile
    asked = load.spec.queue_depth
    return (
        setting.in_flight <= kind.max_in_flight
        and setting.queue_depth <= max(MAX_IN_FLIGHT, asked or 0)
        and slots <= room_slots
        and (asked is None or setting.queue_depth == asked)
    )


SEARCHED = "best"  # the layout whose values are ours to choose
BUDGET_SHARE = 0.08  # for all searches together
MAX_S = 15.0
MIN_S = 3.0  # for one search; a shorter search cannot rule chance out


@dataclass(frozen=True, slots=True)
class PlannedSearch:
    """What is to be searched."""

    series: tuple[str, ...] = ()  # load series that get a search
    limit_s: float = 0.0  # seconds for all of them together
    # by series, what needs none, and why; or what an earlier part of a resumed run found
    known: Mapping[str, SettingSearch] = field(default_factory=dict)


def plan_search(run: RunRecord, setup: ResolvedPlan, samples: Sequence[Sample]) -> PlannedSearch:
    """Which series are searched: once in a run, before its first sample."""
    if samples or run.searches:
        return PlannedSearch(known=run.searches)
    left_out = {name for name, info in run.series.items() if info.skipped is not None}
    loads = [load for load in setup.loads if load.spec.preset == SEARCHED and load.name not in left_out]
    reasons = {load.name: reason for load in loads if (reason := _why_none(load, setup.plan)) is not None}
    wanted = [load.name for load in loads if load.name not in reasons]
    limit_s = min(MAX_S, BUDGET_SHARE * setup.plan.budget_s)
    if wanted and limit_s < MIN_S * len(wanted):
        reasons |= dict.fromkeys(wanted, _format_no_time(setup.plan.budget_s, len(wanted)))
        wanted = []
    known = {name: SettingSearch(reason=reason) for name, reason in reasons.items()}
    return PlannedSearch(tuple(wanted), limit_s if wanted else 0.0, known)


def _format_no_time(budget_s: float, num_series: int) -> str:
    """Why there is no time for so many searches; a budget is suggested only where it would help."""
    if MIN_S * num_series > MAX_S:
        return f"{num_series} series leave less than {MIN_S:g} s for each; use fewer, or pass --threads and --request"
    needed_s = math.ceil(MIN_S * num_series / BUDGET_SHARE)
    return f"tuning needs a budget of at least {needed_s} s (have {budget_s:g} s)"


def _why_none(load: LoadSeries, plan: Plan) -> str | None:
    """Why there is nothing to search for this series; None where there is."""
    kind, spec = find_backend(load.spec.backend), load.spec
    several = kind.max_in_flight > 1
    if not kind.moves_bytes:
        return f"{spec.backend} reads nothing"
    if plan.limit_bytes_per_s is not None:
        return "under a read limit, the limit decides the rate"
    if plan.tensor_parallel > 1:
        return "several ranks read at once, and the best setting of one is not the best of all"
    depth_open = spec.queue_depth is None and (several or spec.num_threads is None)
    threads_open = several and spec.num_threads is None
    request_open = spec.request_bytes is None and kind.from_storage
    return (
        None if depth_open or threads_open or request_open else f"every setting of {spec.backend} was given"
    )


def find_settings(
    search: PlannedSearch,
    rounds: Rounds,
    session: MeasurementSession,
    *,
    observer: Observer,
) -> RunRecord:
    """Carry the searches out; the header with what they chose, or why there was none.

    A search that fails leaves the layout's own values, with a notice.
    """
    run = rounds.run
    found, broken = dict(search.known), list[str]()
    measured = {name for _, name in rounds.series}
    wanted = [name for name in search.series if name in measured]  # the others were dropped meanwhile
    longest = rounds.allowed[-1]
    if wanted and run.kv_bytes_per_token * longest < MIN_BYTES:
        megabytes = run.kv_bytes_per_token * longest / 1e6
        reason = f"{longest} tokens are {megabytes:.1f} MB, too few to compare settings"
        found |= {name: SettingSearch(reason=reason) for name in wanted}
    elif wanted:
        observer.on_phase("searching threads, queue depth and request size for this drive")
        carried_out, broken = _carry_out(wanted, rounds, session, limit_s=search.limit_s)
        found |= carried_out
    notices = (Notice(kind="search_failed", series=name, detail=found[name].reason) for name in broken)
    return note_searches(run.model_copy(update={"searches": found, "notices": (*run.notices, *notices)}))


def _carry_out(
    series: Sequence[str],
    rounds: Rounds,
    session: MeasurementSession,
    *,
    limit_s: float,
) -> tuple[dict[str, SettingSearch], list[str]]:
    """What was found for each series, and those whose search failed."""
    job = SearchJob(
        plan=rounds.run.plan,
        store_dirs={name: rounds.store_dirs[name] for name in series},
        most_tokens=rounds.allowed[-1],
        deadline_s=min(session.clock.now_s() + limit_s, rounds.deadline_s),
    )
    found: dict[str, SettingSearch] = {}
    broken: list[str] = []
    left = "the search was not over in time"
    for message in session.source.run(job):
        match message:
            case SettingFound(name, setting, broke, taken):
                rounds.taken.update(taken)
                found[name] = setting
                broken += [name] if broke else []
            case JobFailed(reason):
                left = f"the search failed: {reason}"
                broken += [name for name in series if name not in found]
    unfinished = {name: SettingSearch(reason=left) for name in series if name not in found}
    for directory in {rounds.store_dirs[name] for name in unfinished}:
        rounds.taken[directory] = _suppose_all(directory, rounds.taken.get(directory, CursorPosition()))
    return found | unfinished, broken


def _suppose_all(directory: Path, known: CursorPosition) -> CursorPosition:
    """The position after every file was read once: all that a search that failed may have read."""
    store = ChunkStore.open(directory)
    return CursorPosition(max(known.chunks, store.num_chunks), max(known.states, store.num_states))


def note_searches(run: RunRecord) -> RunRecord:
    """The header with the chosen settings in the settings and labels of their series."""
    settled = resolve_plan(settle(run.plan, run.searches)).series
    series = dict(run.series)
    for name, search in run.searches.items():
        if search.chosen is not None:
            for reader in (name, name_hybrid(name)):
                if reader in series:
                    series[reader] = _format_chosen(series[reader], settled[reader], search.chosen.brief)
    return run.model_copy(update={"series": series})


def _format_chosen(info: SeriesInfo, settled: SeriesInfo, setting: str) -> SeriesInfo:
    return info.model_copy(
        update={
            "label": f"{settled.label} ({setting})",
            "settings": {**info.settings, **settled.settings},
        }
    )
