"""In which file, and where in it, each object of a chunk lies."""

from dataclasses import dataclass
from pathlib import Path

from kvio.layout.chunk_geometry import ChunkGeometry

CONTAINER_PREFIX = "chunk-container-"  # of files that hold several objects, one behind another


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """Where one object begins."""

    path: Path
    offset: int


class Places:
    """The objects of `num_chunks` chunks in `directory`: a file each, or slots of larger files."""

    def __init__(self, directory: Path, geometry: ChunkGeometry, *, num_chunks: int) -> None:
        self._directory = directory
        self._geometry = geometry
        self._num_chunks = num_chunks
        container_bytes = geometry.preset.container_bytes
        self._slots_per_file = (
            None if container_bytes is None else max(1, container_bytes // geometry.stride_bytes)
        )

    def of(self, chunk_id: int) -> tuple[ObjectPlace, ...]:
        """Where each object of one chunk lies."""
        return tuple(self._place(chunk_id, part.number) for part in self._geometry.objects)

    def _place(self, chunk_id: int, object_number: int) -> ObjectPlace:
        count = len(self._geometry.objects)
        if self._slots_per_file is None:
            suffix = "" if count == 1 else f"-{object_number:03d}"
            return ObjectPlace(self._directory / f"chunk-{chunk_id:06d}{suffix}.kv", 0)
        file_number, slot = divmod(chunk_id * count + object_number, self._slots_per_file)
        path = self._directory / f"{CONTAINER_PREFIX}{file_number:04d}.kv"
        return ObjectPlace(path, slot * self._geometry.stride_bytes)

    def file_bytes(self) -> dict[Path, int]:
        """Every file, and its size."""
        found: dict[Path, int] = {}
        for chunk_id in range(self._num_chunks):
            for part, place in zip(self._geometry.objects, self.of(chunk_id), strict=True):
                found[place.path] = max(found.get(place.path, 0), place.offset + part.padded_bytes)
        return found
