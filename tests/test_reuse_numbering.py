"""Ids of any size are numbered as they come, piece by piece, compiled or not; pieces do not change a figure."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reuse import jit as compiled
from bench.reuse import lru_curve as stack
from bench.reuse import read_trace as read
from bench.reuse import trace
from bench.reuse.eviction import replay
from bench.reuse.lru_curve import find_lru_hits
from bench.reuse.numbering import FIRST_SLOTS, Numbering
from bench.reuse.read_trace import read_trace
from bench.reuse.trace import Trace
from tests.test_reuse_policies import chained_traces

SLICE = Path(__file__).parent / "traces" / "mooncake_synthetic_400.jsonl"
ids = st.integers(0, 2**64 - 1) | st.integers(0, 9)


def number_slowly(pieces: list[list[int]]) -> list[list[int]]:
    names: dict[int, int] = {}
    return [[names.setdefault(block, len(names)) for block in piece] for piece in pieces]


@pytest.mark.parametrize("with_numba", [True, False])
@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.lists(ids, max_size=30), max_size=5))
def test_an_id_gets_the_number_of_its_first_appearance(with_numba: bool, pieces: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not with_numba:
            patch.setattr(compiled, "numba", None)
        numbering = Numbering()
        found = [numbering.number(np.array(piece, dtype=np.uint64)).tolist() for piece in pieces]
    assert found == number_slowly(pieces)


def test_numbers_stay_when_the_table_grows() -> None:
    pytest.importorskip("numba", reason="numba is not installed: pip install 'kvcross[reuse]'")
    chance = np.random.default_rng(0)
    many = np.unique(chance.integers(0, 2**64, 3 * FIRST_SLOTS, dtype=np.uint64))
    numbering = Numbering()
    first = numbering.number(many[:100])
    numbering.number(many)
    assert numbering.number(many[:100]).tolist() == first.tolist() == list(range(100))
    assert sorted(numbering.number(many).tolist()) == list(range(len(many)))


def test_a_trace_read_in_small_pieces_is_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace(SLICE)
    monkeypatch.setattr(read, "PIECE_REFERENCES", 7)
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


def test_reading_more_than_plain_python_can_replay_stops_early(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled, "numba", None)
    monkeypatch.setattr(compiled, "MOST_PLAIN_REFERENCES", 3)
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 2048, "output_length": 1, "hash_ids": [1, 2, 3, 4]}\n')
    with pytest.raises(compiled.NumbaMissingError, match="skipped: 4 block references need numba"):
        read_trace(path)
