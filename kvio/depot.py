"""Where chunks lie for a backend that does not read the local files: memory, objects on a server."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

CONTAINER_PREFIX = "chunk-container-"  # of files that hold several objects, one behind another


class Depot(Protocol):
    """Holds copies of chunk files for a backend to read; nothing here is timed.

    Args:
        name: what it is and where, the same for two depots that hold the same things.
        when: "sample": filled before each sample, by the process that reads; "run": filled once for all of them.
    """

    name: str
    when: Literal["sample", "run"]

    def begin(self) -> None:
        """Find out that things can be placed, and remove what runs that died have left.

        Raises:
            KVIOError: not there, or not permitted.
        """

    def place(
        self,
        paths: Sequence[Path],
        *,
        packed_bytes: int | None = None,
        before_each: Callable[[], None] | None = None,
    ) -> None:
        """Hold these files; of a depot of samples, no others.

        Args:
            paths: the files.
            packed_bytes: `ChunkGeometry.packed_bytes`, for stores whose objects are the stack's own.
            before_each: called before each file; what it raises ends the placing.

        Raises:
            KVIOError: a file cannot be read or placed, or comes back with other bytes.
        """

    def withdraw(self) -> None:
        """Let go of everything that was placed; must be safe to call twice.

        Raises:
            KVIOError: something is left behind.
        """
