"""Which settings a search may try, by backend and by what the user fixed."""

import pytest

from bench.measure.setup import work_out
from bench.measure.tuning.tuning_search import make_space
from bench.record.plan import LoadSpec, Plan
from bench.record.progress import SearchSpace
from bench.record.read_setting import Setting

GIB = 2**30
MIB = 2**20


def space_of(*, memory_bytes: int = 64 * GIB, **asked: object) -> SearchSpace:
    (load,) = work_out(Plan(model="qwen3-8b", loads=(LoadSpec.model_validate(asked),))).loads
    return make_space(load, available_bytes=memory_bytes)


def values(space: SearchSpace, name: str) -> list[int]:
    return sorted({getattr(setting, name) for setting in space.allowed})


def test_of_posix_the_threads_are_the_depth() -> None:
    space = space_of(backend="posix")
    assert space.default == Setting(num_threads=4, in_flight=1, request_bytes=4 * MIB)
    assert space.axes == (("num_threads",), ("request_bytes",))
    assert values(space, "in_flight") == [1]
    assert values(space, "num_threads") == [1, 2, 4, 8, 16, 32, 64]
    # a chunk of 64 tokens is 9.4 MB: one request of 16 MiB reads it whole
    assert values(space, "request_bytes") == [2**power for power in range(18, 25)]


def test_of_uring_threads_and_what_each_keeps_in_flight_vary() -> None:
    space = space_of(backend="uring")
    assert space.default == Setting(num_threads=4, in_flight=4, request_bytes=4 * MIB)
    assert space.axes == (("num_threads",), ("in_flight",), ("request_bytes",))
    assert values(space, "in_flight") == [1, 2, 4, 8, 16, 32]
    assert max(setting.queue_depth for setting in space.allowed) == 256


def test_what_was_asked_for_is_not_tried_otherwise() -> None:
    assert space_of(backend="posix", num_threads=8).axes == (("request_bytes",),)
    assert values(space_of(backend="posix", queue_depth=8), "num_threads") == [8]
    assert values(space_of(backend="posix", request_bytes=MIB), "request_bytes") == [MIB]
    assert space_of(backend="uring", num_threads=8).axes == (("in_flight",), ("request_bytes",))
    fixed = space_of(backend="uring", num_threads=8, queue_depth=16, request_bytes=MIB)
    assert fixed.axes == ()
    assert fixed.allowed == {Setting(num_threads=8, in_flight=2, request_bytes=MIB)}


def test_a_depth_that_was_asked_for_is_kept_while_threads_vary() -> None:
    space = space_of(backend="uring", queue_depth=32)
    assert space.axes == (("num_threads", "in_flight"), ("request_bytes",))
    assert {setting.queue_depth for setting in space.allowed} == {32}
    assert values(space, "num_threads") == [1, 2, 4, 8, 16, 32]


def test_copies_from_memory_have_threads_alone() -> None:
    space = space_of(backend="hostmem")
    assert space.axes == (("num_threads",),)
    assert values(space, "request_bytes") == [4 * MIB]


def test_request_sizes_that_read_a_chunk_alike_are_one() -> None:
    # 16 tokens of Qwen3-0.6B in bfloat16 are 1.8 MB: from 2 MiB on a chunk is one read
    plan = Plan(model="qwen3-0.6b", loads=(LoadSpec(chunk_tokens=16),))
    (load,) = work_out(plan).loads
    space = make_space(load, available_bytes=64 * GIB)
    assert values(space, "request_bytes") == [256 * 1024, 512 * 1024, MIB, 4 * MIB]


@pytest.mark.parametrize("backend", ["posix", "uring"])
def test_buffers_take_a_fiftieth_of_the_memory_at_most(backend: str) -> None:
    space = space_of(backend=backend, memory_bytes=4 * GIB)
    room = 4 * GIB // 50
    chunk_bytes = 64 * 147_456  # no buffer is larger
    taken = [
        one.num_threads * (one.in_flight + 1) * min(one.request_bytes, chunk_bytes) for one in space.allowed
    ]
    assert room / 2 < max(taken) <= room
    assert space.default in space.allowed
