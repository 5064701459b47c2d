"""Which bytes of a chunk's objects a prefix needs, and with which reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from kvio.alignment import DIRECT_ALIGN_BYTES, round_up
from kvio.layout.planes import KVLayout
from kvio.layout.presets import Preset
from kvio.layout.segments import ChunkObject, Segment, lay_out, objects_of
from kvio.protocol import KVIOError


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`num_bytes` from `file_offset` of an object.

    Args:
        file_offset: from where the object begins; that may be anywhere in a larger file.
        num_bytes: how many.
        object_number: which of the chunk's objects.
    """

    file_offset: int
    num_bytes: int
    object_number: int = 0


@dataclass(frozen=True)
class ChunkGeometry:
    """The chunks of one model's KV under one preset.

    A chunk is stored and read whole whatever the prefix needs of its tokens: stacks allocate it fully, and a
    last, partly used chunk costs as much to read as a full one.  `payload_bytes_between` gives what is needed.

    A file that holds several objects, of one chunk or of many::

        | header | payload | padding | header | payload | padding | ...
        |<----- stride_bytes ------->|  from one object to the next; packed_bytes is the same,
                                        and None where each object has a file of its own
        padded_bytes                    all objects of one chunk, each with header and padding
        slot_bytes                      a bounce buffer: the largest unit of one read, with header and
                                        padding, rounded up to 4096

    Raises:
        KVIOError: the layout keeps nothing per token, or a size under O_DIRECT is not a multiple of 4096.
    """

    layout: KVLayout
    preset: Preset

    def __post_init__(self) -> None:
        if not self.layout.planes:
            raise KVIOError("the layout keeps nothing per token: there are no chunks to load")
        if self.preset.container_bytes is not None and len({part.padded_bytes for part in self.objects}) > 1:
            raise KVIOError(
                f"{self.preset.name}: objects of different sizes cannot share a file with fixed slots"
            )
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

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The chunk's payload from front to back."""
        return lay_out(self.layout, self.preset)

    @cached_property
    def objects(self) -> tuple[ChunkObject, ...]:
        """The objects that a chunk is stored as."""
        return objects_of(self.segments, self.preset)

    @property
    def padded_bytes(self) -> int:
        """Bytes that one chunk takes on disk, headers and padding included."""
        return sum(part.padded_bytes for part in self.objects)

    @property
    def stride_bytes(self) -> int:
        """Bytes from one object to the next where several lie in one file."""
        return max(part.padded_bytes for part in self.objects)

    @property
    def packed_bytes(self) -> int | None:
        """Bytes of each object where a file holds several; None where each has a file of its own."""
        return None if self.preset.container_bytes is None else self.stride_bytes

    @property
    def state_file_bytes(self) -> int:
        """Bytes of the file with the linear-attention states; 0 when there are none."""
        return round_up(self.layout.state_bytes, max(self.preset.align_bytes, DIRECT_ALIGN_BYTES))

    @property
    def direct(self) -> bool:
        """True when O_DIRECT is asked for and every object can be read that way."""
        sizes = (self.preset.header_bytes, self.stride_bytes, *(part.padded_bytes for part in self.objects))
        return self.preset.direct and all(size % DIRECT_ALIGN_BYTES == 0 for size in sizes)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a bounce buffer that holds the largest unit, header and padding included."""
        header_bytes = self.preset.header_bytes if self.preset.reads_header else 0
        largest_bytes = max(end - start for cuts in self._cuts for start, end in pairwise(cuts))
        padding_bytes = max(part.padded_bytes - part.file_bytes for part in self.objects)
        return round_up(header_bytes + largest_bytes + padding_bytes, DIRECT_ALIGN_BYTES)

    @property
    def notices(self) -> dict[str, str]:
        """What makes this geometry suspect, by code."""
        found: dict[str, str] = {}
        kept_bytes = sum(part.file_bytes for part in self.objects)
        padding_bytes = self.padded_bytes - kept_bytes
        if padding_bytes:
            found["padded_chunk"] = (
                f"a chunk of {self.chunk_tokens} tokens is {kept_bytes} bytes in {len(self.objects)} objects, not "
                f"multiples of {self.preset.align_bytes}: {padding_bytes} bytes of padding are stored and read with it"
            )
        if self.preset.direct and not self.direct:
            found["direct_lost"] = (
                f"a chunk of {self.chunk_tokens} tokens is {self.padded_bytes} bytes in {len(self.objects)} objects with "
                f"headers of {self.preset.header_bytes}, not multiples of {DIRECT_ALIGN_BYTES}: "
                f"{self.preset.stack} loses O_DIRECT here, and the files are read through the page cache"
            )
        return found

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
    def _cuts(self) -> tuple[tuple[int, ...], ...]:
        """By object, payload offsets between which different threads may read: whole planes, `request_bytes` at most.

        One plane is never cut, nor, under O_DIRECT, what does not end on an aligned offset.
        """
        unit_bytes = self.preset.request_bytes or self.payload_bytes
        return tuple(
            (*self._cuts_of(part, unit_bytes), part.payload_offset + part.payload_bytes)
            for part in self.objects
        )

    def _cuts_of(self, holder: ChunkObject, unit_bytes: int) -> Iterator[int]:
        """Payload offsets at which the units of one object begin."""
        last = allowed = holder.payload_offset
        yield last
        for start, end in self._parts_of(holder):
            if self._may_cut(holder, start):
                allowed = start
            if end - last > unit_bytes and allowed > last:
                last = allowed
                yield last

    def _parts_of(self, holder: ChunkObject) -> Iterator[tuple[int, int]]:
        """Payload offsets of what is never cut in two: planes, or interleaved segments."""
        for part in self.segments:
            if part.object_number == holder.number:
                for start in range(part.payload_offset, part.end, part.part_bytes):
                    yield start, start + part.part_bytes

    def _may_cut(self, holder: ChunkObject, payload_offset: int) -> bool:
        return not self.direct or (payload_offset - holder.payload_offset) % DIRECT_ALIGN_BYTES == 0

    def units_for(self, chunk_index: int, prefix_tokens: int) -> tuple[ByteRange, ...]:
        """The parts of a chunk's objects that a prefix of `prefix_tokens` needs, each for one thread.

        The last chunk is needed whole, even if one token of it is wanted; with `front_reads`, what all windows
        have left behind is not needed at all.
        """
        needed = self.needed_segments(chunk_index, prefix_tokens)
        return tuple(unit for part in self.objects for unit in self._units_of(part, needed))

    def _units_of(self, holder: ChunkObject, needed: tuple[Segment, ...]) -> Iterator[ByteRange]:
        end_bytes = holder.padded_bytes
        if self.preset.front_reads:
            kept = [part.end for part in needed if part.object_number == holder.number]
            if not kept:
                return
            end_bytes = holder.header_bytes + kept[-1] - holder.payload_offset
        if self.direct:
            end_bytes = round_up(end_bytes, DIRECT_ALIGN_BYTES)
        before = holder.header_bytes - holder.payload_offset
        starts = [before + cut for cut in self._cuts[holder.number][:-1]]
        if self.preset.reads_header:
            starts[0] = 0
        starts = [start for start in starts if start < end_bytes]
        for start, end in zip(starts, (*starts[1:], end_bytes), strict=True):
            yield ByteRange(start, end - start, holder.number)

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

    @property
    def reads_per_unit(self) -> int:
        """Reads of the part of a chunk that has most of them."""
        return max(len(tuple(self.split(unit))) for unit in self.units_for(0, self.chunk_tokens))

    def split(self, unit: ByteRange) -> Iterator[ByteRange]:
        """The reads of one unit, `request_bytes` each at most; the header, and planes, apart where the stack does."""
        end = unit.file_offset + unit.num_bytes
        stops = [
            stop for stop in self._stops(self.objects[unit.object_number]) if unit.file_offset < stop < end
        ]
        for start, stop in pairwise((unit.file_offset, *stops, end)):
            step = self.preset.request_bytes or stop - start
            for offset in range(start, stop, step):
                yield ByteRange(offset, min(step, stop - offset), unit.object_number)

    def _stops(self, holder: ChunkObject) -> Iterator[int]:
        """Offsets in an object at which a read ends whatever its size."""
        if self.preset.reads_header:
            yield holder.header_bytes
        if self.preset.plane_reads:
            for _, end in self._parts_of(holder):
                if self._may_cut(holder, end):
                    yield holder.header_bytes + end - holder.payload_offset

    def payload_bytes_between(self, first_token: int, prefix_tokens: int) -> int:
        """KV bytes that a prefix of `prefix_tokens` needs of its tokens from `first_token` on; no states."""
        total = 0
        for plane in self.layout.planes:
            kept_from = prefix_tokens - plane.tokens_kept(prefix_tokens)
            total += plane.token_bytes * max(0, prefix_tokens - max(first_token, kept_from))
        return total
