"""Reads request traces in the Mooncake format: JSON lines, plain or gzip.

Source of the format: kvcache-ai/Mooncake, FAST25-release (traces): timestamp in milliseconds, input_length
and output_length in tokens, hash_ids of the prompt's blocks of 512 tokens, the last block may be partial.
"""

import codecs
import gzip
import io
import json
import math
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, NoReturn

import numpy as np

from bench.reuse.jit import require_compiled
from bench.reuse.numbering import Numbering
from bench.reuse.trace import Trace
from kvio.errors import UserError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOONCAKE_BLOCK_TOKENS = 512
MAX_LINE_BYTES = 16 * 1024 * 1024  # a prompt of 10 million tokens in blocks of 64 needs about 3 MB
LARGEST_TOKENS = 2**40
PIECE_REFERENCES = 1 << 20  # ids numbered at once
GZIP_MAGIC = b"\x1f\x8b"
BUFFER_BYTES = 1 << 18


class TraceError(UserError, ValueError):
    """A trace that cannot be read; the message names the file and the line."""


class Request(NamedTuple):
    """One line of a trace."""

    timestamp_ms: float
    input_tokens: int
    output_tokens: int
    block_ids: list[int]


class _Columns:
    """Requests collected column by column: 4 bytes per block reference, its id already numbered."""

    def __init__(self) -> None:
        self.ids = array("i")
        self.starts = array("q", [0])
        self._numbering = Numbering()
        self._raw = array("Q")
        self.input_tokens = array("q")
        self.output_tokens = array("q")
        self.timestamps_ms = array("d")

    def append(self, request: Request) -> None:
        self._raw.extend(request.block_ids)
        self.starts.append(self.starts[-1] + len(request.block_ids))
        self.input_tokens.append(request.input_tokens)
        self.output_tokens.append(request.output_tokens)
        self.timestamps_ms.append(request.timestamp_ms)
        if len(self._raw) >= PIECE_REFERENCES:
            self.number()

    def number(self) -> None:
        """Number the ids that still wait."""
        require_compiled(self.starts[-1])
        self.ids.frombytes(self._numbering.number(np.array(self._raw, dtype=np.uint64)).tobytes())
        self._raw = array("Q")


def read_trace(path: Path, block_tokens: int = MOONCAKE_BLOCK_TOKENS, *, skip_bad: bool = False) -> Trace:
    """All requests of the file, in its order.

    Args:
        path: JSON lines, plain or gzip (told by its first bytes, not by its name).
        block_tokens: tokens that one id stands for.
        skip_bad: leave out lines that cannot be read, and say how many in `notices`.

    Raises:
        TraceError: a bad line (unless `skip_bad`), a broken archive, or no request at all.
    """
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be at least 1, got {block_tokens}")
    columns, num_bad = _Columns(), 0
    try:
        with _open(path) as file:
            for number, line in _lines(file):
                try:
                    columns.append(parse_request(line, block_tokens))
                except ValueError as error:
                    if not skip_bad:
                        raise TraceError(f"{path}, line {number}: {error}") from error
                    num_bad += 1
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"{path}: broken gzip archive after {len(columns.starts) - 1} requests: {error}"
        ) from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not columns.input_tokens:
        raise TraceError(f"{path}: no request in it ({num_bad} bad lines); expected one JSON object per line")
    columns.number()
    return _to_trace(columns, block_tokens, num_bad=num_bad)


