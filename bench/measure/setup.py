"""A plan resolved before anything is measured: model, KV layout, load series, threads and queue depths.

Every process of a run resolves it alike.  Backends that cannot be used here are skipped with a notice.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.catalog.models.resolve import Model, resolve_model
from bench.record.notices import BACKEND_UNAVAILABLE, Notice
from bench.record.plan import LoadSpec, Plan, PlanError, require_lengths
from bench.record.run import SeriesInfo
from kvio.backends import BackendKind, find_backend
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import KVLayout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.protocol import Unavailable, most_reads

NEEDS_GPU = Unavailable("it reads into a GPU, and the device asked for is the CPU", "--device cuda")


def drop_unavailable_backends(plan: Plan, data_dir: Path) -> tuple[Plan, tuple[Notice, ...]]:
    """The plan with the loads that work here, and a notice for each backend that does not.

    Args:
        plan: its backends are known.
        data_dir: where the KV files will lie; nothing is tried where there is no such directory.

    Raises:
        PlanError: none of them works.
    """
    missing = _probe(plan, data_dir) if data_dir.is_dir() else {}
    notices = tuple(
        Notice(kind=BACKEND_UNAVAILABLE, series=name, detail=f"unavailable: {why.reason}; try: {why.remedy}")
        for name, why in missing.items()
    )
    left = tuple(load for load in plan.loads if load.backend not in missing)
    if not left:
        raise PlanError("nothing is left to measure: " + "; ".join(notice.text for notice in notices))
    return plan.model_copy(update={"loads": left}), notices


def _probe(plan: Plan, data_dir: Path) -> dict[str, Unavailable]:
    """Why a backend cannot be used, by name; only of those that cannot."""
    options = {load.backend: load.options for load in plan.loads}
    found = {
        name: NEEDS_GPU
        if plan.device == "cpu" and find_backend(name).needs_gpu
        else find_backend(name).probe(data_dir, chosen)
        for name, chosen in options.items()
    }
    return {name: why for name, why in found.items() if why is not None}


USUAL_IN_FLIGHT = 4  # per thread: four threads then keep sixteen, from where on drives gain little


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """`num_threads` reading threads with `in_flight` jobs each."""

    num_threads: int
    in_flight: int

    @property
    def queue_depth(self) -> int:
        """Jobs in flight in all."""
        return self.num_threads * self.in_flight


def spread_depth(spec: LoadSpec, kind: BackendKind, num_threads: int, *, in_flight: int = 1) -> QueueDepth:
    """The threads and jobs that give the queue depth asked for.

    Args:
        spec: what was asked; its threads, if given, are kept.
        kind: its backend: where a thread reads one job at a time, the threads are the depth.
        in_flight: of the layout preset, kept where `spec` asks for no depth; 1 leaves it to us.
        num_threads: of the layout preset, used where `spec` asks for none; fewer, if they do not divide the depth.

    Raises:
        PlanError: the threads asked for do not go with the depth, or it is more than the backend can keep.
    """
    asked, depth = spec.num_threads, spec.queue_depth
    if depth is None:
        usual = in_flight if in_flight > 1 else USUAL_IN_FLIGHT
        return QueueDepth(asked or num_threads, min(kind.max_in_flight, usual))
    if kind.max_in_flight == 1:
        if asked not in {None, depth}:
            raise PlanError(
                f"{spec.backend} reads one chunk at a time in each thread: {asked} threads cannot keep a queue "
                f"depth of {depth}; pass one of --threads and --queue-depth"
            )
        return QueueDepth(depth, 1)
    found = spread_evenly(depth, asked, most_threads=num_threads)
    if found.in_flight > kind.max_in_flight:
        raise PlanError(
            f"{spec.backend} keeps {kind.max_in_flight} {'reads' if kind.reads_at_once is None else 'jobs'} in flight in "
            f"each thread at most; a queue depth of {depth} needs --threads {-(-depth // kind.max_in_flight)} or more"
        )
    return found


def spread_evenly(depth: int, asked: int | None, *, most_threads: int) -> QueueDepth:
    """The depth over the threads asked for, else over as many, up to `most_threads`, as divide it.

    Raises:
        PlanError: they do not divide it, or one of the two is not positive.
    """
    if depth < 1 or (asked is not None and asked < 1):
        raise PlanError(
            f"a queue depth of {depth} over {asked or 'the'} threads is impossible; try 1 or more of both"
        )
    threads = asked or max(n for n in range(1, most_threads + 1) if depth % n == 0)
    if depth % threads:
        raise PlanError(f"a queue depth of {depth} cannot be spread over {threads} threads evenly")
    return QueueDepth(threads, depth // threads)


UNLIMITED_TOKENS = 2**20  # where a model states no maximum: as far as anyone serves
RECOMPUTE = "recompute"
HYBRID = "hybrid/"  # before the name of a load series
GEMM = "gemm"


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """One load series: its geometry and jobs in flight."""

    name: str  # in the record
    spec: LoadSpec  # as asked
    geometry: ChunkGeometry  # of its files; its preset has the threads
    in_flight: int  # jobs that each thread keeps in flight

    @property
    def reads_files(self) -> bool:
        """True when it reads files of this machine: their cache state was asked for, and has to be proved."""
        kind = find_backend(self.spec.backend)
        return kind.from_storage and not kind.on_server


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """A plan with everything that follows from it."""

    plan: Plan
    model: Model
    layout: KVLayout  # KV of one tensor-parallel rank
    loads: tuple[LoadSeries, ...]  # in the plan's order
    lengths: tuple[int, ...] | None  # prefix lengths as asked; None lets the policy choose
    most_tokens: int  # the model's maximum

    @property
    def chunk_tokens(self) -> int:
        """The largest chunk of any load series: the step and the shortest length of the sweep."""
        return max(load.geometry.chunk_tokens for load in self.loads)

    @property
    def series(self) -> dict[str, SeriesInfo]:
        """All series of the run, as the record lists them; sizes and threads of a load are those of one rank."""
        plan = self.plan
        recompute = SeriesInfo(
            arm="recompute",
            label=f"recompute ({plan.dtype})",
            settings={
                "attention": plan.attention,
                "prefill_chunk": plan.prefill_chunk,
                "layers": plan.layers,
                **_ranks(plan),
            },
        )
        loads = {load.name: _describe(load, plan) for load in self.loads}
        hybrids = {name_hybrid(load.name): _describe_hybrid(load, plan) for load in self.loads if plan.hybrid}
        gemm = SeriesInfo(arm="gemm", label="matrix products alone", settings=_ranks(plan))
        return {RECOMPUTE: recompute, **loads, **hybrids, GEMM: gemm}

    def bytes_at(self, num_tokens: int) -> int:
        """Bytes that all ranks together keep for a prefix: heads that several ranks need count for each."""
        return self.layout.bytes_at(num_tokens) * self.plan.tensor_parallel

    def load_bytes(self, prefix_tokens: int, suffix_tokens: int) -> int:
        """Bytes that a load of the prefix moves; with a suffix, those of the suffix and of the states at its end.

        The states at the prefix's end, which are there, do not give those; nor does a window that moves on.
        """
        if not suffix_tokens:
            return self.bytes_at(prefix_tokens)
        last = prefix_tokens + suffix_tokens
        kept = self.loads[0].geometry.payload_bytes_between(prefix_tokens, last)
        return (kept + self.layout.state_bytes) * self.plan.tensor_parallel

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more token adds on all ranks together, while no window is full."""
        return self.layout.bytes_per_token * self.plan.tensor_parallel


