"""The depots that a run fills once and empties at its end, however it ends."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measure.policy import Observer
from bench.measure.record import Notice
from bench.measure.setup import LoadSeries
from kvio.backends import find_backend
from kvio.backends.protocol import KVIOError
from kvio.depot import Depot, SampleDepot
from kvio.files import told
from kvio.store import ChunkStore


class RunDepots:
    """Of each load series that has one; series with the same depot share it."""

    def __init__(self, loads: Sequence[LoadSeries], scratch: Path) -> None:
        self._of_series: dict[str, Depot] = {}
        by_name: dict[str, Depot] = {}
        for load in loads:
            make = find_backend(load.spec.backend).depot
            depot = None if make is None else make(load.spec.options, scratch)
            if depot is not None and not isinstance(depot, SampleDepot):
                self._of_series[load.name] = by_name.setdefault(depot.name, depot)
        self._begun: list[Depot] = []

    def begin(self) -> None:
        """Clean up after dead runs, and find out that things can be placed.

        Raises:
            KVIOError: a server does not answer or does not permit it.
        """
        for depot in dict.fromkeys(self._of_series.values()):
            self._begun.append(depot)  # before: a mark half made is withdrawn too
            depot.begin()

    def place(self, store_dirs: Mapping[str, Path], observer: Observer) -> dict[str, KVIOError]:
        """Fill the depots of these series with the files of their stores, checked against their manifests.

        By series, why its files could not be placed: a chunk is damaged, or the server takes it not.
        """
        failed: dict[str, KVIOError] = {}
        shared: dict[tuple[Depot, Path], list[str]] = {}
        for name, directory in store_dirs.items():
            if name in self._of_series:
                shared.setdefault((self._of_series[name], directory), []).append(name)
        for (depot, directory), names in shared.items():
            try:
                _place(depot, directory, observer)
            except KVIOError as error:
                failed |= dict.fromkeys(names, error)
        return failed

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


def _place(depot: Depot, directory: Path, observer: Observer) -> None:
    store = ChunkStore.open(directory)
    for chunk_id in range(store.num_chunks):
        store.verify(chunk_id)
    with told(directory):
        paths = sorted(directory.glob("*.kv"))
        held_bytes = sum(path.stat().st_size for path in paths)
    observer.on_phase(f"placing {len(paths)} files, {held_bytes / 1e9:.2f} GB, in {depot.name}")
    depot.place(paths, packed_bytes=store.geometry.packed_bytes)
