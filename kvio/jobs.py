"""What one thread does at a time: read one chunk, and put its tokens where they belong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from kvio.backends.protocol import Read
from kvio.blocks import KVBlocks
from kvio.chunks import ByteRange, ChunkGeometry, Segment
from kvio.files import Bytes


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
    """

    group: int | None
    planes: range
    slot_offset: int
    stride_tokens: int
    token_bytes: int
    first_token: int
    num_tokens: int

    def destination(self, blocks: KVBlocks) -> torch.Tensor:
        """The view of the blocks to fill, (num_planes, num_tokens, token_bytes)."""
        group = blocks.state.view(1, -1, 1) if self.group is None else blocks.groups[self.group]
        planes = group[self.planes.start : self.planes.stop : self.planes.step]
        return planes[:, self.first_token : self.first_token + self.num_tokens]

    def within(self, slot: Bytes) -> Bytes:
        """The view of a bounce buffer to copy from, (num_planes, num_tokens, token_bytes)."""
        num_bytes = len(self.planes) * self.stride_tokens * self.token_bytes
        flat = slot[self.slot_offset : self.slot_offset + num_bytes]
        return flat.reshape(len(self.planes), self.stride_tokens, self.token_bytes)[:, : self.num_tokens]


@dataclass(frozen=True, slots=True)
class Job:
    """What one thread reads of one file without a pause.

    Args:
        path: the file.
        chunk_id: number of the chunk's file in the store; None for a state.
        payload_offset: where in the payload the bounce buffer begins.
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
    geometry: ChunkGeometry,
    chunks: Sequence[tuple[int, Path]],
    *,
    first_token: int,
    prefix_tokens: int,
    state: Path | None = None,
) -> tuple[Job, ...]:
    """The jobs that bring tokens [first_token, prefix_tokens) in, front to back, then the states.

    Args:
        geometry: of the chunks.
        chunks: number in the store and file of each chunk that holds these tokens, in order.
        first_token, prefix_tokens: tokens; whole chunks are read, tokens beyond the prefix go nowhere.
        state: the state's file; None brings no states.
    """
    indices = geometry.chunks_between(first_token, prefix_tokens)
    jobs = [
        _chunk_job(geometry, unit, index=index, chunk=chunk, prefix_tokens=prefix_tokens)
        for index, chunk in zip(indices, chunks, strict=True)
        for unit in geometry.units_for(index, prefix_tokens)
    ]
    if state is not None:
        jobs.extend(_state_job(geometry, state, unit) for unit in geometry.state_units())
    return tuple(jobs)


def _chunk_job(
    geometry: ChunkGeometry, unit: ByteRange, *, index: int, chunk: tuple[int, Path], prefix_tokens: int
) -> Job:
    chunk_id, path = chunk
    start = unit.file_offset - geometry.preset.header_bytes
    first_token = index * geometry.chunk_tokens
    num_tokens = min(geometry.chunk_tokens, prefix_tokens - first_token)
    pieces = tuple(
        Piece(
            part.group,
            planes,
            max(part.payload_offset - start, 0),
            geometry.chunk_tokens,
            part.token_bytes,
            first_token,
            num_tokens,
        )
        for part in geometry.needed_segments(index, prefix_tokens)
        if (planes := _planes_within(part, start, start + unit.num_bytes))
    )
    return Job(path, chunk_id, start, _reads(geometry, path, unit), pieces)


def _planes_within(part: Segment, start: int, end: int) -> range:
    """The planes of a segment that lie in bytes [start, end) of the payload; none is cut in two."""
    plane_bytes = part.num_bytes // len(part.planes)
    first = max(start - part.payload_offset, 0) // plane_bytes
    last = max(end - part.payload_offset, 0) // plane_bytes
    return part.planes[first:last]


def _reads(geometry: ChunkGeometry, path: Path, unit: ByteRange) -> tuple[Read, ...]:
    return tuple(
        Read(path, part.file_offset, part.num_bytes, part.file_offset - unit.file_offset)
        for part in geometry.split(unit)
    )


def _state_job(geometry: ChunkGeometry, path: Path, unit: ByteRange) -> Job:
    start = unit.file_offset
    num_tokens = min(unit.num_bytes, geometry.layout.state_bytes - start)
    piece = Piece(None, range(1), 0, num_tokens, 1, start, num_tokens)
    return Job(path, None, start, _reads(geometry, path, unit), (piece,))


def by_chunk(jobs: Sequence[Job]) -> Iterator[tuple[int, list[Job]]]:
    """The jobs of each chunk, which several threads may share; states are left out."""
    for chunk_id, found in groupby(jobs, lambda job: job.chunk_id):
        if chunk_id is not None:
            yield chunk_id, list(found)


def collect(job: Job, blocks: KVBlocks, payload: Bytes) -> None:
    """Copy what `job` brought in back out of the blocks, to where it lies in the chunk's payload.

    A payload is whole only after all jobs of its chunk (`by_chunk`).
    """
    for piece in job.pieces:
        np.copyto(piece.within(payload[job.payload_offset :]), piece.destination(blocks).cpu().numpy())