def parse_request(line: bytes | None, block_tokens: int) -> Request:
    """One line, checked; ValueError says what is wrong with it.  None stands for a line that is too long."""
    if line is None:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        fields = json.loads(line.decode("utf-8").strip(), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at column {error.colno}: {error.msg}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, found {type(fields).__name__}")
    input_tokens = _count(fields, "input_length", least=1)
    block_ids = _block_ids(fields)
    expected = -(-input_tokens // block_tokens)
    if len(block_ids) != expected:
        raise ValueError(
            f"{len(block_ids)} hash_ids for input_length {input_tokens}; "
            f"blocks of {block_tokens} tokens make {expected}"
        )
    return Request(_timestamp_ms(fields), input_tokens, _count(fields, "output_length", least=0), block_ids)


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were read already; a pipe does not give them twice."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill `buffer` with what was read before, then with the rest."""
        view = memoryview(buffer).cast("B")
        piece = self._head[: len(view)] or self._rest.read(len(view))
        self._head = self._head[len(view) :]
        view[: len(piece)] = piece
        return len(piece)


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedIOBase]:
    """The lines of the file, unpacked where its first bytes say so; opened once, since it may be a pipe."""
    with path.open("rb") as file:
        head = file.read(len(GZIP_MAGIC))
        whole = io.BufferedReader(_Rejoined(head, file), BUFFER_BYTES)
        if head != GZIP_MAGIC:
            yield whole
            return
        with gzip.open(whole, "rb") as unpacked:
            yield unpacked


def _lines(file: io.BufferedIOBase) -> Iterator[tuple[int, bytes | None]]:
    """Line numbers from 1 and lines that are not blank; None for a line that is longer than allowed."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            yield number, None
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        elif line.strip():
            yield number, line


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _field(fields: dict[str, object], name: str) -> object:
    if name not in fields:
        raise ValueError(f"no {name}")
    return fields[name]


def _count(fields: dict[str, object], name: str, *, least: int) -> int:
    value = _field(fields, name)
    if type(value) is not int:
        raise ValueError(f"{name} must be a whole number, found {type(value).__name__}")
    if not least <= value <= LARGEST_TOKENS:
        raise ValueError(f"{name} must be between {least} and {LARGEST_TOKENS}, found {value}")
    return value


def _timestamp_ms(fields: dict[str, object]) -> float:
    value = _field(fields, "timestamp")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"timestamp must be a number of milliseconds, found {type(value).__name__}")
    if not 0 <= value < 2**63 or not math.isfinite(value):
        raise ValueError(f"timestamp must be finite and not negative, found {value}")
    return float(value)


def _block_ids(fields: dict[str, object]) -> list[int]:
    value = _field(fields, "hash_ids")
    if not isinstance(value, list):
        raise ValueError(f"hash_ids must be a list, found {type(value).__name__}")
    wrong = set(map(type, value)) - {int}
    if wrong:
        raise ValueError(
            f"hash_ids must be whole numbers, found {sorted(kind.__name__ for kind in wrong)[0]}"
        )
    if value and (min(value) < 0 or max(value) >= 2**64):
        raise ValueError("hash_ids must be between 0 and 2**64 - 1")
    return value


def _to_trace(columns: _Columns, block_tokens: int, *, num_bad: int) -> Trace:
    timestamps_ms = np.frombuffer(columns.timestamps_ms, dtype=np.float64)
    notices = []
    if num_bad:
        notices.append(f"{num_bad} bad lines left out")
    num_back = int((np.diff(timestamps_ms) < 0).sum())
    if num_back:
        notices.append(f"{num_back} requests are earlier than the one before them; the file's order is used")
    trace = Trace(
        block_tokens=block_tokens,
        ids=np.frombuffer(columns.ids, dtype=np.int32),
        starts=np.frombuffer(columns.starts, dtype=np.int64),
        input_tokens=np.frombuffer(columns.input_tokens, dtype=np.int64),
        output_tokens=np.frombuffer(columns.output_tokens, dtype=np.int64),
        timestamps_s=timestamps_ms / 1e3,
    )
    num_mixed = int(
        (trace.weights("tokens")[trace.ids[trace.starts[1:] - 1]] != trace.last_block_tokens).sum()
    )
    if num_mixed:
        notices.append(f"{num_mixed} requests end in a hash_id that elsewhere names a longer block")
    return replace(trace, notices=tuple(notices))
