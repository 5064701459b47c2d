"""The files that every contender of a read comparison reads: one read brings in one whole file."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kvio.evidence.page_cache import evict, resident_bytes
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.store.chunk_store import ChunkStore
from tests.perf.peer_question import MARK_BYTES

LAYOUT = uniform_layout(32, 2048)  # Llama-3.1-8B: 131,072 bytes per token


@dataclass(frozen=True)
class FileSet:
    """Files of one size with known ends.

    Args:
        store: holds them as KV chunks, a file each.
        marks: first and last bytes of each file, in hexadecimal.
    """

    store: ChunkStore
    marks: tuple[tuple[str, str], ...]

    @property
    def request_bytes(self) -> int:
        """Bytes of one file, and of one read."""
        return self.store.geometry.padded_bytes

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return self.request_bytes * len(self.paths)

    @property
    def num_tokens(self) -> int:
        """Tokens whose KV they hold."""
        return len(self.paths) * self.store.geometry.chunk_tokens

    @cached_property
    def paths(self) -> list[Path]:
        """The files, in the order of their tokens."""
        return [self.store.chunk_path(number) for number in range(len(self.marks))]

    def first(self, num_files: int) -> "FileSet":
        """The first of them."""
        return replace(self, marks=self.marks[:num_files])

    def evict(self) -> None:
        """Drop what the page cache holds of them."""
        for path in self.paths:
            evict(path)

    def require_uncached(self, reader: str) -> None:
        """Stop where a reader that should have gone past the page cache has left something there."""
        found = sum(resident_bytes(path) or 0 for path in self.paths)
        assert found == 0, f"{reader} left {found} bytes in the page cache: it does not read with O_DIRECT"


def geometry_of(request_bytes: int, *, num_threads: int = 1, queue_depth: int = 1) -> ChunkGeometry:
    """Chunks of so many bytes, each read with one read."""
    preset = adapt_preset(
        find_preset("best"),
        chunk_tokens=request_bytes // LAYOUT.bytes_per_token,
        request_bytes=request_bytes,
        num_threads=num_threads,
        queue_depth=queue_depth,
    )
    return ChunkGeometry(LAYOUT, preset)


def write_files(folder: Path, request_bytes: int, *, num_files: int) -> FileSet:
    """So many files of that size in `folder`, on the drive and not in the page cache."""
    store = ChunkStore.create(folder, geometry_of(request_bytes), num_chunks=num_files, seed=0)
    marks = []
    for number in range(num_files):
        payload = store.read_payload(number)
        marks.append((payload[:MARK_BYTES].tobytes().hex(), payload[-MARK_BYTES:].tobytes().hex()))
    files = FileSet(store, tuple(marks))
    files.evict()
    return files
