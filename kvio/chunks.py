"""Where every plane of a chunk lies in its file, and which bytes of the file a prefix needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from kvio.alignment import DIRECT_ALIGN_BYTES, round_up
from kvio.backends.protocol import KVIOError
from kvio.layout import KVLayout, PlaneGroup
from kvio.presets import Preset


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`num_bytes` of a file from `file_offset`."""

    file_offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Planes of one group that lie side by side in a chunk: (num_planes, chunk_tokens, token_bytes).

    Args:
        group: index in `KVLayout.groups`.
        planes: their positions in the group.
        payload_offset, num_bytes: where they lie in the payload.
        token_bytes: bytes of one token in one plane.
        window_tokens: tokens kept, None for all.
    """

    group: int
    planes: range
    payload_offset: int
    num_bytes: int
    token_bytes: int
    window_tokens: int | None

    def is_needed(self, last_token: int, prefix_tokens: int) -> bool:
        """True when a prefix of `prefix_tokens` still attends to tokens before `last_token`."""
        return self.window_tokens is None or last_token > prefix_tokens - self.window_tokens


@dataclass(frozen=True)
class ChunkGeometry:
    """The chunks of one model's KV under one preset.

    A chunk is stored and read whole whatever the prefix needs of its tokens: stacks allocate it fully, and a
    last, partly used chunk costs as much to read as a full one.  `payload_bytes_between` says what is needed.

    Raises:
        KVIOError: the layout keeps nothing per token, or a size under O_DIRECT is not a multiple of 4096.
    """

    layout: KVLayout
    preset: Preset

    def __post_init__(self) -> None:
        if not self.layout.planes:
            raise KVIOError("the layout keeps nothing per token: there are no chunks to load")
        request_bytes = self.preset.request_bytes
        if self.direct and request_bytes is not None and request_bytes % DIRECT_ALIGN_BYTES:
            raise KVIOError(
                f"request_bytes is {request_bytes}, not a multiple of {DIRECT_ALIGN_BYTES} as O_DIRECT needs"
            )

    @property
    def chunk_tokens(self) -> int:
        """Tokens in one chunk."""
        return self.preset.chunk_tokens

    @property
    def payload_bytes(self) -> int:
        """KV bytes of one chunk."""
        return self.layout.bytes_per_token * self.chunk_tokens

    @property
    def file_bytes(self) -> int:
        """Bytes of one chunk's file, padding left out."""
        return self.preset.header_bytes + self.payload_bytes

    @property
    def padded_bytes(self) -> int:
        """Bytes of one chunk's file."""
        return round_up(self.file_bytes, self.preset.align_bytes)

    @property
    def state_file_bytes(self) -> int:
        """Bytes of the file with the linear-attention states; 0 when there are none."""
        return round_up(self.layout.state_bytes, max(self.preset.align_bytes, DIRECT_ALIGN_BYTES))

    @property
    def direct(self) -> bool:
        """True when O_DIRECT is asked for and every chunk can be read that way."""
        aligned = self.padded_bytes % DIRECT_ALIGN_BYTES == 0
        return self.preset.direct and aligned and self.preset.header_bytes % DIRECT_ALIGN_BYTES == 0

    @property
    def slot_bytes(self) -> int:
        """Bytes of a bounce buffer that holds the largest unit, padding included."""
        padding_bytes = self.padded_bytes - self.file_bytes
        largest_bytes = max(end - start for start, end in pairwise(self.cuts))
        return round_up(largest_bytes + padding_bytes, DIRECT_ALIGN_BYTES)

    @property
    def notices(self) -> dict[str, str]:
        """What makes this geometry suspect, by code."""
        found: dict[str, str] = {}
        padding_bytes = self.padded_bytes - self.file_bytes
        if padding_bytes:
            found["padded_chunk"] = (
                f"a chunk of {self.chunk_tokens} tokens is {self.file_bytes} bytes, not a multiple of "
                f"{self.preset.align_bytes}: {padding_bytes} bytes of padding are stored and read with it"
            )
        if self.preset.direct and not self.direct:
            found["direct_lost"] = (
                f"a chunk of {self.chunk_tokens} tokens is {self.padded_bytes} bytes after a header of "
                f"{self.preset.header_bytes}, not a multiple of {DIRECT_ALIGN_BYTES}: "
                f"{self.preset.stack} loses O_DIRECT here, and the files are read through the page cache"
            )
        return found

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The chunk's payload from front to back."""
        found: list[Segment] = []
        offset = 0
        for number, group in enumerate(self.layout.groups):
            for planes in _runs(self._positions(group)):
                num_bytes = len(planes) * group.token_bytes * self.chunk_tokens
                found.append(
                    Segment(number, planes, offset, num_bytes, group.token_bytes, group.window_tokens)
                )
                offset += num_bytes
        return tuple(found)

    def _positions(self, group: PlaneGroup) -> list[int]:
        positions = list(range(len(group.planes)))
        if self.preset.order == "role-major":
            roles = list(dict.fromkeys(plane.role for plane in group.planes))
            positions.sort(key=lambda position: roles.index(group.planes[position].role))
        return positions

    def chunks_between(self, first_token: int, last_token: int) -> range:
        """Indices of the chunks that hold tokens [first_token, last_token)."""
        if last_token <= first_token:
            return range(0)
        return range(first_token // self.chunk_tokens, -(-last_token // self.chunk_tokens))

    def needed_segments(self, chunk_index: int, prefix_tokens: int) -> tuple[Segment, ...]:
        """The front segments of a chunk that a prefix of `prefix_tokens` still needs."""
        first_token = chunk_index * self.chunk_tokens
        if first_token >= prefix_tokens:
            raise KVIOError(
                f"chunk {chunk_index} begins at token {first_token}, beyond a prefix of {prefix_tokens}"
            )
        last_token = min(first_token + self.chunk_tokens, prefix_tokens)
        return tuple(part for part in self.segments if part.is_needed(last_token, prefix_tokens))

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Payload offsets between which different threads may read: whole planes, `request_bytes` at most.

        One plane is never cut, nor, under O_DIRECT, what does not end on an aligned offset.
        """
        unit_bytes = self.preset.request_bytes or self.payload_bytes
        found = [0]
        allowed = 0
        for part in self.segments:
            plane_bytes = part.num_bytes // len(part.planes)
            for start in range(part.payload_offset, part.payload_offset + part.num_bytes, plane_bytes):
                if not self.direct or start % DIRECT_ALIGN_BYTES == 0:
                    allowed = start
                if start + plane_bytes - found[-1] > unit_bytes and allowed > found[-1]:
                    found.append(allowed)
        return (*found, self.payload_bytes)

    def units_for(self, chunk_index: int, prefix_tokens: int) -> tuple[ByteRange, ...]:
        """The parts of a chunk's file that a prefix of `prefix_tokens` needs, each for one thread.

        The last chunk is needed whole, even if one token of it is wanted; a chunk that all windows have left
        behind is not needed at all.
        """
        needed = self.needed_segments(chunk_index, prefix_tokens)
        end_bytes = self.padded_bytes
        if self.preset.front_reads:
            if not needed:
                return ()
            end_bytes = self.preset.header_bytes + needed[-1].payload_offset + needed[-1].num_bytes
        if self.direct:
            end_bytes = round_up(end_bytes, DIRECT_ALIGN_BYTES)
        starts = [self.preset.header_bytes + cut for cut in self.cuts[:-1]]
        starts = [start for start in starts if start < end_bytes]
        return tuple(
            ByteRange(start, end - start) for start, end in zip(starts, (*starts[1:], end_bytes), strict=True)
        )

    def reads_for(self, chunk_index: int, prefix_tokens: int) -> tuple[ByteRange, ...]:
        """The reads of a chunk's file that a prefix of `prefix_tokens` needs, front to back."""
        units = self.units_for(chunk_index, prefix_tokens)
        return tuple(read for unit in units for read in self.split(unit))

    def state_units(self) -> tuple[ByteRange, ...]:
        """The parts of the state file, each for one thread."""
        end_bytes = self.state_file_bytes
        return tuple(
            ByteRange(start, min(self.slot_bytes, end_bytes - start))
            for start in range(0, end_bytes, self.slot_bytes)
        )

    def split(self, unit: ByteRange) -> Iterator[ByteRange]:
        """The reads of one unit, `request_bytes` each at most."""
        step = self.preset.request_bytes or unit.num_bytes
        for start in range(0, unit.num_bytes, step):
            yield ByteRange(unit.file_offset + start, min(step, unit.num_bytes - start))

    def payload_bytes_between(self, first_token: int, prefix_tokens: int) -> int:
        """KV bytes that a prefix of `prefix_tokens` needs of its tokens from `first_token` on; no states."""
        total = 0
        for plane in self.layout.planes:
            kept_from = prefix_tokens - plane.tokens_kept(prefix_tokens)
            total += plane.token_bytes * max(0, prefix_tokens - max(first_token, kept_from))
        return total


def _runs(positions: Sequence[int]) -> Iterator[range]:
    """`positions` in order, as few evenly stepped ranges as a single pass finds."""
    start = 0
    while start < len(positions):
        step = positions[start + 1] - positions[start] if start + 1 < len(positions) else 1
        end = start + 1
        while end < len(positions) and step > 0 and positions[end] - positions[end - 1] == step:
            end += 1
        yield range(positions[start], positions[start] + (end - start) * max(step, 1), max(step, 1))
        start = end
