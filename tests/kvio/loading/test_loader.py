"""The loader: every byte in its place, the split adds up, and failures stop everything."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from kvio.backends import find_backend
from kvio.backends.blocking import BlockingBackend, Reader
from kvio.backends.config import BackendConfig, SimulatedDevice
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import KVLayout, Plane, uniform_layout
from kvio.layout.presets import PRESETS, adapt_preset, find_preset
from kvio.loading.blocks import POISON, KVBlocks
from kvio.loading.loader import ChunkLoader
from kvio.loading.read_plan import ChunkRead, by_chunk, collect, plan_jobs
from kvio.os_errors import SAID, ThreadsError, thread_limit_errors
from kvio.protocol import KVIOError, Read, ShortReadError
from kvio.store.chunk_store import ChunkStore

CPU = torch.device("cpu")
# three groups: unlimited, windows of 6 tokens, and a smaller plane; and states
MIXED = KVLayout(
    (
        *(Plane(layer, role, 4096, 6 if layer % 2 else None) for layer in range(4) for role in ("k", "v")),
        Plane(0, "indexer", 1024),
    ),
    state_bytes=30_000,
)
PLAIN = uniform_layout(4, 1024)


def _store(directory: Path, layout: KVLayout, name: str = "best", **overrides: int | bool) -> ChunkStore:
    preset = adapt_preset(find_preset(name), **{"chunk_tokens": 4, **overrides})  # type: ignore[arg-type]
    return ChunkStore.create(directory, ChunkGeometry(layout, preset), num_chunks=5, seed=3)


def _loader(store: ChunkStore, make: Callable[[], Reader] | None = None) -> ChunkLoader:
    setting = BackendConfig(direct=store.geometry.direct)
    return ChunkLoader(
        store.geometry,
        (lambda: BlockingBackend(make())) if make else (lambda: find_backend("posix").make(setting)),
        device=CPU,
        now_s=time.monotonic,
    )


def _jobs(
    store: ChunkStore,
    prefix_tokens: int,
    *,
    chunk_ids: Sequence[int] | None = None,
    first_token: int = 0,
    state: bool = False,
) -> tuple[ChunkRead, ...]:
    count = len(store.geometry.chunks_between(first_token, prefix_tokens))
    ids = list(range(count)) if chunk_ids is None else list(chunk_ids)
    return plan_jobs(
        store,
        ids,
        first_token=first_token,
        prefix_tokens=prefix_tokens,
        state_id=0 if state else None,
    )


def _expected(store: ChunkStore, blocks: KVBlocks, chunk_ids: Sequence[int], prefix_tokens: int) -> None:
    """Check every plane's bytes token by token against the files, independently of the jobs."""
    tokens = store.geometry.chunk_tokens
    for segment in store.geometry.segments:
        for row, plane in enumerate(segment.planes):
            # (planes, tokens, bytes), or token by token (tokens, planes, bytes)
            row_step, token_step = (1, len(segment.planes)) if segment.interleaved else (tokens, 1)
            start = segment.payload_offset + row * row_step * segment.token_bytes
            for token in range(prefix_tokens):
                if segment.window_tokens and token < prefix_tokens - segment.window_tokens:
                    continue
                payload = store.read_payload(chunk_ids[token // tokens])
                offset = start + token % tokens * token_step * segment.token_bytes
                expected = payload[offset : offset + segment.token_bytes]
                assert np.array_equal(blocks.groups[segment.group][plane, token].numpy(), expected)


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize("prefix_tokens", [1, 3, 4, 5, 17, 20])
def test_every_token_of_every_plane_arrives_under_every_preset(
    tmp_path: Path, name: str, prefix_tokens: int
) -> None:
    store = _store(tmp_path, MIXED, name)
    blocks = KVBlocks(MIXED, prefix_tokens + 1, CPU)
    blocks.poison()
    loader = _loader(store)
    ids = [3, 0, 4, 1, 2][: -(-prefix_tokens // 4)]
    loader.load(blocks, _jobs(store, prefix_tokens, chunk_ids=ids, state=True))
    loader.close()
    _expected(store, blocks, ids, prefix_tokens)
    store.require_state(0, blocks.state.numpy())
    for group in blocks.groups:  # nothing beyond the prefix
        assert torch.all(group[:, prefix_tokens:] == POISON)


@pytest.mark.parametrize("request_bytes", [4096, 12_288, 1 << 20])
def test_the_request_size_changes_the_requests_and_not_the_bytes(tmp_path: Path, request_bytes: int) -> None:
    store = _store(tmp_path, MIXED, request_bytes=request_bytes)
    blocks = KVBlocks(MIXED, 20, CPU)
    loader = _loader(store)
    split = loader.load(blocks, _jobs(store, 20))
    loader.close()
    _expected(store, blocks, range(5), 20)
    # each chunk: 4 x (8 x 4096 + 1024) bytes; three of five no longer need the windowed half.  A plane of
    # 16384 bytes is one thread's, in requests of 12288 and 4096 bytes if no larger ones are allowed.
    assert split.num_bytes == 2 * 135_168 + 3 * 69_632
    assert split.request_bytes == min(request_bytes, 135_168)
    assert split.num_requests == {4096: 117, 12_288: 61, 1 << 20: 5}[request_bytes]


def test_two_threads_share_one_chunk(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN, request_bytes=16_384)
    jobs = _jobs(store, 4)
    assert [job.payload_offset for job in jobs] == [0, 16_384]
    assert store.geometry.slot_bytes == 16_384
    assert list(by_chunk(jobs)) == [(0, list(jobs))]


def test_a_payload_is_whole_when_all_jobs_of_its_chunk_are_collected(tmp_path: Path) -> None:
    store = _store(tmp_path, MIXED, request_bytes=16_384)
    blocks = KVBlocks(MIXED, 4, CPU)
    loader = _loader(store)
    jobs = _jobs(store, 4, chunk_ids=[3], state=True)
    loader.load(blocks, jobs)
    loader.close()
    ((chunk_id, parts),) = by_chunk(jobs)
    assert (chunk_id, len(parts)) == (3, 9)  # eight planes of 16384 bytes and one of 4096
    payload = np.zeros(store.geometry.payload_bytes, np.uint8)
    for job in parts:
        collect(job, blocks, payload)
    store.require_payload(3, payload, groups=range(3))


def test_what_arrived_can_be_collected_back_into_the_payload(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN, "lmcache")
    blocks = KVBlocks(PLAIN, 8, CPU)
    loader = _loader(store)
    jobs = _jobs(store, 8, chunk_ids=[4, 2])
    loader.load(blocks, jobs)
    loader.close()
    for job, chunk_id in zip(jobs, [4, 2], strict=True):
        payload = np.zeros(store.geometry.payload_bytes, np.uint8)
        collect(job, blocks, payload)
        store.require_payload(chunk_id, payload, groups=[0])


def test_the_marginal_question_brings_the_suffix_only(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    blocks = KVBlocks(PLAIN, 12, CPU)
    blocks.poison()
    loader = _loader(store)
    split = loader.load(blocks, _jobs(store, 12, first_token=8, chunk_ids=[1]))
    loader.close()
    assert split.num_bytes == 32_768
    assert torch.all(blocks.groups[0][:, :8] == POISON)
    assert np.array_equal(blocks.groups[0][:, 8:].numpy().reshape(-1), store.read_payload(1))


def test_nothing_to_load_takes_no_bytes(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    loader = _loader(store)
    split = loader.load(KVBlocks(PLAIN, 1, CPU), _jobs(store, 0))
    loader.close()
    assert (split.num_bytes, split.num_requests, split.request_bytes) == (0, 0, None)


def test_threads_stay_and_are_all_there_before_the_first_load(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    others = set(threading.enumerate())
    loader = _loader(store)
    started = set(threading.enumerate()) - others
    assert len([thread for thread in started if not thread.name.startswith("kvio-copy")]) == 4
    blocks = KVBlocks(PLAIN, 20, CPU)
    for _ in range(3):
        loader.load(blocks, _jobs(store, 20))
    assert set(threading.enumerate()) - others == started
    loader.close()
    assert set(threading.enumerate()) == others


def test_closing_gives_back_every_descriptor_and_ends_use(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    loader = _loader(store)
    blocks = KVBlocks(PLAIN, 20, CPU)
    loader.load(blocks, _jobs(store, 20))
    assert len(os.listdir("/proc/self/fd")) > before  # noqa: PTH208
    loader.close()
    loader.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    with pytest.raises(KVIOError, match="closed"):
        loader.load(blocks, _jobs(store, 20))


def test_opening_per_read_leaves_no_file_open(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN, "lmcache")
    loader = _loader(store)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    loader.load(KVBlocks(PLAIN, 20, CPU), _jobs(store, 20))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    loader.close()


def test_a_vanished_file_is_raised_and_the_loader_goes_on_afterwards(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    loader = _loader(store)
    blocks = KVBlocks(PLAIN, 20, CPU)
    aside = store.chunk_path(2).rename(tmp_path / "aside")
    with pytest.raises(KVIOError, match=r"chunk-000002\.kv: No such file"):
        loader.load(blocks, _jobs(store, 20))
    aside.rename(store.chunk_path(2))
    loader.load(blocks, _jobs(store, 20))
    loader.close()
    _expected(store, blocks, range(5), 20)


def test_a_truncated_file_is_a_short_read(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    os.truncate(store.chunk_path(1), 4096)
    loader = _loader(store)
    with pytest.raises(ShortReadError, match="chunk-000001"):
        loader.load(KVBlocks(PLAIN, 20, CPU), _jobs(store, 20))
    loader.close()


class FailingReader:
    """Fails at its first read, and counts how often it is asked."""

    name = "failing"

    def __init__(self, asked: list[Path]) -> None:
        self._asked = asked

    def open(self, path: Path) -> None:
        self._asked.append(path)

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        raise KVIOError("broken drive")

    def shut(self, path: Path) -> None:
        pass

    def close(self) -> None:
        pass


class UnderReportingReader(FailingReader):
    """Gives one byte fewer than asked, without saying so."""

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        return sum(read.num_bytes for read in reads) - 1


def test_the_first_failure_cancels_the_rest(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN, "sglang-page")  # one thread
    asked: list[Path] = []
    loader = _loader(store, lambda: FailingReader(asked))
    with pytest.raises(KVIOError, match="broken drive"):
        loader.load(KVBlocks(PLAIN, 20, CPU), _jobs(store, 20))
    assert len(asked) == 1
    loader.close()


def test_a_backend_that_brings_less_than_asked_is_found_out(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    loader = _loader(store, lambda: UnderReportingReader([]))
    with pytest.raises(ShortReadError, match="32767 of 32768 bytes arrived"):
        loader.load(KVBlocks(PLAIN, 4, CPU), _jobs(store, 4))
    loader.close()


def test_a_backend_that_cannot_be_made_leaves_no_threads(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN)
    others = set(threading.enumerate())

    def make() -> Reader:
        raise KVIOError("no such drive")

    with pytest.raises(KVIOError, match="no such drive"):
        _loader(store, make)
    assert set(threading.enumerate()) == others


class VirtualClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_s(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_simulated_load_takes_exactly_what_the_device_takes(tmp_path: Path) -> None:
    store = _store(tmp_path, PLAIN, "sglang-page")  # one thread
    clock = VirtualClock()
    device = SimulatedDevice(32_768.0, 0.5, advance_s=clock.advance)
    loader = ChunkLoader(
        store.geometry,
        lambda: find_backend("simulated").make(BackendConfig(device=device)),
        device=CPU,
        now_s=clock.now_s,
        into="nowhere",
    )
    split = loader.load(KVBlocks(PLAIN, 20, CPU), _jobs(store, 20))
    loader.close()
    assert clock.seconds == 7.5  # five chunks of half a second latency and one second of bytes
    assert (split.open_s, split.read_s, split.h2d_s, split.scatter_s) == (0.0, 7.5, None, None)
    assert (split.queue_depth, split.achieved_queue_depth) == (1, 1.0)
    assert split.num_bytes == 5 * 32_768


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", list(PRESETS))
def test_every_byte_arrives_on_a_gpu(tmp_path: Path, name: str) -> None:
    device = torch.device("cuda")
    store = _store(tmp_path, MIXED, name)
    setting = BackendConfig(direct=store.geometry.direct)
    loader = ChunkLoader(
        store.geometry, lambda: find_backend("posix").make(setting), device=device, now_s=time.monotonic
    )
    blocks = KVBlocks(MIXED, 18, device)
    blocks.poison()
    torch.cuda.synchronize()
    split = loader.load(blocks, _jobs(store, 17, state=True))
    on_host = KVBlocks(MIXED, 18, CPU)
    for here, there in zip((*on_host.groups, on_host.state), (*blocks.groups, blocks.state), strict=True):
        here.copy_(there)
    loader.close()
    assert split.h2d_s is not None
    assert split.h2d_s > 0
    _expected(store, on_host, range(5), 17)
    store.require_state(0, on_host.state.numpy())


GEOMETRY = ChunkGeometry(uniform_layout(2, 4096), adapt_preset(find_preset("best"), num_threads=8))


@pytest.fixture
def five_more(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Lets five more threads be started, as a limit of processes would; the threads that were."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_if_allowed(thread: threading.Thread) -> None:
        if len(started) == 5:
            raise RuntimeError(SAID)
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_allowed)
    return started


def test_more_reading_threads_than_can_be_started_are_one_line_and_none_is_left(
    five_more: list[threading.Thread], tmp_path: Path
) -> None:
    setting = BackendConfig(direct=True, placement=None, directory=tmp_path)
    with pytest.raises(ThreadsError) as caught:
        ChunkLoader(
            GEOMETRY,
            lambda: find_backend("posix").make(setting),
            device=torch.device("cpu"),
            now_s=time.monotonic,
        )
    assert str(caught.value) == (
        "8 reading threads cannot all be started here; try fewer --threads, or a higher limit of processes "
        "(ulimit -u, pids.max of the container)"
    )
    assert len(five_more) == 5
    assert not any(thread.is_alive() for thread in five_more[:4])  # of the lanes that were whole


def test_other_runtime_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^something else$"), thread_limit_errors("a thread"):
        raise RuntimeError("something else")
