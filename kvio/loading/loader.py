"""Brings the chunks of a prefix from storage into device blocks, with threads that stay warm."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import torch

from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.loading.blocks import KVBlocks
from kvio.loading.read_plan import ChunkRead
from kvio.loading.reader_thread import ReaderThread, ReadStats, TakeJob, take_first
from kvio.loading.transfer import make_transfer
from kvio.os_errors import thread_limit_errors
from kvio.protocol import Backend, KVIOError, Witness, most_reads


@dataclass(frozen=True, slots=True)
class LoadSplit:
    """Where the time of one load went, and how many bytes it moved.

    Args:
        open_s, read_s, h2d_s, scatter_s: the mean over the threads that had work; read_s is waiting for
            arrivals; h2d_s and scatter_s are device time on a GPU, where they overlap with reads.  None where
            nothing is copied.
        num_bytes: bytes read from files, padding and tokens beyond the prefix included.
        num_requests: reads handed to the backend.
        request_bytes: largest of them; None when there was none.
        queue_depth: reads that all threads together may have in flight: one of each job, or all of its reads where the
            backend begins them together.
        achieved_queue_depth: reads in flight on average over the load, those that are begun together until all of
            their job has arrived; None when no time passed.
        notices: codes of what the backend says of its reads.
        way: the data path that the backend saw its reads take; None where it cannot tell.
    """

    open_s: float
    read_s: float
    h2d_s: float | None
    scatter_s: float | None
    num_bytes: int
    num_requests: int
    request_bytes: int | None
    queue_depth: int
    achieved_queue_depth: float | None
    notices: tuple[str, ...] = ()
    way: str | None = None


class ChunkLoader:
    """Persistent reading threads with their buffers; one load at a time.

    Args:
        geometry: of the chunks; its preset sets the threads and whether files are opened per read.
        make_backend: a backend for one thread.
        device: of the blocks.
        now_s: the clock.
        into: what the backend reads into; "nowhere" when it moves nothing, and nothing is to be copied.

    Raises:
        KVIOError: the buffers cannot be had or registered.
    """

    def __init__(
        self,
        geometry: ChunkGeometry,
        make_backend: Callable[[], Backend],
        *,
        device: torch.device,
        now_s: Callable[[], float],
        into: Literal["host", "device", "nowhere"] = "host",
    ) -> None:
        self._now_s = now_s
        self._lanes: list[ReaderThread] = []
        try:
            num_threads = geometry.preset.num_threads
            with thread_limit_errors(f"{num_threads} reading threads"):
                for _ in range(num_threads):
                    self._add_lane(geometry, make_backend(), device=device, into=into)
        except BaseException:
            self.close()
            raise

    def _add_lane(
        self,
        geometry: ChunkGeometry,
        backend: Backend,
        *,
        device: torch.device,
        into: Literal["host", "device", "nowhere"],
    ) -> None:
        try:
            transfer = make_transfer(
                geometry.slot_bytes,
                device,
                num_slots=backend.queue_depth + 1,  # one is copied from while the others are read into
                into=into,
                now_s=self._now_s,
            )
        except BaseException:
            backend.close()
            raise
        lane = ReaderThread(
            backend, transfer, device=device, now_s=self._now_s, open_per_read=geometry.preset.open_per_read
        )
        self._lanes.append(lane)
        lane.start()

    def load(self, blocks: KVBlocks, jobs: Sequence[ChunkRead]) -> LoadSplit:
        """Do all jobs; what they bring has arrived in `blocks` when this returns.

        Raises:
            KVIOError: the first failure of any thread; the others stop at their next chunk.
        """
        left = deque(jobs)
        return self.load_while(blocks, lambda: take_first(left), most_threads=len(jobs))

    def load_while(self, blocks: KVBlocks, take: TakeJob, *, most_threads: int | None = None) -> LoadSplit:
        """Do the jobs that `take` gives until it gives None; each of the reading threads asks it, at any time.

        Raises:
            KVIOError: as `load`.
        """
        if not self._lanes:
            raise KVIOError("the loader is closed")
        stop = threading.Event()
        start_s = self._now_s()
        share = None if most_threads is None else -(-most_threads // len(self._lanes))
        # the first to start must not take what others could copy
        futures = [lane.begin(take, blocks, stop=stop, at_once=share) for lane in self._lanes[:most_threads]]
        try:
            done, _ = wait(futures, return_when="FIRST_EXCEPTION")
        finally:
            stop.set()
            wait(futures)  # no thread may go on writing into blocks that the caller takes back
        seconds = self._now_s() - start_s
        first_to_end = sorted(futures, key=lambda future: future not in done)
        tallies = [future.result() for future in first_to_end]
        return _summarise(tallies, seconds=seconds, backends=[lane.backend for lane in self._lanes])

    def close(self) -> None:
        """Stop the threads, close every file and buffer; safe to call twice."""
        with ExitStack() as closing:  # goes on after a failure
            while self._lanes:
                closing.callback(self._lanes.pop().close)


def _summarise(tallies: Sequence[ReadStats], *, seconds: float, backends: Sequence[Backend]) -> LoadSplit:
    busy = [tally for tally in tallies if tally.num_jobs]
    in_flight_s = sum(tally.in_flight_s for tally in busy)
    reads_per_job = max((tally.reads_per_job for tally in busy), default=1)
    return LoadSplit(
        open_s=sum(tally.open_s for tally in busy) / max(len(busy), 1),
        read_s=sum(tally.read_s for tally in busy) / max(len(busy), 1),
        h2d_s=_mean([tally.h2d_s for tally in busy]),
        scatter_s=_mean([tally.scatter_s for tally in busy]),
        num_bytes=sum(tally.num_bytes for tally in busy),
        num_requests=sum(tally.num_requests for tally in busy),
        request_bytes=max((tally.request_bytes for tally in busy), default=None),
        queue_depth=sum(
            most_reads(backend.queue_depth, reads_per_job, backend.reads_at_once) for backend in backends
        ),
        achieved_queue_depth=in_flight_s / seconds if seconds > 0 else None,
        notices=tuple(dict.fromkeys(code for backend in backends for code in backend.notices)),
        way=_way(backends),
    )


def _way(backends: Sequence[Backend]) -> str | None:
    """The way that all threads' reads took; several are all named."""
    told = {backend.take_way() for backend in backends if isinstance(backend, Witness)}
    return " and ".join(sorted(way for way in told if way is not None)) or None


def _mean(seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) / len(known) if known else None
