"""The chunk files of a sweep: how many there can be, writing them, and placing them where series read them."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil

from bench.arms.file_cursor import CursorPosition
from bench.measure.budget import ROUNDS_PLANNED, walk_lengths
from bench.measure.setup import LoadSeries, ResolvedPlan
from bench.record.notices import Notice
from bench.record.plan import PlanError
from bench.record.progress import Observer
from kvio.backends import find_backend
from kvio.backends.placement import Placement, SamplePlacement
from kvio.errors import KVIOError
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.store.chunk_store import ChunkStore
from kvio.store.store_files import StoreError, make_directory, os_errors_as_store_errors

DEFAULT_WORKING_SET_BYTES = 4 * 2**30  # enough for several samples of a long prefix, seconds to write
DISK_SHARE = 0.25  # of the free space, at most
RANK_SEED_STEP = 2**31  # beyond every seed of a plan, so that no two ranks' bytes are alike
MEMORY_SHARE = 0.15  # of the available host memory that the KV blocks of one prefix may take, at most


def working_set_bytes(setup: ResolvedPlan, scratch: Path) -> int:
    """Bytes that chunk files may take in all: as asked, else a default within a share of the free space."""
    if setup.plan.working_set_bytes is not None:
        return setup.plan.working_set_bytes
    with os_errors_as_store_errors(scratch):
        return min(DEFAULT_WORKING_SET_BYTES, int(DISK_SHARE * shutil.disk_usage(scratch).free))


def most_tokens(setup: ResolvedPlan, scratch: Path | None) -> int:
    """The longest prefix that model, working set and host memory allow.

    Raises:
        PlanError: not even one chunk.
    """
    most = setup.most_tokens - setup.plan.suffix_tokens
    if scratch is None:
        return most
    ranks = setup.plan.tensor_parallel  # each with files and blocks of its own
    room_bytes = working_set_bytes(setup, scratch) // len(_by_geometry(setup.loads)) // ranks
    memory_bytes = int(MEMORY_SHARE * psutil.virtual_memory().available) // ranks
    for load in setup.loads:
        per_chunk = load.geometry.padded_bytes
        most = min(most, memory_bytes // per_chunk * load.geometry.chunk_tokens)
        if not setup.plan.suffix_tokens:
            most = min(most, room_bytes // per_chunk * load.geometry.chunk_tokens)
        elif (needed := most_chunks(setup, load.geometry, most)) * per_chunk > room_bytes:
            raise PlanError(
                f"{scratch.parent}: a working set of {room_bytes / 1e9:.2f} GB does "
                f"not hold the {needed} chunks of {load.geometry.chunk_tokens} tokens that a suffix of "
                f"{setup.plan.suffix_tokens} may take; free some space, or change --chunk-tokens or --working-set"
            )
    if most < setup.chunk_tokens:
        raise PlanError(
            f"{scratch.parent}: a working set of {room_bytes / 1e9:.2f} GB and {memory_bytes / 1e9:.2f} GB of memory "
            f"{'for each rank ' if ranks > 1 else ''}do not hold one chunk of {setup.chunk_tokens} tokens; "
            f"free some space, or change --chunk-tokens or --working-set"
        )
    return most


def _by_geometry(loads: Sequence[LoadSeries]) -> dict[ChunkGeometry, list[LoadSeries]]:
    found: dict[ChunkGeometry, list[LoadSeries]] = {}
    for load in loads:
        found.setdefault(load.geometry, []).append(load)
    return found


@dataclass(frozen=True, slots=True)
class StorePlan:
    """The chunk files of one geometry."""

    geometry: ChunkGeometry
    loads: tuple[LoadSeries, ...]  # the series that read them
    directory: Path  # where they go
    least_chunks: int  # that one sample takes at most
    round_chunks: int  # that the samples of one round read, each chunk once
    num_chunks: int  # that are wanted, of each rank

    def cut(self, share: float) -> "StorePlan":
        """With that share of the chunks, as far as the longest prefix allows."""
        return replace(self, num_chunks=max(self.least_chunks, int(self.num_chunks * share)))

    def cut_spare(self, share: float) -> "StorePlan":
        """With that share of the chunks that later rounds would read in place of those of the first."""
        spare = max(0, self.num_chunks - self.round_chunks)
        return replace(self, num_chunks=self.num_chunks - spare + int(spare * share))


def chunks_at_once(setup: ResolvedPlan, geometry: ChunkGeometry, tokens: int) -> int:
    """Chunks that one sample of a prefix of `tokens` reads: its own, or with a suffix those that hold the suffix."""
    suffix = setup.plan.suffix_tokens
    return len(
        geometry.chunks_between(tokens, tokens + suffix) if suffix else geometry.chunks_between(0, tokens)
    )


def most_chunks(setup: ResolvedPlan, geometry: ChunkGeometry, longest: int) -> int:
    """Chunks that one sample of any prefix up to `longest` reads: a suffix may begin with the last token of a chunk."""
    return chunks_at_once(setup, geometry, geometry.chunk_tokens - 1 if setup.plan.suffix_tokens else longest)


def _chunks_of_lengths(setup: ResolvedPlan, geometry: ChunkGeometry, longest: int) -> int:
    """Chunks that one sample of every length of a round reads."""
    if not setup.plan.suffix_tokens:
        return 2 * chunks_at_once(setup, geometry, longest)  # powers of two add up to twice the longest
    lengths = setup.lengths or walk_lengths(setup.chunk_tokens, longest)
    return sum(chunks_at_once(setup, geometry, tokens) for tokens in lengths)


def plan_stores(setup: ResolvedPlan, scratch: Path, *, longest: int) -> tuple[StorePlan, ...]:
    """The stores of a sweep.  Series of equal geometry share their files.

    There are enough files for every sample of a round to read others, as far as the working set allows.  Where it was
    asked for, or nothing has to be placed on a server, there are as many for every other round.

    Raises:
        PlanError: the working set does not hold the longest prefix.
    """
    shared = _by_geometry(setup.loads)
    room_bytes = working_set_bytes(setup, scratch) // len(shared) // setup.plan.tensor_parallel
    plans = []
    for number, (geometry, loads) in enumerate(shared.items()):
        at_once = most_chunks(setup, geometry, longest)
        readers = _readers(setup, loads)
        wanted = _chunks_of_lengths(setup, geometry, longest) * readers * setup.plan.num_samples
        round_chunks = wanted
        if setup.plan.working_set_bytes is not None or not any(
            find_backend(load.spec.backend).on_server for load in loads
        ):
            wanted *= setup.plan.num_rounds or ROUNDS_PLANNED
        if at_once * geometry.padded_bytes > room_bytes:
            raise PlanError(
                f"{longest} tokens take {at_once * geometry.padded_bytes} bytes of chunk files, the working set has "
                f"{room_bytes}; try a larger --working-set or shorter prefixes"
            )
        num_chunks = max(at_once, min(wanted, room_bytes // geometry.padded_bytes))
        directory = _directory(scratch, number)
        plans.append(StorePlan(geometry, tuple(loads), directory, at_once, round_chunks, num_chunks))
    return tuple(plans)


def _readers(setup: ResolvedPlan, loads: Sequence[LoadSeries]) -> int:
    """Arms that walk through the same files together."""
    return len(loads) * (2 if setup.plan.hybrid else 1)


def create_stores(setup: ResolvedPlan, plans: Sequence[StorePlan]) -> dict[str, Path]:
    """Write the chunk files; the directory of each series.

    Of several ranks each has a store of its own shard, with other bytes, in its `rank_directory`.

    Raises:
        StoreError: no space, or the directory cannot be written.
    """
    found: dict[str, Path] = {}
    ranks = setup.plan.tensor_parallel
    for plan in plans:
        make_directory(plan.directory)
        for rank in range(ranks):
            ChunkStore.create(
                make_directory(rank_directory(plan.directory, rank, ranks), exist_ok=True),
                plan.geometry,
                num_chunks=plan.num_chunks,
                seed=setup.plan.seed + rank * RANK_SEED_STEP,
                num_states=_readers(setup, plan.loads) * setup.plan.num_samples,
            )
        found.update({load.name: plan.directory for load in plan.loads})
    return found


def rank_directory(directory: Path, rank: int, num_ranks: int) -> Path:
    """Where one rank's chunk files are: the series' own directory, or of several ranks a part of it."""
    return directory if num_ranks == 1 else directory / f"rank-{rank}"


def _directory(scratch: Path, number: int) -> Path:
    return scratch / f"store-{number}"


class ChunkPlacement:
    """Copies of the chunk files on the servers that series read from; series of the same server share them."""

    def __init__(self, loads: Sequence[LoadSeries], scratch: Path) -> None:
        self._of_series: dict[str, Placement] = {}
        self._make: dict[str, Callable[[Path], Placement]] = {}
        by_name: dict[str, Placement] = {}
        for load in loads:
            kind = find_backend(load.spec.backend)
            if kind.placement is None:
                continue
            make = partial(kind.placement, load.spec.options)
            depot = make(scratch)
            if not isinstance(depot, SamplePlacement):
                self._of_series[load.name] = by_name.setdefault(depot.name, depot)
                self._make[load.name] = make
        self._begun: list[Placement] = []

    def begin(self) -> None:
        """Clean up after dead runs, and find out that things can be placed.

        Raises:
            KVIOError: a server does not answer or does not permit it.
        """
        for depot in dict.fromkeys(self._of_series.values()):
            self._begun.append(depot)  # before: a mark half made is withdrawn too
            depot.open()

    def place(
        self, store_dirs: Mapping[str, Path], observer: Observer, *, before_each: Callable[[], None]
    ) -> dict[str, KVIOError]:
        """Fill the placement of these series with the files of their stores, checked against their manifests.

        By series, why its files could not be placed: a chunk is damaged, the server takes it not, or `before_each`,
        called before each file, raised a KVIOError.
        """
        return _place_all(self._of_series, store_dirs, observer, before_each=before_each)

    @contextmanager
    def placed_for_now(
        self, store_dirs: Mapping[str, Path], observer: Observer, *, before_each: Callable[[], None]
    ) -> Iterator[dict[str, KVIOError]]:
        """As `place`, but what was placed is taken back when the block ends: there is nothing but it below the stores."""
        of_store: dict[tuple[str, Path], Placement] = {}
        placement = {
            name: of_store.setdefault((self._of_series[name].name, directory), self._make[name](directory))
            for name, directory in store_dirs.items()
            if name in self._of_series
        }
        try:
            yield _place_all(placement, store_dirs, observer, before_each=before_each)
        finally:
            for depot in of_store.values():
                with suppress(KVIOError):  # the withdrawal at the end of the run repeats it, with a notice
                    depot.remove()

    def withdraw(self) -> tuple[Notice, ...]:
        """Empty every depot that was begun, once; a notice of what could not be removed."""
        errors = []
        while self._begun:
            depot = self._begun.pop()
            try:
                depot.remove()
            except KVIOError as error:
                errors.append(str(error))
        if not errors:
            return ()
        detail = f"objects remain, and the next run here removes them: {'; '.join(errors)}"
        return (Notice(kind="objects_left", detail=detail),)


def _place_all(
    placement: Mapping[str, Placement],
    store_dirs: Mapping[str, Path],
    observer: Observer,
    *,
    before_each: Callable[[], None],
) -> dict[str, KVIOError]:
    failed: dict[str, KVIOError] = {}
    shared: dict[tuple[Placement, Path], list[str]] = {}
    for name, directory in store_dirs.items():
        if name in placement:
            shared.setdefault((placement[name], directory), []).append(name)
    for (depot, directory), names in shared.items():
        try:
            _place(depot, directory, observer, before_each=before_each)
        except KVIOError as error:
            failed |= dict.fromkeys(names, error)
    return failed


def _place(depot: Placement, directory: Path, observer: Observer, *, before_each: Callable[[], None]) -> None:
    store = ChunkStore.open(directory)
    for chunk_id in range(store.num_chunks):
        store.verify(chunk_id)
    with os_errors_as_store_errors(directory):
        paths = sorted(directory.glob("*.kv"))
        held_bytes = sum(path.stat().st_size for path in paths)
    observer.on_phase(f"placing {len(paths)} files, {held_bytes / 1e9:.2f} GB, in {depot.name}")
    depot.upload(paths, packed_bytes=store.geometry.packed_bytes, before_each=before_each)


@dataclass(frozen=True, slots=True)
class StoreReads:
    """What a run read of one store, whole files and all ranks together."""

    loads: tuple[LoadSeries, ...]  # the series that read it
    held_bytes: int  # of its files
    read_bytes: int
    again: bool  # a file was read a second time


def count_reads(
    setup: ResolvedPlan, scratch: Path, taken: Mapping[Path, CursorPosition]
) -> Iterator[StoreReads]:
    """Reads of every store that was read; none of a store whose files are gone.

    Args:
        taken: by the directory of a store, the files that were read.
    """
    ranks = setup.plan.tensor_parallel
    for number, (geometry, loads) in enumerate(_by_geometry(setup.loads).items()):
        directory = _directory(scratch, number)
        if directory not in taken:
            continue
        try:
            store = ChunkStore.open(rank_directory(directory, 0, ranks))
        except StoreError:
            continue
        held, read = CursorPosition(store.num_chunks, store.num_states), taken[directory]
        held_bytes, read_bytes = (
            ranks * (files.chunks * geometry.padded_bytes + files.states * geometry.state_file_bytes)
            for files in (held, read)
        )
        again = read.chunks > held.chunks or read.states > held.states
        yield StoreReads(tuple(loads), held_bytes, read_bytes, again)
