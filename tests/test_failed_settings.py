"""A setting that failed on the drive is not chosen, however fast it was before."""

import pytest

from bench.measure.tuning.tuning_rule import search_settings
from bench.measure.worker.tuning_reads import NoSearchError, unless_failed
from bench.record.progress import Choice, PassOver, SearchSpace
from bench.record.read_setting import Setting

DEFAULT = Setting(num_threads=4, in_flight=1, request_bytes=2**22)
FAST = Setting(num_threads=32, in_flight=1, request_bytes=2**22)
SPACE = SearchSpace(DEFAULT, frozenset({DEFAULT, FAST}), (("num_threads",),))
WHY = "chunk: Too many open files"


def test_the_duel_ends_when_one_of_the_two_does_not_work_any_more() -> None:
    """The challenger is eight times as fast, and in the midst of the duel it fails."""
    policy = search_settings(SPACE, seed=1)
    wanted, passes = next(policy), 0
    with pytest.raises(StopIteration):
        while True:
            passes += 1
            rates = {one: 1e9 * one.num_threads for one in wanted if passes < 20 or one == DEFAULT}
            wanted = policy.send(PassOver(rates, 0.9))
    assert passes == 20


def test_what_was_chosen_and_has_failed_gives_way_to_the_default() -> None:
    chosen = Choice(FAST, "against the default +90%")
    assert unless_failed(chosen, DEFAULT, failed={}) == chosen
    found = unless_failed(chosen, DEFAULT, failed={FAST: WHY})
    assert found == Choice(
        DEFAULT, f"the default, for 32 threads, 32 in flight, 4 MiB requests failed: {WHY}"
    )
    with pytest.raises(NoSearchError, match="Too many open files"):
        unless_failed(chosen, DEFAULT, failed={FAST: WHY, DEFAULT: WHY})
    with pytest.raises(NoSearchError, match="Too many open files"):
        unless_failed(Choice(DEFAULT, ""), DEFAULT, failed={DEFAULT: WHY})
