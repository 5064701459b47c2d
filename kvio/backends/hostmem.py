"""Copies chunks that are held in DRAM: the host-memory tier."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvio.backends.protocol import KVIOError, Read, ShortReadError
from kvio.backends.setting import BackendSetting


class HostMemReader:
    """Reads files that the setting's `HostMemory` holds."""

    name = "hostmem"

    def __init__(self, setting: BackendSetting) -> None:
        if setting.memory is None:
            raise KVIOError("the hostmem backend needs a memory that holds the chunks")
        self._memory = setting.memory

    def open(self, path: Path) -> None:
        """Check that the file is held.

        Raises:
            KVIOError: it is not.
        """
        if path not in self._memory.held:
            raise KVIOError(f"{path}: not held in memory; hold it before it is timed")

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes copied into `target`.

        Raises:
            ShortReadError: the held file ends before the read does.
        """
        into = np.frombuffer(target, np.uint8)
        arrived = 0
        for read in reads:
            held = np.frombuffer(self._memory.held[read.path], np.uint8)
            found = held[read.file_offset : read.file_offset + read.num_bytes]
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
