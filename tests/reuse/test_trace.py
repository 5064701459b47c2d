"""Traces are read as published, and a bad line is named or counted."""

import gzip
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reuse import lru_curve as stack
from bench.reuse import trace
from bench.reuse import trace as read
from bench.reuse.eviction import replay
from bench.reuse.lru_curve import find_lru_hits
from bench.reuse.trace import Trace, TraceError, build_trace, merge_blocks, read_trace
from tests.helpers.commands import ROOT
from tests.reuse.test_eviction import chained_traces

SLICES = ROOT / "tests" / "traces"
GOOD = {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 9]}


def line(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_published_slice_is_read_whole() -> None:
    trace = read_trace(SLICES / "mooncake_conversation_400.jsonl")
    assert trace.num_requests == 400
    assert trace.input_tokens.sum() == 5_710_530
    assert trace.ids[: trace.starts[1]].tolist() == list(range(14))
    assert trace.last_block_tokens[0] == 6758 - 13 * 512
    assert trace.notices == ()


def test_gzip_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    plain, zipped = tmp_path / "trace.gz", tmp_path / "trace.jsonl"
    plain.write_bytes(line())
    zipped.write_bytes(gzip.compress(line()))
    assert read_trace(plain).ids.tolist() == read_trace(zipped).ids.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{", "not JSON at column 2"),
        (b"[1]", "expected a JSON object, found list"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"input_length": NaN}', "NaN is not a number"),
        (b'{"input_length": ' + b"9" * 5000 + b"}", "integer string conversion"),
        (line(timestamp=-1), "timestamp must be finite and not negative, found -1"),
        (line(timestamp=1e400), "Infinity is not a number"),
        (b'{"input_length": 1, "hash_ids": [1], "timestamp": 1e999}', "found inf"),
        (line(timestamp="0"), "timestamp must be a number of milliseconds, found str"),
        (line(timestamp=True), "timestamp must be a number of milliseconds, found bool"),
        (line(input_length=-5), "input_length must be between 1 and 1099511627776, found -5"),
        (line(input_length=0, hash_ids=[]), "input_length must be between 1"),
        (line(input_length=1000.0), "input_length must be a whole number, found float"),
        (line(input_length=True), "input_length must be a whole number, found bool"),
        (line(input_length=10**15), "input_length must be between 1"),
        (line(output_length=-1), "output_length must be between 0"),
        (line(output_length=None), "output_length must be a whole number, found NoneType"),
        (line(hash_ids="ab"), "hash_ids must be a list, found str"),
        (line(hash_ids=[1, 2.0]), "hash_ids must be whole numbers, found float"),
        (line(hash_ids=[1, True]), "hash_ids must be whole numbers, found bool"),
        (line(hash_ids=[1, -2]), "hash_ids must be between 0 and 2**64 - 1"),
        (line(hash_ids=[1, 2**64]), "hash_ids must be between 0 and 2**64 - 1"),
        (line(hash_ids=[1]), "1 hash_ids for input_length 1000; blocks of 512 tokens make 2"),
        (line(hash_ids=[1, 2, 3]), "3 hash_ids for input_length 1000"),
        (b'{"timestamp": 0, "output_length": 1, "hash_ids": [1]}', "no input_length"),
        (b'{"input_length": 5}', "no hash_ids"),
    ],
)
def test_a_bad_line_is_named_with_its_number_or_counted(tmp_path: Path, bad: bytes, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n".join([line(), bad, line()]))
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert f"{path}, line 2: " in str(raised.value)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    trace = read_trace(path, skip_bad=True)
    assert trace.num_requests == 2
    assert trace.notices == ("1 bad lines left out",)


def test_a_line_without_end_is_refused_without_keeping_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line() + b"\n" + b'{"a": "' + b"x" * 10_500 + b'"}\n' + line())
    with pytest.raises(TraceError, match="line 2: longer than 1000 bytes"):
        read_trace(path)
    assert read_trace(path, skip_bad=True).num_requests == 2


