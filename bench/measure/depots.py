"""The placement that a run fills once and empties at its end, however it ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from bench.measure.setup import LoadSeries
from bench.record.notices import Notice
from bench.record.progress import Observer
from kvio.backends import find_backend
from kvio.backends.placement import Placement, SampleDepot
from kvio.protocol import KVIOError
from kvio.store.chunk_store import ChunkStore
from kvio.store.store_files import os_errors_as_store_errors


class ChunkPlacement:
    """Of each load series that has one; series with the same depot share it."""

    def __init__(self, loads: Sequence[LoadSeries], scratch: Path) -> None:
        self._of_series: dict[str, Placement] = {}
        self._make: dict[str, Callable[[Path], Placement]] = {}
        by_name: dict[str, Placement] = {}
        for load in loads:
            kind = find_backend(load.spec.backend)
            if kind.depot is None:
                continue
            make = partial(kind.depot, load.spec.options)
            depot = make(scratch)
            if not isinstance(depot, SampleDepot):
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
            depot.begin()

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
                with suppress(KVIOError):  # the run's own withdrawal meets it again, and says so
                    depot.withdraw()

    def withdraw(self) -> tuple[Notice, ...]:
        """Empty every depot that was begun, once; a notice for each that could not be emptied."""
        notices = []
        while self._begun:
            depot = self._begun.pop()
            try:
                depot.withdraw()
            except KVIOError as error:
                message = f"objects were left behind, the next run here removes them: {error}"
                notices.append(Notice(code="objects_left", message=message, suspect=False))
        return tuple(notices)


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
    depot.place(paths, packed_bytes=store.geometry.packed_bytes, before_each=before_each)
