"""What one measuring process holds: the model (or some of its layers) on its device, and arms made from it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.arms import ranks as group
from bench.arms.chunk_reading import ChunkReading, LoadSettings
from bench.arms.file_cursor import CursorPosition, StoreCursor
from bench.arms.gemm import GemmArm
from bench.arms.hybrid import HybridArm
from bench.arms.load import LoadArm
from bench.arms.model.build import BuiltModel, build_model
from bench.arms.model.kv_cache import sub_layout
from bench.arms.model.memory import keep_freed_memory
from bench.arms.prefill import FirstTokenStep, Prefill, prefill_over
from bench.arms.read_evidence import ReadEvidence
from bench.arms.recompute import RecomputeArm
from bench.measure.conditions.object_server import find_server
from bench.measure.setup import GEMM, RECOMPUTE, LoadSeries, ResolvedPlan, name_hybrid
from bench.measure.stores import rank_directory
from bench.record.sample import Arm
from kvio.backends import find_backend
from kvio.errors import KVIOError
from kvio.evidence.storage_device import describe_storage
from kvio.layout.planes import KVLayout
from kvio.loading.blocks import KVBlocks
from kvio.store.chunk_store import ChunkStore
from kvio.store.store_files import os_errors_as_store_errors

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class UnreadableSeriesError(KVIOError):
    """The files or the server of one load series cannot be opened; the others may still be read."""

    def __init__(self, series: str, reason: str) -> None:
        super().__init__(reason)
        self.series = series


class DeviceError(Exception):
    """The device that was asked for is not there."""


def pick_device(asked: str, rank: int = 0, num_ranks: int = 1) -> torch.device:
    """The device to measure on: `auto` is the first GPU, else the CPU; of several ranks, each has its own GPU.

    Raises:
        DeviceError: a GPU was asked for and there is none, not this one, or there are fewer than ranks.
    """
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceError(f"device {asked}: torch {torch.__version__} sees no GPU here; try --device cpu")
    if asked.startswith("cuda:") and int(asked.removeprefix("cuda:")) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise DeviceError(
            f"device {asked}: the last GPU that torch sees is cuda:{last}; try --device cuda:{last}"
        )
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    if asked != "cuda" or num_ranks == 1:
        return torch.device(asked)
    if torch.cuda.device_count() < num_ranks:
        raise DeviceError(
            f"{num_ranks} ranks need as many GPUs, torch sees {torch.cuda.device_count()}; try a smaller --tp"
        )
    return torch.device("cuda", rank)


@dataclass(frozen=True, slots=True)
class ModelSession:
    """A model on its device."""

    setup: ResolvedPlan
    built: BuiltModel
    layout: KVLayout  # KV of the layers that were built
    device: torch.device
    now_s: Callable[[], float]  # the host's monotonic clock

    def prefill(self, capacity_tokens: int) -> Prefill:
        """The model over blocks of its own for so many tokens.

        All of them are written once: the first touch of a page takes longer than the write, and what was never written
        is read from the one page of zeros.  No arm may pay the one in its timed part, nor gain from the other.
        """
        blocks = KVBlocks(self.layout, capacity_tokens, self.device)
        blocks.poison()
        return prefill_over(self.built, blocks, kv_dtype=self.kv_dtype)

    @property
    def kv_dtype(self) -> torch.dtype:
        """Dtype of the KV that the model computes with."""
        return DTYPES[self.setup.plan.kv_dtype or self.setup.plan.dtype]

    def recompute_arm(self, prefill: Prefill, *, seed: int) -> RecomputeArm:
        """The recompute arm over `prefill`'s blocks."""
        geometry = self.setup.model.geometry
        return RecomputeArm(
            prefill,
            now_s=self.now_s,
            flops=lambda tokens, past: geometry.prefill_flops(tokens, past_tokens=past),
            prefill_chunk=self.setup.plan.prefill_chunk,
            seed=seed,
        )

    def gemm_arm(self, *, seed: int) -> GemmArm:
        """The rate of the matrix products of the model's most frequent layer."""
        geometry = self.setup.model.geometry
        kind = max(set(geometry.layers), key=geometry.layers.count)
        return GemmArm(
            geometry.gemm_shapes(kind, self.setup.plan.tensor_parallel),
            dtype=self.built.dtype,
            device=self.device,
            now_s=self.now_s,
            seed=seed,
        )

    def load_arm(
        self,
        store: ChunkStore,
        load: LoadSeries,
        *,
        first_token: FirstTokenStep | None,
        walk: StoreCursor | None = None,
    ) -> LoadArm:
        """The load arm of one series; `first_token` None leaves the step out (price of the harness)."""
        kind = find_backend(load.spec.backend)
        return LoadArm(
            store,
            LoadSettings(
                load.spec.backend,
                queue_depth=load.in_flight,
                options=load.spec.options,
                limit=self.setup.plan.limit if kind.from_storage else None,
                step_layers=(len(self.built.layers), len(self.built.model_kinds)),
            ),
            make_blocks=lambda tokens: KVBlocks(self.setup.layout, tokens, self.device),
            device=self.device,
            now_s=self.now_s,
            evidence=evidence_of(load, store.directory),
            first_token=None if first_token is None else lambda _, tokens: first_token.time(tokens),
            walk=walk,
        )

    def hybrid_arm(
        self, prefill: Prefill, reading: ChunkReading, *, first_token: FirstTokenStep, seed: int
    ) -> HybridArm:
        """The hybrid arm beside the load arm that walks through `reading`."""
        geometry = self.setup.model.geometry
        return HybridArm(
            prefill,
            reading,
            first_token=first_token,
            now_s=self.now_s,
            flops=geometry.prefill_flops,
            prefill_chunk=self.setup.plan.prefill_chunk,
            seed=seed,
        )


