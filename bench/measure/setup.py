"""Everything that follows from a plan before anything is measured; the same in every process of a run."""

from dataclasses import dataclass

from bench.catalog.config import Model, resolve_model
from bench.measure.plan import LoadSpec, Plan, PlanError, require_lengths
from bench.measure.queue_depth import spread_depth
from bench.measure.record import SeriesInfo
from kvio.backends import BackendKind, find_backend
from kvio.chunks import ChunkGeometry
from kvio.layout import KVLayout
from kvio.presets import adapt_preset, find_preset

UNLIMITED_TOKENS = 2**20  # where a model states no maximum: as far as anyone serves
RECOMPUTE = "recompute"
GEMM = "gemm"


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """One way to load, worked out.

    Args:
        name: in the record.
        spec: as asked.
        geometry: of its files; its preset has the threads.
        in_flight: jobs that each thread keeps in flight.
    """

    name: str
    spec: LoadSpec
    geometry: ChunkGeometry
    in_flight: int


@dataclass(frozen=True, slots=True)
class Setup:
    """A plan worked out.

    Args:
        layout: KV of one tensor-parallel rank.
        loads: in the plan's order.
        lengths: prefix lengths as asked; None lets the policy choose.
        most_tokens: the model's maximum.
    """

    plan: Plan
    model: Model
    layout: KVLayout
    loads: tuple[LoadSeries, ...]
    lengths: tuple[int, ...] | None
    most_tokens: int

    @property
    def chunk_tokens(self) -> int:
        """The largest chunk of any load series: the step and the shortest length of the sweep."""
        return max(load.geometry.chunk_tokens for load in self.loads)

    @property
    def series(self) -> dict[str, SeriesInfo]:
        """All series of the run, as the record lists them."""
        plan = self.plan
        recompute = SeriesInfo(
            arm="recompute",
            label=f"recompute ({plan.dtype})",
            settings={
                "attention": plan.attention,
                "prefill_chunk": plan.prefill_chunk,
                "layers": plan.layers,
            },
        )
        loads = {load.name: _describe(load) for load in self.loads}
        return {RECOMPUTE: recompute, **loads, GEMM: SeriesInfo(arm="gemm", label="matrix products alone")}


def work_out(plan: Plan) -> Setup:
    """The setup of a plan.

    Raises:
        CatalogError: the model is unknown or not understood.
        PlanError: the lengths cannot be measured as asked.
        KVIOError: unknown backend or preset, or a geometry that does not work.
    """
    model = resolve_model(plan.model)
    layout = model.geometry.layout(plan.kv_dtype or plan.dtype, plan.tensor_parallel)
    loads = tuple(_load_series(spec, layout) for spec in plan.loads)
    names = [load.name for load in loads]
    if len(set(names)) < len(names):
        raise PlanError(f"the same way to load is asked for twice: {max(names, key=names.count)}")
    most = model.geometry.max_position_embeddings or UNLIMITED_TOKENS
    chunk = max(load.geometry.chunk_tokens for load in loads)
    _require_one_world(plan)
    if plan.suffix_tokens + chunk > most:
        raise PlanError(
            f"a suffix of {plan.suffix_tokens} tokens after a prefix of {chunk} is beyond the model's maximum of {most}"
        )
    if plan.tokens is not None:
        require_lengths(plan.tokens, most=most - plan.suffix_tokens, chunk_tokens=chunk)
    return Setup(plan, model, layout, loads, plan.tokens, most)


def _require_one_world(plan: Plan) -> None:
    """A simulated plan simulates both arms: nothing real can stand beside it."""
    real = [spec.backend for spec in plan.loads if spec.backend != "simulated"]
    if plan.simulation is not None and real:
        raise PlanError(f"the simulated backend cannot be measured beside {real[0]}; run two sweeps")


def _load_series(spec: LoadSpec, layout: KVLayout) -> LoadSeries:
    kind = find_backend(spec.backend)
    _require_known_options(spec, kind)
    preset = find_preset(spec.preset)
    depth = spread_depth(spec, kind, preset.num_threads)
    preset = adapt_preset(
        preset,
        chunk_tokens=spec.chunk_tokens,
        direct=spec.direct,
        num_threads=depth.num_threads,
        request_bytes=spec.request_bytes,
    )
    geometry = ChunkGeometry(layout, preset)
    return LoadSeries(f"{spec.backend}/{spec.preset}", spec, geometry, depth.in_flight)


def _require_known_options(spec: LoadSpec, kind: BackendKind) -> None:
    unknown = sorted(set(spec.options) - set(kind.options))
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise PlanError(f"{spec.backend} has no option {unknown[0]!r}; it has: {known}")


def _describe(load: LoadSeries) -> SeriesInfo:
    preset = load.geometry.preset
    reads_files = find_backend(load.spec.backend).from_storage
    settings = {
        "backend": load.spec.backend,
        "preset": preset.name,
        "stack": f"{preset.stack} {preset.version}",
        "cache_state": ("direct" if load.geometry.direct else "cold") if reads_files else None,
        "chunk_tokens": preset.chunk_tokens,
        "chunk_bytes": load.geometry.padded_bytes,
        "num_threads": preset.num_threads,
        "queue_depth": preset.num_threads * load.in_flight,
        "request_bytes": preset.request_bytes or load.geometry.slot_bytes,
        "open_per_read": preset.open_per_read,
        **load.spec.options,
    }
    return SeriesInfo(arm="load", label=f"{load.spec.backend}, {preset.name} layout", settings=settings)
