"""One outcome of what several ranks did: the slowest one's time, everybody's bytes, the worst evidence."""

from dataclasses import replace

import pytest

from bench.arms.rank_arm import combine
from bench.record.sample import Outcome
from kvio.evidence.cold_evidence import ReadCounters, prove_cache_state

FAST = Outcome(
    seconds=2.0,
    open_s=0.1,
    read_s=0.5,
    h2d_s=0.0,
    scatter_s=0.1,
    first_token_s=0.5,
    num_bytes=100,
    num_requests=4,
    request_bytes=25,
    queue_depth=8,
    achieved_queue_depth=3.5,
    cache_state="direct",
    data_path="posix-direct",
    device_bytes=100,
    process_bytes=104,
    verified=True,
    notices=("padded_chunk",),
)
SLOW = replace(
    FAST, seconds=2.25, open_s=0.2, read_s=1.2, scatter_s=0.3, num_bytes=60, process_bytes=64, notices=()
)


def test_seconds_and_split_are_those_of_the_slowest_rank_and_bytes_add_up() -> None:
    both = combine([FAST, SLOW], divided_flops=False)
    assert (both.seconds, both.open_s, both.read_s, both.scatter_s) == (2.25, 0.2, 1.2, 0.3)
    assert (both.num_bytes, both.process_bytes, both.num_requests, both.queue_depth) == (160, 168, 8, 16)
    assert both.achieved_queue_depth == 7.0
    assert both.request_bytes == 25
    assert both.notices == ("padded_chunk",)
    assert (both.cache_state, both.data_path, both.verified) == ("direct", "posix-direct", True)


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        (("cold", "unverified"), "unverified"),
        (("warm", "cold"), "warm"),
        (("warm", "unverified"), "warm"),
        (("direct", "cold"), "cold"),
        (("direct", None), None),
    ],
    ids=str,
)
def test_evidence_holds_only_where_it_holds_on_every_rank(
    states: tuple[str | None, ...], worst: str | None
) -> None:
    parts = [replace(FAST, cache_state=state) for state in states]
    assert combine(parts, divided_flops=False).cache_state == worst


def test_one_rank_with_wrong_or_unseen_bytes_or_another_path_is_not_hidden() -> None:
    other = replace(FAST, verified=None, data_path="posix-buffered", process_bytes=None)
    mixed = combine([FAST, other], divided_flops=False)
    assert mixed.verified is None
    assert mixed.data_path == "posix-buffered+posix-direct"
    assert mixed.process_bytes is None
    assert combine([FAST, replace(FAST, verified=False), other], divided_flops=False).verified is False


def test_operations_of_the_whole_model_count_once_and_those_of_divided_products_add_up() -> None:
    prefill = Outcome(seconds=2.0, flops=1e12)
    assert combine([prefill, prefill], divided_flops=False).flops == 1e12
    product = Outcome(seconds=2.0, flops=1e12, flops_per_s=5e11)
    slower = Outcome(seconds=2.5, flops=1e12, flops_per_s=4e11)
    rate = combine([product, slower], divided_flops=True)
    assert (rate.flops, rate.flops_per_s) == (2e12, 2e12 / 2.5)


def test_a_drive_that_counted_for_all_ranks_proves_each_only_its_share() -> None:
    moved = ReadCounters(
        process_bytes=100, device_bytes=150
    )  # the drive read 150 of the 200 bytes of two ranks
    own = moved.share(100, 200)
    assert own == ReadCounters(process_bytes=100, device_bytes=75)
    state, codes = prove_cache_state(asked_direct=True, payload_bytes=100, resident_before=0, moved=own)
    assert (state, codes) == ("unverified", ("below_page_cache",))
    assert moved.share(100, 100) == moved
    assert ReadCounters(5, None).share(1, 2) == ReadCounters(5, None)
