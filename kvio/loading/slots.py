"""Whose turn the buffers of one thread are: to be read into, or to be copied from."""

from collections import deque
from collections.abc import Callable


class Slots:
    """Numbers of buffers, each free, taken (being read into), or sent (being copied from).

    Args:
        num_slots: one more than are read into at once, so that reads go on while one is copied from.
        settle: waits for the copy out of a slot.
    """

    def __init__(self, num_slots: int, settle: Callable[[int], None]) -> None:
        self._num_slots = num_slots
        self._settle = settle
        self._free = deque(range(num_slots))
        self._sent: deque[int] = deque()

    def take(self) -> int:
        """A free slot, else the one sent first, once its copy is done."""
        if self._free:
            return self._free.popleft()
        slot = self._sent.popleft()
        self._settle(slot)
        return slot

    def send(self, slot: int) -> None:
        """A copy out of this slot is under way."""
        self._sent.append(slot)

    def settle_all(self) -> None:
        """Wait for every copy; all slots are free then, those too whose reads failed."""
        while self._sent:
            self._settle(self._sent.popleft())
        self._free = deque(range(self._num_slots))
