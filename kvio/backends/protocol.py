"""What a way to read must offer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class KVIOError(Exception):
    """Reading or writing KV bytes failed, or would have given a wrong number."""


class ShortReadError(KVIOError):
    """Fewer bytes arrived than were asked for; counting them would make the storage look fast."""


@dataclass(frozen=True, slots=True)
class Read:
    """`num_bytes` of file `path` from `file_offset`, to go to `buffer_offset` of the target."""

    path: Path
    file_offset: int
    num_bytes: int
    buffer_offset: int


class Backend(Protocol):
    """Reads into one host buffer.  One object per reading thread; not shared between threads."""

    name: str

    def open(self, path: Path) -> None:
        """Open `path` for `read`; timed as `open_s`."""

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes that arrived in `target`; all reads are of opened paths.

        Raises:
            ShortReadError: a read gave fewer bytes than asked.
            KVIOError: the file is gone, not permitted, not readable this way.
        """

    def close(self) -> None:
        """Close every file; must be safe to call twice."""
