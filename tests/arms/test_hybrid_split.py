"""Recompute and loading share out the tokens of a prefix, each exactly once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.arms.hybrid_split import PieceSizes, WorkSplit, choose_sizes
from kvio.loading.read_plan import ChunkRead


def _job(number: int | None) -> ChunkRead:
    return ChunkRead(Path(f"{number}"), number, 0, (), ())


def _meeting(
    num_tokens: int,
    *,
    first_token: int = 0,
    chunk_tokens: int = 4,
    sizes: PieceSizes | None = None,
    jobs_per_chunk: int = 1,
    states: int = 0,
    share: float = 0.5,
) -> WorkSplit:
    num_chunks = -(-num_tokens // chunk_tokens)
    return WorkSplit(
        [[_job(index)] * jobs_per_chunk for index in range(num_chunks)],
        first_token=first_token,
        last_token=first_token + num_tokens,
        chunk_tokens=chunk_tokens,
        sizes=sizes or PieceSizes(4, 16),
        share=share,
        states=[_job(None)] * states,
    )


def _take_jobs(meeting: WorkSplit) -> list[int | None]:
    found = []
    while (job := meeting.take_job()) is not None:
        found.append(job.chunk_id)
    return found


def _take_pieces(meeting: WorkSplit) -> list[range]:
    found = []
    while (piece := meeting.take_piece()) is not None:
        found.append(piece)
    return found


def test_a_slow_side_leaves_to_the_other_what_that_will_have_done_sooner() -> None:
    slow_recompute = _meeting(64, share=0.1)  # 6.4 tokens of the 64 are its share, then 5.6 of 56
    assert slow_recompute.take_piece() == range(0, 8)
    assert len(_take_jobs(slow_recompute)) == 14
    assert (slow_recompute.take_piece(), slow_recompute.met_at) == (None, 8)
    hopeless = _meeting(64, share=0.03)
    assert hopeless.take_piece() is None
    assert len(_take_jobs(hopeless)) == 16
    assert hopeless.met_at == 0
    slow_load = _meeting(64, share=0.98)
    assert _take_jobs(slow_load) == []
    assert [len(piece) for piece in _take_pieces(slow_load)] == [16, 16, 16, 16]


def test_a_chunk_begun_by_a_slow_recompute_is_still_finished_by_it() -> None:
    meeting = _meeting(64, sizes=PieceSizes(3, 3), share=0.06)
    assert meeting.take_piece() == range(0, 3)
    assert len(_take_jobs(meeting)) == 15
    assert (_take_pieces(meeting), meeting.met_at) == ([range(3, 4)], 4)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.7, 0.99, 1.0])
@pytest.mark.parametrize("num_tokens", [1, 3, 4, 5, 63, 64, 403])
def test_nothing_is_ever_left_whatever_the_share(num_tokens: int, share: float) -> None:
    for load_first in (True, False):
        meeting = _meeting(num_tokens, share=share)
        for take in (_take_jobs, _take_pieces) if load_first else (_take_pieces, _take_jobs):
            take(meeting)
        assert meeting.met_at is not None, (num_tokens, share, load_first)


def test_pieces_are_half_of_what_is_left_in_whole_chunks_and_never_more_than_the_most() -> None:
    pieces = _take_pieces(_meeting(64))
    assert [(piece.start, piece.stop) for piece in pieces] == [
        (0, 16),
        (16, 32),
        (32, 48),
        (48, 56),
        (56, 60),
        (60, 64),
    ]


def test_loading_alone_takes_chunks_from_the_last_to_the_first_after_the_states() -> None:
    meeting = _meeting(14, jobs_per_chunk=2, states=1)
    assert meeting.met_at is None
    assert _take_jobs(meeting) == [None, 3, 3, 2, 2, 1, 1, 0, 0]
    assert (meeting.met_at, meeting.take_piece()) == (0, None)


def test_both_sides_meet_at_a_chunk_and_nothing_is_left() -> None:
    meeting = _meeting(32)
    assert meeting.take_piece() == range(0, 16)
    assert [job.chunk_id for _ in range(2) if (job := meeting.take_job())] == [7, 6]
    assert meeting.take_piece() == range(16, 20)
    assert _take_jobs(meeting) == [5]
    assert (meeting.met_at, meeting.take_piece()) == (20, None)


def test_a_prefix_of_one_chunk_is_recomputes_when_it_asks_first() -> None:
    meeting = _meeting(3)
    assert meeting.take_piece() == range(0, 3)
    assert (meeting.take_job(), meeting.met_at) == (None, 3)


def test_a_chunk_that_recompute_has_begun_is_recomputes_to_its_end() -> None:
    meeting = _meeting(12, sizes=PieceSizes(3, 3))
    assert meeting.take_piece() == range(0, 3)
    assert meeting.take_piece() == range(3, 6)
    assert _take_jobs(meeting) == [2]
    assert _take_pieces(meeting) == [range(6, 8)]
    assert meeting.met_at == 8


def test_chunks_of_which_nothing_is_needed_are_passed_over() -> None:
    meeting = WorkSplit(
        [[], [], [_job(2)]], first_token=0, last_token=12, chunk_tokens=4, sizes=PieceSizes(4, 4)
    )
    assert _take_jobs(meeting) == [2]
    assert meeting.met_at == 0


def test_tokens_after_another_prompt_are_counted_from_the_prompts_first() -> None:
    meeting = _meeting(8, first_token=12)
    assert meeting.take_piece() == range(12, 16)
    assert _take_jobs(meeting) == [1]
    assert meeting.met_at == 16


def test_no_tokens_are_met_at_once() -> None:
    meeting = _meeting(0)
    assert (meeting.take_piece(), meeting.take_job(), meeting.met_at) == (None, None, 0)


def test_after_a_stop_nobody_gets_anything() -> None:
    meeting = _meeting(32, jobs_per_chunk=2)
    meeting.take_job()
    meeting.stop()
    assert (meeting.take_job(), meeting.take_piece(), meeting.met_at) == (None, None, None)


@pytest.mark.parametrize("prefill_chunk", [5, 16])
def test_many_threads_take_every_token_exactly_once(prefill_chunk: int) -> None:
    for _ in range(20):
        meeting = _meeting(403, sizes=PieceSizes(4, prefill_chunk), jobs_per_chunk=3)
        with ThreadPoolExecutor(5) as pool:
            loads = [pool.submit(_take_jobs, meeting) for _ in range(4)]
            pieces = pool.submit(_take_pieces, meeting).result()
            jobs = sorted(number for load in loads for number in load.result() if number is not None)
        assert meeting.met_at is not None
        first_chunk = -(-meeting.met_at // 4)
        assert [token for piece in pieces for token in piece] == list(range(meeting.met_at))
        assert jobs == [number for number in range(first_chunk, 101) for _ in range(3)]


def test_pieces_are_whole_chunks_unless_a_prefill_chunk_is_asked_for() -> None:
    assert choose_sizes(64, None) == PieceSizes(64, 512)
    assert choose_sizes(16, None) == PieceSizes(64, 512)
    assert choose_sizes(96, None) == PieceSizes(96, 576)
    assert choose_sizes(1024, None) == PieceSizes(1024, 1024)
    assert choose_sizes(64, 100) == PieceSizes(64, 100)
    assert choose_sizes(64, 32) == PieceSizes(32, 32)
