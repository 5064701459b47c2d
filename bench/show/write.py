"""Files that are whole or not there: a kill leaves the old content or the new."""

import os
from pathlib import Path


def write_bytes_safely(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step, on the disk before it returns."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
