"""The settings that a search may try for one load series: all that nobody fixed, within what memory allows."""

from bench.measure.setup import LoadSeries
from bench.record.progress import SearchSpace
from bench.record.read_setting import Setting
from kvio.backends import BackendKind, find_backend
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset

LEAST_BYTES = 16_000_000  # of one read: shorter ones tell of opening files, not of the drive
THREADS = (1, 2, 4, 8, 16, 32, 64)
IN_FLIGHT = (1, 2, 4, 8, 16, 32)
REQUEST_BYTES = tuple(2**power for power in range(18, 25))  # 256 KiB to 16 MiB
MOST_IN_FLIGHT = 256  # over all threads
BUFFER_BYTES = 512 * 2**20  # of all threads together
BUFFER_SHARE = 0.02  # of the available memory, for several settings are kept ready at once


def make_space(load: LoadSeries, *, available_bytes: int) -> SearchSpace:
    """The settings to search for `load`; where everything is fixed, the default alone."""
    kind = find_backend(load.spec.backend)
    preset = load.geometry.preset
    default = Setting(
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
            setting := Setting(num_threads=num_threads, in_flight=in_flight, request_bytes=request_bytes),
            load,
            kind=kind,
            room_slots=room_bytes // geometry.slot_bytes,
        )
    }
    return SearchSpace(default, frozenset(allowed | {default}), axes)


def _axes(load: LoadSeries, kind: BackendKind) -> tuple[tuple[str, ...], ...]:
    """What the user left open; a depth that was asked for is kept while threads and reads of each vary."""
    spec = load.spec
    axes: list[tuple[str, ...]] = []
    several = kind.most_in_flight > 1
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


def _fits(setting: Setting, load: LoadSeries, *, kind: BackendKind, room_slots: int) -> bool:
    slots = setting.num_threads * (setting.in_flight + 1)  # one is copied from meanwhile
    asked = load.spec.queue_depth
    return (
        setting.in_flight <= kind.most_in_flight
        and setting.queue_depth <= max(MOST_IN_FLIGHT, asked or 0)
        and slots <= room_slots
        and (asked is None or setting.queue_depth == asked)
    )
