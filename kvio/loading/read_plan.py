"""What one thread does at a time: read one chunk, and put its tokens where they belong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from kvio.file_ranges import Span
from kvio.layout.chunk_geometry import ByteRange, ChunkGeometry
from kvio.loading.blocks import KVBlocks
from kvio.protocol import Read
from kvio.store.chunk_store import ChunkStore
from kvio.store.store_files import Bytes

B = TypeVar("B", Bytes, torch.Tensor)


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a bounce buffer, (num_planes, stride_tokens, token_bytes), and where its tokens go.

    Args:
        group: index of the group in the blocks; None is the linear-attention state, a token a byte.
        planes: positions in the group.
        slot_offset: first byte in the bounce buffer.
        stride_tokens: tokens that the buffer holds of each plane.
        token_bytes: bytes of one token.
        first_token, num_tokens: where in the blocks they go, and how many of them.
        interleaved: the buffer holds (stride_tokens, num_planes, token_bytes) instead.
    """

    group: int | None
    planes: range
    slot_offset: int
    stride_tokens: int
    token_bytes: int
    first_token: int
    num_tokens: int
    interleaved: bool = False

    @property
    def end(self) -> int:
        """The first byte of the bounce buffer behind it."""
        return self.slot_offset + len(self.planes) * self.stride_tokens * self.token_bytes

    def destination(self, blocks: KVBlocks) -> torch.Tensor:
        """The view of the blocks to fill, (num_planes, num_tokens, token_bytes)."""
        group = blocks.state.view(1, -1, 1) if self.group is None else blocks.groups[self.group]
        planes = group[self.planes.start : self.planes.stop : self.planes.step]
        return planes[:, self.first_token : self.first_token + self.num_tokens]

    def within(self, slot: B, *, shift_bytes: int = 0) -> B:
        """The view of a flat bounce buffer to copy from, (num_planes, num_tokens, token_bytes).

        Args:
            slot: an array or a tensor of bytes.
            shift_bytes: where the bounce buffer begins in `slot`, which may be the whole payload.
        """
        flat = slot[self.slot_offset + shift_bytes : self.end + shift_bytes]
        if self.interleaved:
            rows = flat.reshape(self.stride_tokens, len(self.planes), self.token_bytes).swapaxes(0, 1)
        else:
            rows = flat.reshape(len(self.planes), self.stride_tokens, self.token_bytes)
        return rows[:, : self.num_tokens]


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """What one thread reads of one file without a pause.

    Args:
        path: the file.
        chunk_id: number of the chunk's file in the store; None for a state.
        payload_offset: where in the payload the bounce buffer begins; negative when it begins with a header.
        reads: what is asked of the backend.
        pieces: where the bytes go.
    """

    path: Path
    chunk_id: int | None
    payload_offset: int
    reads: tuple[Read, ...]
    pieces: tuple[Piece, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes that the reads ask for."""
        return sum(read.num_bytes for read in self.reads)


def plan_jobs(
    store: ChunkStore,
    chunk_ids: Sequence[int],
    *,
    first_token: int,
    prefix_tokens: int,
    state_id: int | None = None,
) -> tuple[ChunkRead, ...]:
    """The jobs that bring tokens [first_token, prefix_tokens) in, front to back, then the states.

    Args:
        store: the chunk files.
        chunk_ids: number in the store of each chunk that holds these tokens, in order.
        first_token, prefix_tokens: tokens; whole chunks are read, tokens beyond the prefix go nowhere.
        state_id: number in the store of the states; None brings none.
    """
    geometry = store.geometry
    indices = geometry.chunks_between(first_token, prefix_tokens)
    jobs = [
        _chunk_job(store, unit, index=index, chunk_id=chunk_id, prefix_tokens=prefix_tokens)
        for index, chunk_id in zip(indices, chunk_ids, strict=True)
        for unit in geometry.units_for(index, prefix_tokens)
    ]
    if state_id is not None:
        path = store.state_path(state_id)
        jobs.extend(_state_job(geometry, path, unit) for unit in geometry.state_units())
    return tuple(jobs)


def _chunk_job(
    store: ChunkStore, unit: ByteRange, *, index: int, chunk_id: int, prefix_tokens: int
) -> ChunkRead:
    geometry = store.geometry
    holder = geometry.objects[unit.object_number]
    start = holder.payload_offset + unit.file_offset - holder.header_bytes
    first_token = index * geometry.chunk_tokens
    pieces = tuple(
        Piece(
            part.group,
            planes,
            max(part.payload_offset - start, 0),
            geometry.chunk_tokens,
            part.token_bytes,
            first_token,
            min(geometry.chunk_tokens, prefix_tokens - first_token),
            part.interleaved,
        )
        for part in geometry.needed_segments(index, prefix_tokens)
        if part.object_number == holder.number
        and (planes := part.planes_within(start, start + unit.num_bytes))
    )
    place = store.places(chunk_id)[unit.object_number]
    return ChunkRead(
        place.path, chunk_id, start, _reads(geometry, unit, path=place.path, base=place.offset), pieces
    )


def _reads(geometry: ChunkGeometry, unit: ByteRange, *, path: Path, base: int) -> tuple[Read, ...]:
    return tuple(
        Read(path, base + part.file_offset, part.num_bytes, part.file_offset - unit.file_offset)
        for part in geometry.split(unit)
    )


def _state_job(geometry: ChunkGeometry, path: Path, unit: ByteRange) -> ChunkRead:
    start = unit.file_offset
    num_tokens = min(unit.num_bytes, geometry.layout.state_bytes - start)
    piece = Piece(None, range(1), 0, num_tokens, 1, start, num_tokens)
    return ChunkRead(path, None, start, _state_reads(geometry, path, unit), (piece,))


def _state_reads(geometry: ChunkGeometry, path: Path, unit: ByteRange) -> tuple[Read, ...]:
    step = geometry.preset.request_bytes or unit.num_bytes
    return tuple(
        Read(path, unit.file_offset + start, min(step, unit.num_bytes - start), start)
        for start in range(0, unit.num_bytes, step)
    )


def by_chunk(jobs: Sequence[ChunkRead]) -> Iterator[tuple[int, list[ChunkRead]]]:
    """The jobs of each chunk, which several threads may share; states are left out."""
    for chunk_id, found in groupby(jobs, lambda job: job.chunk_id):
        if chunk_id is not None:
            yield chunk_id, list(found)


def collect(job: ChunkRead, blocks: KVBlocks, payload: Bytes) -> None:
    """Copy what `job` brought in back out of the blocks, to where it lies in the chunk's payload.

    A payload is whole only after all jobs of its chunk (`by_chunk`).
    """
    for piece in job.pieces:
        arrived = piece.destination(blocks).cpu().numpy()
        np.copyto(piece.within(payload, shift_bytes=job.payload_offset), arrived)


def spans_of(jobs: Sequence[ChunkRead]) -> list[Span]:
    """The parts of files that the jobs read, none twice.

    Those of one chunk that touch are one span, so that equal chunks have spans of equal size.
    """
    found: list[Span] = []
    chunk_id: int | None = None
    parts = (
        (read.path, read.file_offset, read.num_bytes, job.chunk_id) for job in jobs for read in job.reads
    )
    for path, start, num_bytes, of_chunk in sorted(parts, key=lambda part: part[:2]):
        last = found[-1] if found and found[-1].path == path else None
        if last is None or start > last.end or (start == last.end and of_chunk != chunk_id):
            found.append(Span(path, start, num_bytes))
        else:
            found[-1] = Span(path, last.start, max(last.end, start + num_bytes) - last.start)
        chunk_id = of_chunk
    return found