def test_blank_lines_are_no_requests_but_keep_their_number(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n" + line() + b"\n\r\n\n{")
    with pytest.raises(TraceError, match="line 5: not JSON"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", gzip.compress(b"", mtime=0)])
def test_a_file_without_requests_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="no request in it"):
        read_trace(path)


def test_only_bad_lines_are_no_trace_even_when_skipped(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"{\n{\n")
    with pytest.raises(TraceError, match=r"no request in it \(2 bad lines\)"):
        read_trace(path, skip_bad=True)


@pytest.mark.parametrize("damage", ["cut", "garbled", "no archive"])
def test_a_broken_archive_is_an_error_even_when_skipping(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "trace.jsonl.gz"
    whole = gzip.compress(b"\n".join([line(hash_ids=[i, i + 1]) for i in range(2000)]))
    middle = len(whole) // 2
    path.write_bytes(
        {
            "cut": whole[:middle],
            "garbled": whole[:middle] + b"\xff" * 64 + whole[middle + 64 :],
            "no archive": b"\x1f\x8b" + b"no archive" * 10,
        }[damage]
    )
    with pytest.raises(TraceError, match="broken gzip archive after"):
        read_trace(path, skip_bad=True)


def test_ids_of_any_size_are_numbered_from_zero(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line(hash_ids=[2**64 - 1, 3]) + b"\n" + line(hash_ids=[2**64 - 1, 2**63]))
    ids = read_trace(path).ids
    assert ids.dtype == np.int32
    assert sorted(set(ids.tolist())) == [0, 1, 2]
    assert ids[0] == ids[2]


def test_times_are_kept_in_seconds_and_going_back_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line(timestamp=3000) + b"\n" + line(timestamp=1500.5))
    trace = read_trace(path)
    assert trace.timestamps_s.tolist() == [3.0, 1.5005]
    assert trace.notices == ("1 requests are earlier than the one before them; the file's order is used",)


def test_ids_that_are_not_prefix_hashes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line(hash_ids=[1, 2]) + b"\n" + line(hash_ids=[1, 2], input_length=1024))
    assert read_trace(path).notices == ("1 requests end in a hash_id that elsewhere names a longer block",)


def test_another_block_size_is_an_argument(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line(input_length=33, hash_ids=[1, 2, 3]))
    assert read_trace(path, 16).last_block_tokens.tolist() == [1]
    with pytest.raises(ValueError, match="block_tokens must be at least 1, got 0"):
        read_trace(path, 0)


def test_merged_blocks_take_the_id_of_their_last_block() -> None:
    trace = build_trace([[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 5, 6]], [19, 12, 16], block_tokens=4)
    merged = merge_blocks(trace, 2)
    assert merged.block_tokens == 8
    assert merged.starts.tolist() == [0, 3, 5, 7]
    first, second, third = np.split(merged.ids, merged.starts[1:-1])
    assert first[0] == second[0] == third[0]
    assert len({*first.tolist(), *second.tolist(), *third.tolist()}) == 5
    assert merged.last_block_tokens.tolist() == [3, 4, 8]
    with pytest.raises(ValueError, match="factor of 1 or more, got 0"):
        merge_blocks(trace, 0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_pipe_is_read_whole_for_it_gives_its_bytes_once(pack: Callable[[bytes], bytes]) -> None:
    whole = pack(b"\n".join(line(timestamp=n, hash_ids=[2 * n, 2 * n + 1]) for n in range(3000)))
    reading, writing = os.pipe()

    def fill() -> None:
        with os.fdopen(writing, "wb") as stream:
            stream.write(whole)

    writer = threading.Thread(target=fill)
    writer.start()
    trace = read_trace(Path(f"/dev/fd/{reading}"), skip_bad=True)
    os.close(reading)
    writer.join()
    assert (trace.num_requests, trace.notices) == (3000, ())


@pytest.mark.parametrize("content", [b"", b"{"])
def test_a_file_of_fewer_bytes_than_tell_an_archive_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="no request in it"):
        read_trace(path, skip_bad=True)


SLICE = ROOT / "tests" / "traces" / "mooncake_synthetic_400.jsonl"


def test_an_id_gets_the_number_of_its_first_appearance(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    big = 2**64 - 1
    requests = [(1536, [7, big, 7]), (1024, [0, big])]
    path.write_text(
        "".join(
            json.dumps({"timestamp": 0, "input_length": tokens, "output_length": 1, "hash_ids": ids}) + "\n"
            for tokens, ids in requests
        )
    )
    assert read_trace(path).ids.tolist() == [0, 1, 0, 2, 1]


def test_weights_in_small_pieces_are_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace(SLICE)
    monkeypatch.setattr(trace, "PIECE_REFERENCES", 7)
    again = read_trace(SLICE)
    assert again.ids.tolist() == whole.ids.tolist()
    assert again.starts.tolist() == whole.starts.tolist()
    assert again.weights("tokens").tolist() == whole.weights("tokens").tolist()


@settings(max_examples=60, deadline=None)
@given(made=chained_traces(), piece=st.integers(1, 20), capacity=st.integers(0, 80))
def test_lru_in_small_pieces_is_lru(made: Trace, piece: int, capacity: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack, "PIECE_REFERENCES", piece)
        found = find_lru_hits(made, [capacity, 2 * capacity], "tokens")
    for size, hits in zip((capacity, 2 * capacity), found, strict=True):
        assert hits.tolist() == replay(made, "lru", capacity=size, unit="tokens").tolist()
