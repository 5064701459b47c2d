"""Files of KV chunks: written once, fully, with bytes that can be told apart, and checked when read back."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Self

import numpy as np

from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.object_places import ObjectPlace, Places
from kvio.layout.presets import Preset, same_files
from kvio.os_errors import by_threads
from kvio.store.manifest import (
    MANIFEST_NAME,
    Manifest,
    checksum,
    checksum_group,
    checksum_groups,
    read_manifest,
    write_manifest,
)
from kvio.store.store_files import (
    Bytes,
    StoreError,
    make_file,
    os_errors_as_store_errors,
    require_space,
    sync_directory,
    write_at,
    write_file,
)

NUM_WRITERS = 4
CHUNK_STREAM, STATE_STREAM, FILL_STREAM = range(3)  # keys that keep the random streams apart


class VerificationError(StoreError):
    """Bytes are not those that were stored: wrong chunk, wrong place, or damaged."""


class ChunkStore:
    """A directory of chunk files, one per chunk, and of states, one per state.

    Made by `create` or `open`.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.geometry = ChunkGeometry(manifest.layout, manifest.preset)
        self._manifest = manifest
        self._places = Places(directory, self.geometry, num_chunks=len(manifest.chunks))

    @classmethod
    def create(
        cls, directory: Path, geometry: ChunkGeometry, *, num_chunks: int, seed: int, num_states: int = 1
    ) -> Self:
        """Write `num_chunks` chunks (and `num_states` states, if the model has any) of seeded random bytes.

        Each file has its own random stream, so that no two positions are alike and nothing compresses.

        Raises:
            StoreError: too little space, a store is there already, or the directory cannot be written.
        """
        if num_chunks <= 0 or seed < 0:
            raise StoreError(f"{num_chunks} chunks with seed {seed}: need at least one, and a seed from 0")
        num_states = num_states if geometry.layout.state_bytes else 0
        with os_errors_as_store_errors(directory):
            if not directory.is_dir():
                raise StoreError(f"{directory}: no such directory; create it or name another")
            if (directory / MANIFEST_NAME).exists():
                raise StoreError(f"{directory}: holds a store already; remove it, or use another directory")
        require_space(directory, num_chunks * geometry.padded_bytes + num_states * geometry.state_file_bytes)
        store = cls(
            directory,
            Manifest(layout=geometry.layout, preset=geometry.preset, seed=seed, chunks=((),) * num_chunks),
        )
        try:
            store._fill(num_states)
        except BaseException:
            store._manifest = store._manifest.model_copy(update={"states": ("",) * num_states})
            with suppress(OSError):  # what led here says more
                store.remove()
            raise
        return store

    def _fill(self, num_states: int) -> None:
        if self.geometry.preset.container_bytes is not None:
            for path, num_bytes in self._places.file_bytes().items():
                make_file(path, num_bytes)
        chunks = tuple(by_threads(self._write_seeded_chunk, self.num_chunks, num_threads=NUM_WRITERS))
        states = tuple(by_threads(self._write_seeded_state, num_states, num_threads=NUM_WRITERS))
        self._manifest = self._manifest.model_copy(update={"chunks": chunks, "states": states})
        sync_directory(self.directory)
        write_manifest(self.directory, self._manifest)

    @classmethod
    def open(cls, directory: Path, *, preset: Preset | None = None) -> Self:
        """The store that was written in `directory`.

        Args:
            directory: its own.
            preset: how it is to be read, where that is not how it was written for; the files must be the same.

        Raises:
            StoreError: no whole store is there, or a file is missing or has another size; another layout.
        """
        manifest = read_manifest(directory)
        if preset is not None:
            if not same_files(manifest.preset, preset):
                raise StoreError(
                    f"{directory}: its files are laid out otherwise than {preset.name} reads them"
                )
            manifest = manifest.model_copy(update={"preset": preset})
        store = cls(directory, manifest)
        sizes = store._places.file_bytes()
        sizes |= {path: store.geometry.state_file_bytes for path in store._state_paths()}
        for path, expected_bytes in sizes.items():
            with os_errors_as_store_errors(path):
                size_bytes = path.stat().st_size
            if size_bytes != expected_bytes:
                raise StoreError(f"{path}: {size_bytes} bytes, {expected_bytes} were written")
        return store

    @property
    def num_chunks(self) -> int:
        """Chunks in the store."""
        return len(self._manifest.chunks)

    @property
    def num_states(self) -> int:
        """Linear-attention states in the store; 0 when the model has none."""
        return len(self._manifest.states)

    def places(self, chunk_id: int) -> tuple[ObjectPlace, ...]:
        """Where each object of one chunk lies."""
        return self._places.of(chunk_id)

    def chunk_path(self, chunk_id: int) -> Path:
        """The file of one chunk, or of its first object."""
        return self.places(chunk_id)[0].path

    def state_path(self, state_id: int) -> Path:
        """The file of one state."""
        return self.directory / f"state-{state_id:06d}.kv"

    def _state_paths(self) -> list[Path]:
        return [self.state_path(number) for number in range(self.num_states)]

    def _write_seeded_chunk(self, chunk_id: int) -> tuple[str, ...]:
        content = _random_bytes(self.geometry.padded_bytes, self._manifest.seed, CHUNK_STREAM, chunk_id)
        self._write(chunk_id, content)
        return checksum_groups(self.geometry, self._payload_of(content))

    def _write_seeded_state(self, state_id: int) -> str:
        content = _random_bytes(self.geometry.state_file_bytes, self._manifest.seed, STATE_STREAM, state_id)
        write_file(self.state_path(state_id), [content.data])
        return checksum(content[: self.geometry.layout.state_bytes])

    def _write(self, chunk_id: int, content: Bytes) -> None:
        """Write a chunk's objects, headers and padding included, one behind another in `content`."""
        start = 0
        for part, place in zip(self.geometry.objects, self.places(chunk_id), strict=True):
            piece = content[start : start + part.padded_bytes].data
            if self.geometry.preset.container_bytes is None:
                write_file(place.path, [piece])
            else:
                write_at(place.path, place.offset, piece)
            start += part.padded_bytes

    def _payload_of(self, content: Bytes) -> Bytes:
        """The payload in a chunk's objects; a copy unless there is only one."""
        found, start = [], 0
        for part in self.geometry.objects:
            found.append(content[start + part.header_bytes : start + part.file_bytes])
            start += part.padded_bytes
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _put_payload(self, content: Bytes, payload: Bytes) -> None:
        start = 0
        for part in self.geometry.objects:
            end = part.payload_offset + part.payload_bytes
            content[start + part.header_bytes : start + part.file_bytes] = payload[part.payload_offset : end]
            start += part.padded_bytes

    def write_chunk(self, chunk_id: int, payload: Bytes) -> None:
        """Replace one chunk's payload by a model's own KV, laid out as `geometry.segments` says.

        Raises:
            StoreError: another number of bytes than a chunk has, no such chunk, or it cannot be written.
        """
        self._require_chunk(chunk_id)
        if payload.nbytes != self.geometry.payload_bytes:
            raise StoreError(
                f"chunk {chunk_id}: {payload.nbytes} bytes, a chunk has {self.geometry.payload_bytes}"
            )
        flat = np.ascontiguousarray(payload).reshape(-1).view(np.uint8)
        content = _random_bytes(self.geometry.padded_bytes, self._manifest.seed, FILL_STREAM, chunk_id)
        self._put_payload(content, flat)
        self._write(chunk_id, content)
        chunks = list(self._manifest.chunks)
        chunks[chunk_id] = checksum_groups(self.geometry, flat)
        self._manifest = self._manifest.model_copy(update={"chunks": tuple(chunks)})
        write_manifest(self.directory, self._manifest)

    def write_state(self, state_id: int, state: Bytes) -> None:
        """Replace one state by a model's own.

        Raises:
            StoreError: another number of bytes than a state has, no such state, or it cannot be written.
        """
        expected_bytes = self.geometry.layout.state_bytes
        if not 0 <= state_id < self.num_states or state.nbytes != expected_bytes:
            raise StoreError(
                f"state {state_id} of {state.nbytes} bytes; there are {self.num_states} of {expected_bytes}"
            )
        flat = np.ascontiguousarray(state).reshape(-1).view(np.uint8)
        content = _random_bytes(self.geometry.state_file_bytes, self._manifest.seed, FILL_STREAM, state_id)
        content[:expected_bytes] = flat
        write_file(self.state_path(state_id), [content.data])
        states = list(self._manifest.states)
        states[state_id] = checksum(flat)
        self._manifest = self._manifest.model_copy(update={"states": tuple(states)})
        write_manifest(self.directory, self._manifest)

    def _require_chunk(self, chunk_id: int) -> None:
        if not 0 <= chunk_id < self.num_chunks:
            raise StoreError(f"{self.directory}: no chunk {chunk_id}; there are {self.num_chunks}")

    def read_payload(self, chunk_id: int) -> Bytes:
        """The payload that lies in one chunk's objects now, writable; not checked.

        Raises:
            StoreError: it cannot be read, or is cut short.
        """
        self._require_chunk(chunk_id)
        parts = zip(self.geometry.objects, self.places(chunk_id), strict=True)
        found = [_read_bytes(place, part.padded_bytes) for part, place in parts]
        return self._payload_of(found[0] if len(found) == 1 else np.concatenate(found))

    def verify(self, chunk_id: int) -> None:
        """Check that a chunk's file holds what was written.

        Raises:
            VerificationError: it does not.
        """
        groups = range(len(self.geometry.layout.groups))
        self.require_payload(chunk_id, self.read_payload(chunk_id), groups=groups)

    def require_payload(self, chunk_id: int, payload: Bytes, *, groups: Collection[int]) -> None:
        """Check these groups' bytes in a payload against the checksums of the chunk.

        Raises:
            VerificationError: they differ.
        """
        self._require_chunk(chunk_id)
        for group in groups:
            if checksum_group(self.geometry, payload, group) != self._manifest.chunks[chunk_id][group]:
                raise VerificationError(
                    f"{self.chunk_path(chunk_id)}: group {group} of chunk {chunk_id} holds other bytes than "
                    f"were stored; wrong chunk, wrong place, or damaged"
                )

    def require_state(self, state_id: int, state: Bytes) -> None:
        """Check a state's bytes against its checksum.

        Raises:
            VerificationError: they differ.
        """
        if checksum(state) != self._manifest.states[state_id]:
            raise VerificationError(f"{self.state_path(state_id)}: the state is not the one that was stored")

    def remove(self) -> None:
        """Remove the store's files; the directory is its maker's.  Safe to call twice."""
        for path in (*self._places.file_bytes(), *self._state_paths(), self.directory / MANIFEST_NAME):
            path.unlink(missing_ok=True)


def _read_bytes(place: ObjectPlace, num_bytes: int) -> Bytes:
    with os_errors_as_store_errors(place.path):
        found = np.fromfile(place.path, np.uint8, count=num_bytes, offset=place.offset)
    if len(found) != num_bytes:
        raise StoreError(f"{place.path}: {len(found)} of {num_bytes} bytes at offset {place.offset}")
    return found


def _random_bytes(num_bytes: int, seed: int, stream: int, number: int) -> Bytes:
    """Incompressible bytes that only this seed, stream and number give."""
    random = np.random.Generator(np.random.SFC64([seed, stream, number]))
    words = random.integers(0, 2**64, size=-(-num_bytes // 8), dtype=np.uint64)
    return words.view(np.uint8)[:num_bytes]
