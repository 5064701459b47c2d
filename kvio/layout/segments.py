"""How the planes of one chunk lie one behind another: its objects, and the segments within them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvio.alignment import round_up
from kvio.layout.planes import KVLayout, PlaneGroup
from kvio.layout.presets import Preset


@dataclass(frozen=True, slots=True)
class Segment:
    """Planes of one group that lie side by side in a chunk: (num_planes, chunk_tokens, token_bytes).

    Args:
        object_number: which of the chunk's objects holds them.
        group: index in `KVLayout.groups`.
        planes: their positions in the group.
        payload_offset, num_bytes: where they lie in the chunk's payload.
        token_bytes: bytes of one token in one plane.
        window_tokens: tokens kept, None for all.
        interleaved: they lie token by token instead: (chunk_tokens, num_planes, token_bytes).
    """

    object_number: int
    group: int
    planes: range
    payload_offset: int
    num_bytes: int
    token_bytes: int
    window_tokens: int | None
    interleaved: bool

    @property
    def end(self) -> int:
        """The payload offset behind it."""
        return self.payload_offset + self.num_bytes

    @property
    def part_bytes(self) -> int:
        """What is never cut in two: a plane, or all of an interleaved segment."""
        return self.num_bytes if self.interleaved else self.num_bytes // len(self.planes)

    def is_needed(self, last_token: int, prefix_tokens: int) -> bool:
        """True when a prefix of `prefix_tokens` still attends to tokens before `last_token`."""
        return self.window_tokens is None or last_token > prefix_tokens - self.window_tokens

    def planes_within(self, start: int, end: int) -> range:
        """The planes that lie in bytes [start, end) of the payload; none is cut in two."""
        if self.interleaved:
            return self.planes if start <= self.payload_offset and self.end <= end else range(0)
        first = max(start - self.payload_offset, 0) // self.part_bytes
        last = max(end - self.payload_offset, 0) // self.part_bytes
        return self.planes[first:last]


@dataclass(frozen=True, slots=True)
class ChunkObject:
    """What a stack stores under one name, or in one slot of a larger file: a header and part of a chunk.

    Args:
        number: position among the objects of a chunk.
        payload_offset, payload_bytes: the part of the chunk's payload.
        header_bytes: bytes before it.
        align_bytes: its end is padded to a multiple of this.
    """

    number: int
    payload_offset: int
    payload_bytes: int
    header_bytes: int
    align_bytes: int

    @property
    def file_bytes(self) -> int:
        """Header and payload."""
        return self.header_bytes + self.payload_bytes

    @property
    def padded_bytes(self) -> int:
        """Header, payload and padding."""
        return round_up(self.file_bytes, self.align_bytes)


def lay_out(layout: KVLayout, preset: Preset) -> tuple[Segment, ...]:
    """The segments of a chunk's payload, front to back, object by object."""
    found: list[Segment] = []
    offset = 0
    for object_number, key in enumerate(_object_keys(layout, preset)):
        for group_number, group in enumerate(layout.groups):
            for planes in _runs(_positions(group, preset, key)):
                num_bytes = len(planes) * group.token_bytes * preset.chunk_tokens
                found.append(
                    Segment(
                        object_number,
                        group_number,
                        planes,
                        offset,
                        num_bytes,
                        group.token_bytes,
                        group.window_tokens,
                        preset.order == "token-major",
                    )
                )
                offset += num_bytes
    return tuple(found)


def objects_of(segments: Sequence[Segment], preset: Preset) -> tuple[ChunkObject, ...]:
    """The objects that hold these segments."""
    found: list[ChunkObject] = []
    for number in range(segments[-1].object_number + 1):
        parts = [part for part in segments if part.object_number == number]
        start = parts[0].payload_offset
        found.append(
            ChunkObject(number, start, parts[-1].end - start, preset.header_bytes, preset.align_bytes)
        )
    return tuple(found)


def _object_keys(layout: KVLayout, preset: Preset) -> list[int | str | None]:
    """What each object of a chunk holds: a layer, a role, or everything (None)."""
    if preset.partition == "layer":
        return list(dict.fromkeys(plane.layer for plane in layout.planes))
    if preset.partition == "role":
        return list(dict.fromkeys(plane.role for plane in layout.planes))
    return [None]


def _positions(group: PlaneGroup, preset: Preset, key: int | str | None) -> list[int]:
    """Positions of the planes of `group` that the object `key` holds, in their order there."""
    positions = [
        position for position, plane in enumerate(group.planes) if key in {None, plane.layer, plane.role}
    ]
    if preset.order == "role-major":
        roles = list(dict.fromkeys(plane.role for plane in group.planes))
        positions.sort(key=lambda position: roles.index(group.planes[position].role))
    return positions


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
