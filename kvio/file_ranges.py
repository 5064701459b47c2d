"""Parts of files that are held in memory."""

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from kvio.errors import KVIOError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """`num_bytes` of file `path` from `start`."""

    path: Path
    start: int
    num_bytes: int

    @property
    def end(self) -> int:
        """The first byte of the file behind it."""
        return self.start + self.num_bytes


def whole_files(paths: Iterable[Path]) -> list[Span]:
    """All of each file.

    Raises:
        KVIOError: one is gone.
    """
    try:
        return [Span(path, 0, path.stat().st_size) for path in paths]
    except OSError as error:
        raise KVIOError(f"{error.filename}: {error.strerror}") from error


@dataclass(slots=True)
class SpanMap(Generic[T]):
    """What is held of files: contents by span.  Spans may touch, and do not overlap."""

    contents: dict[Span, T] = field(default_factory=dict)
    _by_path: dict[Path, list[Span]] = field(default_factory=dict)

    def keep(self, spans: Iterable[Span]) -> list[T]:
        """Hold none but these any more; the contents of the others."""
        kept = self.contents.keys() & set(spans)
        dropped = [content for span, content in self.contents.items() if span not in kept]
        before, self.contents, self._by_path = self.contents, {}, {}
        for span in kept:
            self.put(span, before[span])
        return dropped

    def put(self, span: Span, content: T) -> None:
        """Hold a span."""
        self.contents[span] = content
        insort(self._by_path.setdefault(span.path, []), span, key=_start)

    def has(self, path: Path) -> bool:
        """Whether anything of this file is held."""
        return path in self._by_path

    def find(self, path: Path, offset: int) -> tuple[T, int] | None:
        """The content that holds this byte of a file, if any does, and where in it; None where none begins before it."""
        spans = self._by_path.get(path, [])
        place = bisect_right(spans, offset, key=_start)
        if not place:
            return None
        span = spans[place - 1]
        return self.contents[span], offset - span.start


def _start(span: Span) -> int:
    return span.start