def resolve_plan(plan: Plan) -> ResolvedPlan:
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
        raise PlanError(
            f"load series {max(names, key=names.count)} is given twice; name each backend and layout once"
        )
    most = model.geometry.max_position_embeddings or UNLIMITED_TOKENS
    longest = max(loads, key=lambda load: load.geometry.chunk_tokens)
    chunk = longest.geometry.chunk_tokens
    _require_one_world(plan)
    _require_ranks(plan, model)
    if plan.suffix_tokens + chunk > most:
        raise PlanError(
            f"a suffix of {plan.suffix_tokens} tokens after a prefix of {chunk} is beyond the model's maximum of {most}"
        )
    if plan.suffix_tokens and plan.hybrid:
        raise PlanError(
            "--hybrid measures whole prefixes, --suffix-tokens what follows one; use one of the two"
        )
    if plan.tokens is not None:
        require_lengths(
            plan.tokens, most=most - plan.suffix_tokens, chunk_tokens=chunk, layout=longest.spec.preset
        )
    return ResolvedPlan(plan, model, layout, loads, plan.tokens, most)


def name_hybrid(load_series: str) -> str:
    """The hybrid series that loads as `load_series` does."""
    return f"{HYBRID}{load_series}"


def load_of(series: str) -> str:
    """The load series that a load or hybrid series reads as."""
    return series.removeprefix(HYBRID)


