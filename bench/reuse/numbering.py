"""Numbers block ids of any size from 0 in order of first appearance, piece by piece while a trace is read."""

import numpy as np
from numpy.typing import NDArray

from bench.reuse import jit as compiled
from bench.reuse.jit import inner, kernel

EMPTY = -1
FIRST_SLOTS = 1 << 16
# 2^64 / golden ratio as a signed number (D. E. Knuth, The Art of Computer Programming 3, section 6.4)
GOLDEN = -7046029254386353131


@inner
def _find_slot(keys: NDArray[np.int64], numbers: NDArray[np.int32], key: int) -> int:
    """Where the key is, or where it would go: open addressing, linear probing."""
    mask = len(keys) - 1
    mixed = (key ^ (key >> 32)) * GOLDEN
    slot = (mixed ^ (mixed >> 29)) & mask
    while numbers[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def _number_all(
    raw: NDArray[np.int64],
    keys: NDArray[np.int64],
    numbers: NDArray[np.int32],
    count: NDArray[np.int64],
    found: NDArray[np.int32],
) -> None:
    for position in range(len(raw)):
        slot = _find_slot(keys, numbers, raw[position])
        if numbers[slot] == EMPTY:
            keys[slot] = raw[position]
            numbers[slot] = count[0]
            count[0] += 1
        found[position] = numbers[slot]


@kernel
def _move_all(
    old_keys: NDArray[np.int64],
    old_numbers: NDArray[np.int32],
    keys: NDArray[np.int64],
    numbers: NDArray[np.int32],
) -> None:
    for old in range(len(old_keys)):
        if old_numbers[old] != EMPTY:
            slot = _find_slot(keys, numbers, old_keys[old])
            keys[slot] = old_keys[old]
            numbers[slot] = old_numbers[old]


class Numbering:
    """What number each id has got so far; 24 to 48 bytes per different id when compiled."""

    def __init__(self) -> None:
        self._names: dict[int, int] = {}
        self._count = np.zeros(1, dtype=np.int64)
        self._keys = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self._numbers = np.full(FIRST_SLOTS, EMPTY, dtype=np.int32)

    def number(self, raw: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The number of each id, new ones for those never seen."""
        if compiled.numba is None:
            names = self._names
            return np.array([names.setdefault(block, len(names)) for block in raw.tolist()], dtype=np.int32)
        if 2 * (int(self._count[0]) + len(raw)) > len(self._keys):
            self._grow(2 * (int(self._count[0]) + len(raw)))
        found = np.empty(len(raw), dtype=np.int32)
        _number_all(raw.view(np.int64), self._keys, self._numbers, self._count, found)
        return found

    def _grow(self, least: int) -> None:
        size = 1 << (least - 1).bit_length()
        keys, numbers = np.zeros(size, dtype=np.int64), np.full(size, EMPTY, dtype=np.int32)
        _move_all(self._keys, self._numbers, keys, numbers)
        self._keys, self._numbers = keys, numbers
