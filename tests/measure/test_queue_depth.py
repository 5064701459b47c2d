"""What a queue depth comes to: threads, and jobs that each of them keeps in flight."""

from dataclasses import replace

import pytest

from bench.measure.setup import RECOMPUTE, QueueDepth, resolve_plan, spread_depth, spread_evenly
from bench.record.plan import LoadSpec, Plan, PlanError
from kvio.backends import BACKENDS

POSIX = BACKENDS["posix"]
MANY = replace(POSIX, max_in_flight=128)


@pytest.mark.parametrize(
    ("threads", "depth", "expected"),
    [
        (None, None, QueueDepth(4, 1)),
        (9, None, QueueDepth(9, 1)),
        (None, 32, QueueDepth(32, 1)),
        (32, 32, QueueDepth(32, 1)),
    ],
)
def test_one_read_per_thread_makes_the_threads_the_depth(
    threads: int | None, depth: int | None, expected: QueueDepth
) -> None:
    found = spread_depth(LoadSpec(num_threads=threads, queue_depth=depth), POSIX, 4)
    assert found == expected
    assert found.queue_depth == (depth or threads or 4)


@pytest.mark.parametrize(
    ("threads", "depth", "expected"),
    [
        (None, None, QueueDepth(4, 4)),
        (None, 32, QueueDepth(4, 8)),
        (None, 6, QueueDepth(3, 2)),
        (None, 7, QueueDepth(1, 7)),
        (None, 1, QueueDepth(1, 1)),
        (2, 128, QueueDepth(2, 64)),
    ],
)
def test_many_reads_per_thread_are_spread_evenly(
    threads: int | None, depth: int | None, expected: QueueDepth
) -> None:
    assert spread_depth(LoadSpec(num_threads=threads, queue_depth=depth), MANY, 4) == expected


@pytest.mark.parametrize(
    ("kind", "threads", "depth", "said"),
    [
        (POSIX, 4, 32, "4 threads cannot keep a queue depth of 32"),
        (MANY, 4, 30, "30 cannot be spread over 4 threads evenly"),
        (MANY, 4, 1024, "--threads 8 or more"),
    ],
    ids=["blocking", "uneven", "too many"],
)
def test_what_cannot_be_kept_is_refused(kind: object, threads: int, depth: int, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        spread_depth(LoadSpec(num_threads=threads, queue_depth=depth), kind, 4)  # type: ignore[arg-type]


def test_jobs_are_named_where_all_their_reads_are_in_flight_together() -> None:
    with pytest.raises(PlanError, match="nixl keeps 64 jobs in flight in each thread at most"):
        spread_depth(LoadSpec(backend="nixl", num_threads=1, queue_depth=65), BACKENDS["nixl"], 4)


@pytest.mark.parametrize(("depth", "threads"), [(0, None), (-4, None), (4, 0), (4, -1)])
def test_neither_a_depth_nor_threads_below_one_can_be_spread(depth: int, threads: int | None) -> None:
    with pytest.raises(PlanError, match=f"a queue depth of {depth} over .* threads is impossible"):
        spread_evenly(depth, threads, most_threads=4)


def test_the_queue_depth_of_a_series_is_recorded() -> None:
    setup = resolve_plan(Plan(model="qwen3-8b", loads=(LoadSpec(queue_depth=16),)))
    ((name, info),) = ((name, info) for name, info in setup.series.items() if info.arm == "load")
    assert name != RECOMPUTE
    assert (info.settings["num_threads"], info.settings["queue_depth"]) == (16, 16)


def test_an_option_that_the_backend_does_not_have_is_refused() -> None:
    with pytest.raises(PlanError, match="posix has no option 'speed'; it has: none"):
        resolve_plan(Plan(model="qwen3-8b", loads=(LoadSpec(options={"speed": "9"}),)))


def test_a_layout_that_keeps_many_chunks_in_flight_does_so_where_the_backend_can() -> None:
    assert spread_depth(LoadSpec(), MANY, 1, in_flight=32) == QueueDepth(1, min(32, MANY.max_in_flight))
    assert spread_depth(LoadSpec(), POSIX, 1, in_flight=32) == QueueDepth(1, 1)
    assert spread_depth(LoadSpec(), MANY, 1) == QueueDepth(1, min(4, MANY.max_in_flight))