def _require_one_world(plan: Plan) -> None:
    """A simulated plan simulates both arms and no real one; a read limit needs a backend that reads files."""
    kinds = {spec.backend: find_backend(spec.backend) for spec in plan.loads}
    if plan.limit_bytes_per_s is not None and plan.simulation is None:
        servers = [name for name, kind in kinds.items() if kind.on_server]
        memory = [name for name, kind in kinds.items() if not kind.from_storage]
        # memory may be measured with a limited drive: it is the tier above
        if servers or len(memory) == len(kinds):
            raise PlanError(
                f"--limit slows reads of files, and {(servers or memory)[0]} reads none; use one of the two"
            )
    real = [spec.backend for spec in plan.loads if spec.backend != "simulated"]
    if plan.simulation is not None and real:
        raise PlanError(f"the simulated backend cannot be measured with {real[0]}; run two sweeps")


def _require_ranks(plan: Plan, model: Model) -> None:
    """Each rank has a device of its own; that it has whole heads its layout has checked."""
    ranks = plan.tensor_parallel
    if ranks == 1:
        return
    if plan.hybrid:
        raise PlanError(
            "the hybrid arm runs on one rank only: several ranks would meet at different tokens; "
            "use one of --hybrid and --tp"
        )
    on_servers = [load.backend for load in plan.loads if find_backend(load.backend).on_server]
    if on_servers:
        raise PlanError(
            f"{on_servers[0]} reads for one rank only; drop --tp, or use a backend that reads files"
        )
    if plan.simulation is not None:
        raise PlanError("a simulated sweep has no ranks; drop --tp, or use another --backend")
    if plan.device.startswith("cuda:"):
        raise PlanError(f"--device {plan.device} is one GPU, {ranks} ranks need as many; try --device cuda")


def _ranks(plan: Plan) -> dict[str, int]:
    """The setting of a series that several ranks measure together; nothing for one."""
    return {} if plan.tensor_parallel == 1 else {"tensor_parallel": plan.tensor_parallel}


def _load_series(spec: LoadSpec, layout: KVLayout) -> LoadSeries:
    kind = find_backend(spec.backend)
    _require_known_options(spec, kind)
    preset = find_preset(spec.preset)
    depth = spread_depth(spec, kind, preset.num_threads, in_flight=preset.queue_depth)
    preset = adapt_preset(
        preset,
        chunk_tokens=spec.chunk_tokens,
        direct=spec.direct,
        num_threads=depth.num_threads,
        request_bytes=spec.request_bytes,
    )
    geometry = ChunkGeometry(layout, preset)
    return LoadSeries(spec.series, spec, geometry, depth.in_flight)


def _require_known_options(spec: LoadSpec, kind: BackendKind) -> None:
    unknown = sorted(set(spec.options) - set(kind.options))
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise PlanError(f"{spec.backend} has no option {unknown[0]!r}; it has: {known}")


def _describe(load: LoadSeries, plan: Plan) -> SeriesInfo:
    preset = load.geometry.preset
    kind = find_backend(load.spec.backend)
    settings = {
        "backend": load.spec.backend,
        "preset": preset.name,
        "stack": f"{preset.stack} {preset.version}",
        "cache_state": ("direct" if load.geometry.direct else "cold") if load.reads_files else None,
        "chunk_tokens": preset.chunk_tokens,
        "chunk_bytes": load.geometry.padded_bytes,
        "num_threads": preset.num_threads,
        "queue_depth": preset.num_threads
        * most_reads(load.in_flight, load.geometry.reads_per_unit, kind.reads_at_once),
        "request_bytes": preset.request_bytes or load.geometry.slot_bytes,
        "open_per_read": preset.open_per_read,
        **load.spec.options,
        **_ranks(plan),
        **({} if kind.server is None else {"server": kind.server(load.spec.options).name}),
    }
    return SeriesInfo(arm="load", label=f"{load.spec.backend}, {preset.name} layout", settings=settings)


def _describe_hybrid(load: LoadSeries, plan: Plan) -> SeriesInfo:
    """The series beside `load`; with `skipped`, the reason, where it cannot be measured."""
    loads = _describe(load, plan)
    settings = {**loads.settings, "load_series": load.name}
    if load.spec.backend != "simulated" and not find_backend(load.spec.backend).moves_bytes:
        settings["skipped"] = (
            f"{load.spec.backend} moves no bytes, so nothing would be in place of what is not computed"
        )
    return SeriesInfo(arm="hybrid", label=loads.label, settings=settings)
