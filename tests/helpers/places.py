"""Where tests put files: on a disk that can be evicted to, or in memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvio.evidence.storage_device import describe_storage


def require_disk(folder: Path) -> Path:
    """`folder`, if it lies on a disk whose counters can be read; else the test is skipped."""
    storage = describe_storage(folder)
    if storage.device is None or storage.device.unproved is not None:
        pytest.skip(f"{folder} is on {storage.name}: no disk to evict to")
    return folder


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder on tmpfs."""
    folder = Path("/dev/shm") / f"kvcross-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def avoid_memory(folder: Path) -> Path:
    """`folder`, unless it is in memory, where a sweep of files is refused; else the test is skipped."""
    storage = describe_storage(folder)
    if storage.in_memory:
        pytest.skip(f"{folder} is on {storage.name}: no sweep of files there")
    return folder
