"""Copies chunks that are held in DRAM: the host-memory tier."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvio.backends.blocking import blocking
from kvio.backends.config import BackendConfig, BackendKind, HostMemory
from kvio.protocol import KVIOError, Read, ShortReadError


class HostMemReader:
    """Reads what the setting's `HostMemory` holds of files."""

    name = "hostmem"

    def __init__(self, setting: BackendConfig) -> None:
        if not isinstance(setting.placement, HostMemory):
            raise KVIOError("the hostmem backend needs a memory that holds the chunks")
        self._memory = setting.placement

    def open(self, path: Path) -> None:
        """Check that the file is held.

        Raises:
            KVIOError: it is not.
        """
        if not self._memory.held.has(path):
            raise KVIOError(f"{path}: not held in memory; hold it before it is timed")

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes copied into `target`.

        Raises:
            ShortReadError: what is held ends before the read does.
        """
        into = np.frombuffer(target, np.uint8)
        arrived = 0
        for read in reads:
            content, start = self._memory.held.find(read.path, read.file_offset) or (b"", 0)
            found = np.frombuffer(content, np.uint8)[start : start + read.num_bytes]
            if len(found) != read.num_bytes:
                raise ShortReadError(
                    f"{read.path}: {len(found)} of {read.num_bytes} bytes held at offset {read.file_offset}"
                )
            np.copyto(into[read.buffer_offset : read.buffer_offset + read.num_bytes], found)  # frees the GIL
            arrived += read.num_bytes
        return arrived

    def shut(self, path: Path) -> None:
        """Close nothing."""

    def close(self) -> None:
        """Close nothing; the memory is the setting's."""


HOSTMEM = BackendKind(
    "chunks in DRAM, pageable",
    blocking(HostMemReader),
    from_storage=False,
    placement=lambda options, root: HostMemory(),
)
