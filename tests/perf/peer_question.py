"""What a child process is asked: to read these files, at this depth."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MARK_BYTES = 8


@dataclass(frozen=True)
class Question:
    """One reading; `marks` are the first and last bytes of each file, in hexadecimal."""

    reader: str
    folder: str
    paths: list[str]
    marks: list[list[str]]
    request_bytes: int
    depth: int

    @classmethod
    def parse(cls, line: str) -> "Question":
        """From a line of JSON."""
        return cls(**json.loads(line))

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return self.request_bytes * len(self.paths)

    @property
    def shares(self) -> list[range]:
        """The numbers of the files, dealt out to as many readers as the depth."""
        count = len(self.paths)
        return [range(first, count, self.depth) for first in range(min(self.depth, count))]

    def link(self, names: Iterable[str | Path]) -> None:
        """Give every file the name that a package looks for."""
        for path, name in zip(self.paths, map(Path, names), strict=True):
            if not name.exists():
                name.parent.mkdir(parents=True, exist_ok=True)
                name.hardlink_to(path)

    def require_marks(self, parts: Iterable[memoryview]) -> int:
        """Bytes in `parts`, whose ends must be those of the files."""
        found = list(parts)
        for part, marks in zip(found, self.marks, strict=True):
            if [bytes(part[:MARK_BYTES]).hex(), bytes(part[-MARK_BYTES:]).hex()] != marks:
                raise RuntimeError("the reader was done, and other bytes than the file's arrived")
        return sum(len(part) for part in found)


def spoil(parts: Iterable[memoryview]) -> None:
    """Overwrite the ends of each part, so that bytes that never arrive cannot pass for the file's."""
    for part in parts:
        part[:MARK_BYTES] = part[-MARK_BYTES:] = bytes(MARK_BYTES)