def open_model_session(
    setup: ResolvedPlan, *, layers: Sequence[int], longest: int, now_s: Callable[[], float], seed: int
) -> ModelSession:
    """Build these of the model's layers, with room for a prefix of `longest` tokens.

    Raises:
        UnsupportedArchitectureError, MemoryShortError, WeightsError
    """
    plan = setup.plan
    device = pick_device(plan.device, group.rank(), group.size())
    if device.type == "cpu":
        keep_freed_memory()
    built = build_model(
        setup.model.config,
        dtype=DTYPES[plan.dtype],
        device=device,
        layers=layers,
        attention=plan.attention,
        weights=plan.weights,
        seed=seed,
        reserve_bytes=setup.layout.bytes_at(longest),
    )
    layout = sub_layout(setup.layout, built.layers, num_layers=len(built.model_kinds))
    return ModelSession(setup, built, layout, device, now_s)


def evidence_of(load: LoadSeries, directory: Path) -> ReadEvidence:
    """What can be known of the reads of one series from files in `directory`."""
    server = find_server(load)
    if server is None:
        with os_errors_as_store_errors(directory):
            storage = describe_storage(directory)
        return ReadEvidence(storage, read_path=find_backend(load.spec.backend).read_path)
    return ReadEvidence(None, server_bytes_per_s=server.interface.bytes_per_s)


def make_arms(
    bench: ModelSession,
    *,
    capacity_tokens: int,
    store_dirs: Mapping[str, Path],
    taken: Mapping[Path, CursorPosition],
    seed: int,
    series: Collection[str],
) -> dict[str, Arm]:
    """The recompute arm, the matrix products, and an arm for each load or hybrid series among `series`.

    Those that read the same files walk through them together, from where the run has come to: `taken`.

    Raises:
        UnreadableSeriesError: the files or the server of one cannot be opened.
    """
    prefill = bench.prefill(capacity_tokens)
    step = FirstTokenStep(prefill, now_s=bench.now_s, seed=seed)
    arms: dict[str, Arm] = {
        RECOMPUTE: bench.recompute_arm(prefill, seed=seed),
        GEMM: bench.gemm_arm(seed=seed),
    }
    walks: dict[Path, StoreCursor] = {}
    for load in bench.setup.loads:
        if not {load.name, name_hybrid(load.name)} & set(series):
            continue
        try:
            directory = rank_directory(store_dirs[load.name], group.rank(), group.size())
            store = ChunkStore.open(directory, preset=load.geometry.preset)
            shared = store_dirs[load.name]
            walk = walks.setdefault(shared, StoreCursor(store, taken.get(shared, CursorPosition())))
            arm = bench.load_arm(store, load, first_token=step, walk=walk)
            arms[load.name] = arm
            if name_hybrid(load.name) in store_dirs:
                arms[name_hybrid(load.name)] = bench.hybrid_arm(
                    prefill, arm.reading, first_token=step, seed=seed
                )
        except KVIOError as error:
            for made in arms.values():
                made.close()
            raise UnreadableSeriesError(load.name, str(error)) from error
    return arms


def files_taken(arms: Mapping[str, Arm], store_dirs: Mapping[str, Path]) -> dict[Path, CursorPosition]:
    """By the directory of a store, how far the walk through its files has come."""
    return {
        store_dirs[name]: arm.reading.walk.taken for name, arm in arms.items() if isinstance(arm, LoadArm)
    }
