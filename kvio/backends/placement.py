"""Where chunks lie for a backend that does not read the local files: memory, objects on a server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kvio.file_ranges import Span, whole_files


class Placement(Protocol):
    """Holds copies of chunk files for a backend to read; nothing here is timed.

    Filled once for all samples of a run, unless it is a `SamplePlacement`.

    Args:
        name: what it is and where, the same for two placements that hold the same things.
    """

    name: str

    def open(self) -> None:
        """Find out that things can be placed, and remove what runs that died have left.

        Raises:
            KVIOError: not there, or not permitted.
        """

    def upload(
        self,
        paths: Sequence[Path],
        *,
        packed_bytes: int | None = None,
        before_each: Callable[[], None] | None = None,
    ) -> None:
        """Hold these files, whole; of a placement of samples, nothing else.

        Args:
            paths: the files.
            packed_bytes: `ChunkGeometry.packed_bytes`, for stores whose objects are the stack's own.
            before_each: called before each file; what it raises ends the placing.

        Raises:
            KVIOError: a file cannot be read or placed, or comes back with other bytes.
        """

    def remove(self) -> None:
        """Let go of everything that was placed; must be safe to call twice.

        Raises:
            KVIOError: something is left behind.
        """


class SamplePlacement(ABC):
    """Chunks in the memory of the process that reads, filled before each sample."""

    __slots__ = ()
    name: str

    def open(self) -> None:  # noqa: B027 — memory needs no preparation
        """Nothing outlives a process in its memory."""

    def upload(
        self,
        paths: Sequence[Path],
        *,
        packed_bytes: int | None = None,
        before_each: Callable[[], None] | None = None,
    ) -> None:
        """Hold these files and nothing else, whatever is packed into them."""
        if before_each is not None:
            for _ in paths:
                before_each()
        self.load_into_memory(whole_files(paths))

    @abstractmethod
    def load_into_memory(self, spans: Sequence[Span]) -> None:
        """Hold these parts of files, which do not overlap, and nothing else.

        Raises:
            KVIOError: a file cannot be read, or the memory does not suffice.
        """

    @abstractmethod
    def remove(self) -> None:
        """Hold nothing; safe to call twice."""
