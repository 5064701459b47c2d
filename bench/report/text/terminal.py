"""The terminal or log that people read: standard output, and tables on it.

A failed write to standard output never stops a sweep or the writing of results.
"""

import errno
import io
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bench.record.units import printable

LOG_WIDTH = 100_000  # characters, more than any table has
# how a stream that the shell closed is opened: writes to standard output must fail, not be lost
STREAMS = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class StandardOutput(io.TextIOBase):
    """`sys.stdout` of the moment; after a failed write the rest is dropped and `error` says why."""

    error: OSError | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream below."""
        return "utf-8" if sys.stdout is None else sys.stdout.encoding

    def write(self, text: str) -> int:
        """Write, or keep the error."""
        try:
            return sys.stdout.write(text)
        except OSError as error:
            self._drop_rest(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or keep the error."""
        try:
            sys.stdout.flush()
        except OSError as error:
            self._drop_rest(error)

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return sys.stdout is not None and sys.stdout.isatty()

    def fileno(self) -> int:
        """Descriptor of the stream below."""
        return sys.stdout.fileno()

    def _drop_rest(self, error: OSError) -> None:
        self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


class StdoutConsole(Console):
    """A console that prints plain text without control characters: names and notices may come from elsewhere."""

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 — as rich has it
        """Print; tables and other rich values must have cleaned their own text."""
        super().print(*(_clean(one) if isinstance(one, str) else one for one in objects), **options)

    def show(self, shown: RenderableType) -> None:
        """Print a table or a group of them; in a log as wide as they need."""
        if self.is_terminal:
            self.print(shown)
        else:
            self.print(plain(shown), markup=False)


def _clean(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def render(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[int] = (),
    styles: Sequence[str] = (),
) -> Table:
    """A table for a terminal or, with `plain`, for a log.

    Args:
        left: columns that are left-aligned; the others are right-aligned.
        styles: one for each row, such as "green".
    """
    table = Table(box=None, pad_edge=False)
    for column, heading in enumerate(headings):
        # Text, not str: cells must not be read as markup
        table.add_column(Text(heading), justify="left" if column in left else "right", overflow="fold")
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        table.add_row(*map(Text, row), style=style)
    return table


def plain(shown: RenderableType) -> str:
    """The same as lines of text for logs: no colours, no wrapping, no spaces at the end."""
    text = io.StringIO()
    Console(file=text, width=LOG_WIDTH, color_system=None, force_jupyter=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n"))


def align(rows: Sequence[Sequence[str]], left_columns: Collection[int] = ()) -> list[str]:
    """Headings and rows as lines of text."""
    return plain(render(rows[0], rows[1:], left=left_columns)).split("\n")


_stdout = StandardOutput()
out = StdoutConsole(file=_stdout, soft_wrap=True, highlight=False, emoji=False)  # type: ignore[arg-type]


def open_streams() -> None:
    """Open standard streams that the shell closed, else the next file would get their numbers; accept any text."""
    for descriptor, mode in STREAMS.items():
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def require_printed() -> str | None:
    """What was not printed to standard output, and why; None when all was, or the reader of a pipe had enough."""
    _stdout.flush()
    if _stdout.error is None or _stdout.error.errno == errno.EPIPE:
        return None
    return f"standard output: {_stdout.error.strerror}; not all text was printed, but all files are written"
