"""What one thread does at a time: read one chunk, and put its tokens where they belong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from kvio.backends.protocol import Read
from kvio.blocks import KVBlocks
from kvio.chunks import ByteRange, ChunkGeometry
from kvio.files import Bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a bounce buffer, (num_planes, stride_tokens, token_bytes), and where its tokens go.

    Args:
        group: index of the group in the blocks; None is the linear-attention state, a token a byte.
        planes: positions in the group.
        slot_offset: first byte in the bounce buffer, which is also the offset in the payload.
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
    """One read of one file.

    Args:
        path: the file.
        chunk_id: number of the chunk's file in the store; None for a state.
        reads: what is asked of the backend.
        pieces: where the bytes go.
    """

    path: Path
    chunk_id: int | None
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
    jobs = [
        Job(
            path,
            chunk_id,
            _reads(path, geometry.reads_for(index, prefix_tokens), geometry.preset.header_bytes),
            _pieces(geometry, index, prefix_tokens),
        )
        for index, (chunk_id, path) in zip(
            geometry.chunks_between(first_token, prefix_tokens), chunks, strict=True
        )
    ]
    if state is not None:
        jobs.extend(_state_job(geometry, state, ranges) for ranges in geometry.state_reads())
    return tuple(job for job in jobs if job.reads)


def _reads(path: Path, ranges: Sequence[ByteRange], base_offset: int) -> tuple[Read, ...]:
    return tuple(
        Read(path, part.file_offset, part.num_bytes, part.file_offset - base_offset) for part in ranges
    )


def _pieces(geometry: ChunkGeometry, index: int, prefix_tokens: int) -> tuple[Piece, ...]:
    first_token = index * geometry.chunk_tokens
    num_tokens = min(geometry.chunk_tokens, prefix_tokens - first_token)
    return tuple(
        Piece(
            part.group,
            part.planes,
            part.payload_offset,
            geometry.chunk_tokens,
            part.token_bytes,
            first_token,
            num_tokens,
        )
        for part in geometry.needed_segments(index, prefix_tokens)
    )


def _state_job(geometry: ChunkGeometry, path: Path, ranges: Sequence[ByteRange]) -> Job:
    start = ranges[0].file_offset
    end = min(ranges[-1].file_offset + ranges[-1].num_bytes, geometry.layout.state_bytes)
    piece = Piece(None, range(1), 0, end - start, 1, start, end - start)
    return Job(path, None, _reads(path, ranges, start), (piece,))


def collect(job: Job, blocks: KVBlocks, image: Bytes) -> None:
    """Copy what `job` brought in back out of the blocks, to where it lies in the payload `image`."""
    for piece in job.pieces:
        np.copyto(piece.within(image), piece.destination(blocks).cpu().numpy())
