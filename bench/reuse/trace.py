"""A request trace as arrays: which blocks each request's prefix consists of.

Reads request traces in the Mooncake format: JSON lines, plain or gzip.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kvio.errors import UserError

IntArray = NDArray[np.int64]
Unit = Literal["tokens", "blocks"]
PIECE_REFERENCES = 1 << 20  # handled at once where a whole trace would need temporary arrays of its size


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order; request r refers to `ids[starts[r]:starts[r + 1]]`, block by block from its front.

    An id names a block together with everything before it (a chained hash), so that equal ids mean equal KV.
    Every block has `block_tokens` tokens, except that the last one of a request may have fewer.

    Args:
        block_tokens: tokens of a whole block.
        ids: (num_references,) block ids, dense from 0.
        starts: (num_requests + 1,) where each request begins in `ids`.
        input_tokens: (num_requests,) tokens of each request's prompt.
        output_tokens: (num_requests,) tokens generated.
        timestamps_s: (num_requests,) arrival, seconds from the start of the trace.
        notices: what makes the trace suspect.
    """

    block_tokens: int
    ids: NDArray[np.int32]
    starts: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    timestamps_s: NDArray[np.float64]
    notices: tuple[str, ...] = ()

    @property
    def num_requests(self) -> int:
        """Requests in the trace."""
        return len(self.input_tokens)

    @property
    def span_s(self) -> float:
        """Seconds from the earliest to the latest request, whatever their order in the file."""
        return float(self.timestamps_s.max() - self.timestamps_s.min())

    @property
    def requests_per_s(self) -> float | None:
        """Gaps between requests over the span; None where all come at once."""
        return (self.num_requests - 1) / self.span_s if self.span_s > 0 else None

    @property
    def num_ids(self) -> int:
        """Distinct blocks."""
        return int(self.ids.max()) + 1 if len(self.ids) else 0

    @property
    def num_blocks(self) -> IntArray:
        """(num_requests,) blocks of each request."""
        return np.diff(self.starts)

    @property
    def last_block_tokens(self) -> IntArray:
        """(num_requests,) tokens of each request's last block."""
        return self.input_tokens - (self.num_blocks - 1) * self.block_tokens

    def weights(self, unit: Unit) -> IntArray:
        """(num_ids,) room that each block takes: its tokens, or 1 block."""
        if unit == "blocks":
            return np.ones(self.num_ids, dtype=np.int64)
        weights = np.zeros(self.num_ids, dtype=np.int64)
        last = self.starts[1:] - 1
        inside = np.ones(len(self.ids), dtype=np.bool_)
        inside[last] = False
        for begin in range(0, len(self.ids), PIECE_REFERENCES):
            piece = slice(begin, begin + PIECE_REFERENCES)
            weights[self.ids[piece][inside[piece]]] = self.block_tokens
        np.maximum.at(weights, self.ids[last], self.last_block_tokens)
        return weights


def dense_ids(raw: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Ids renumbered from 0 without gaps, so that arrays can be indexed by them."""
    if len(raw) == 0:
        return np.zeros(0, dtype=np.int32)
    largest = int(raw.max())
    if largest > 4 * len(raw) + 1024:
        return np.unique(raw, return_inverse=True)[1].astype(np.int32)
    return _close_gaps(raw.view(np.int64))


def _close_gaps(ids: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int32]:
    used = np.zeros(int(ids.max()) + 1, dtype=np.bool_)
    used[ids] = True
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return numbers[ids]


def build_trace(
    block_ids: Sequence[Sequence[int]], input_tokens: Sequence[int], *, block_tokens: int
) -> Trace:
    """A trace from one list of block ids per request, without times and outputs."""
    num_requests = len(block_ids)
    flat = np.array([block for blocks in block_ids for block in blocks], dtype=np.uint64)
    starts = np.zeros(num_requests + 1, dtype=np.int64)
    np.cumsum([len(blocks) for blocks in block_ids], out=starts[1:])
    return Trace(
        block_tokens=block_tokens,
        ids=dense_ids(flat),
        starts=starts,
        input_tokens=np.array(input_tokens, dtype=np.int64),
        output_tokens=np.zeros(num_requests, dtype=np.int64),
        timestamps_s=np.zeros(num_requests, dtype=np.float64),
    )


def select_requests(trace: Trace, where: IntArray) -> Trace:
    """The trace of these requests alone, whose numbers must rise; ids are numbered anew."""
    starts = np.zeros(len(where) + 1, dtype=np.int64)
    np.cumsum(trace.num_blocks[where], out=starts[1:])
    kept = np.zeros(trace.num_requests, dtype=np.bool_)
    kept[where] = True
    return Trace(
        block_tokens=trace.block_tokens,
        ids=_close_gaps(trace.ids[np.repeat(kept, trace.num_blocks)]),
        starts=starts,
        input_tokens=trace.input_tokens[where],
        output_tokens=trace.output_tokens[where],
        timestamps_s=trace.timestamps_s[where],
    )


def merge_blocks(trace: Trace, factor: int) -> Trace:
    """The trace with blocks `factor` times as large.

    A larger block takes the id of the last block in it, which names everything before it.
    """
    if factor < 1:
        raise ValueError(f"blocks can only be merged by a factor of 1 or more, got {factor}")
    counts = -(-trace.num_blocks // factor)
    starts = np.zeros(trace.num_requests + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    request = np.repeat(np.arange(trace.num_requests), counts)
    group = np.arange(starts[-1]) - starts[request]
    last = np.minimum(trace.starts[request] + (group + 1) * factor, trace.starts[request + 1]) - 1
    return Trace(
        block_tokens=trace.block_tokens * factor,
        ids=dense_ids(trace.ids[last].astype(np.uint64)),
        starts=starts,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        timestamps_s=trace.timestamps_s,
        notices=trace.notices,
    )


if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOONCAKE_BLOCK_TOKENS = 512
MAX_LINE_BYTES = 16 * 1024 * 1024  # a prompt of 10 million tokens in blocks of 64 needs about 3 MB
LARGEST_TOKENS = 2**40
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
    """Requests collected column by column."""

    def __init__(self) -> None:
        self.block_ids = array("Q")
        self.starts = array("q", [0])
        self.input_tokens = array("q")
        self.output_tokens = array("q")
        self.timestamps_ms = array("d")

    def append(self, request: Request) -> None:
        self.block_ids.extend(request.block_ids)
        self.starts.append(len(self.block_ids))
        self.input_tokens.append(request.input_tokens)
        self.output_tokens.append(request.output_tokens)
        self.timestamps_ms.append(request.timestamp_ms)


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
        ids=pd.factorize(np.frombuffer(columns.block_ids, dtype=np.uint64))[0].astype(np.int32),
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
