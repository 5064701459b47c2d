"""Brings the chunks of a prefix from storage into device blocks, with threads that stay warm."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import torch

from kvio.backends.protocol import Backend, KVIOError, ShortReadError
from kvio.blocks import KVBlocks
from kvio.chunks import ChunkGeometry
from kvio.jobs import Job
from kvio.transfer import Transfer, make_transfer, on_device


@dataclass(frozen=True, slots=True)
class LoadSplit:
    """Where the time of one load went, and how many bytes it moved.

    Args:
        open_s, read_s, h2d_s, scatter_s: the mean over the threads that had work; h2d_s and scatter_s are
            device time on a GPU, where they overlap with reads.  None where nothing is copied.
        num_bytes: bytes read from files, padding and tokens beyond the prefix included.
        num_requests: reads handed to the backend.
        request_bytes: largest of them; None when there was none.
        queue_depth: threads, each with at most one read in flight.
        achieved_queue_depth: reads in flight on average over the load; None when no time passed.
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


@dataclass(slots=True)
class _Tally:
    """What one thread did in one load."""

    open_s: float = 0.0
    read_s: float = 0.0
    h2d_s: float | None = None
    scatter_s: float | None = None
    num_bytes: int = 0
    num_jobs: int = 0
    num_requests: int = 0
    request_bytes: int = 0


class _Lane:
    """One thread's backend and buffers, used by one load at a time."""

    def __init__(
        self, backend: Backend, transfer: Transfer, *, now_s: Callable[[], float], open_per_read: bool
    ) -> None:
        self.backend = backend
        self.transfer = transfer
        self._now_s = now_s
        self._open_per_read = open_per_read

    def bring(self, take: Callable[[], Job | None], blocks: KVBlocks, stop: threading.Event) -> _Tally:
        """Take jobs until there are none, or another thread has failed."""
        tally = _Tally()
        with on_device(blocks.device):
            try:
                while not stop.is_set() and (job := take()) is not None:
                    self._bring_one(job, blocks, tally)
            except BaseException:
                stop.set()
                raise
            finally:  # after a failure too: copies under way must not outlive the load
                tally.h2d_s, tally.scatter_s = self.transfer.finish()
        return tally

    def _bring_one(self, job: Job, blocks: KVBlocks, tally: _Tally) -> None:
        slot = self.transfer.next_slot()
        start_s = self._now_s()
        self.backend.open(job.path)
        opened_s = self._now_s()
        arrived = self.backend.read(job.reads, slot.view)
        if arrived != job.num_bytes:
            raise ShortReadError(f"{job.path}: {arrived} of {job.num_bytes} bytes arrived")
        tally.read_s += self._now_s() - opened_s
        tally.open_s += opened_s - start_s
        if self._open_per_read:
            self.backend.close()
        self.transfer.send(job, blocks)
        tally.num_bytes += arrived
        tally.num_jobs += 1
        tally.num_requests += len(job.reads)
        tally.request_bytes = max(tally.request_bytes, *(read.num_bytes for read in job.reads))

    def close(self) -> None:
        """Close files and buffers."""
        self.backend.close()
        self.transfer.close()


def _take(jobs: deque[Job]) -> Job | None:
    try:
        return jobs.popleft()  # atomic, so that threads need no lock
    except IndexError:
        return None


class ChunkLoader:
    """Persistent reading threads with their buffers; one load at a time.

    Args:
        geometry: of the chunks; its preset sets the threads and whether files are opened per read.
        make_backend: a backend for one thread.
        device: of the blocks.
        now_s: the clock.
        moves_bytes: False when the backend moves nothing, and nothing is to be copied.

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
        moves_bytes: bool = True,
    ) -> None:
        self._now_s = now_s
        self._lanes: list[_Lane] = []
        preset = geometry.preset
        self._pool = ThreadPoolExecutor(preset.num_threads, thread_name_prefix="kvio")
        try:
            for _ in range(preset.num_threads):
                transfer = make_transfer(geometry.slot_bytes, device, moves_bytes=moves_bytes, now_s=now_s)
                try:
                    backend = make_backend()
                except BaseException:
                    transfer.close()
                    raise
                self._lanes.append(_Lane(backend, transfer, now_s=now_s, open_per_read=preset.open_per_read))
            self._start_threads()
        except BaseException:
            self.close()
            raise

    def _start_threads(self) -> None:
        """Have every thread running before anything is timed: the pool starts them only when all are busy."""
        gate = threading.Barrier(len(self._lanes) + 1)
        try:
            started = [self._pool.submit(gate.wait) for _ in self._lanes]
            gate.wait()
        except BaseException:
            gate.abort()  # lets those go that wait for one that could not start
            raise
        wait(started)

    def load(self, blocks: KVBlocks, jobs: Sequence[Job]) -> LoadSplit:
        """Do all jobs; what they bring has arrived in `blocks` when this returns.

        Raises:
            KVIOError: the first failure of any thread; the others stop at their next chunk.
        """
        left = deque(jobs)
        return self.load_while(blocks, lambda: _take(left), most_threads=len(jobs))

    def load_while(
        self, blocks: KVBlocks, take: Callable[[], Job | None], *, most_threads: int | None = None
    ) -> LoadSplit:
        """Do the jobs that `take` gives until it gives None; each of the reading threads asks it, at any time.

        Raises:
            KVIOError: as `load`.
        """
        if not self._lanes:
            raise KVIOError("the loader is closed")
        stop = threading.Event()
        start_s = self._now_s()
        futures = [self._pool.submit(lane.bring, take, blocks, stop) for lane in self._lanes[:most_threads]]
        try:
            done, _ = wait(futures, return_when="FIRST_EXCEPTION")
        finally:
            stop.set()
            wait(futures)  # no thread may go on writing into blocks that the caller takes back
        seconds = self._now_s() - start_s
        first_to_end = sorted(futures, key=lambda future: future not in done)
        tallies = [future.result() for future in first_to_end]
        return _summarise(tallies, seconds=seconds, queue_depth=len(self._lanes))

    def close(self) -> None:
        """Stop the threads, close every file and buffer; safe to call twice."""
        self._pool.shutdown()
        while self._lanes:
            self._lanes.pop().close()


def _summarise(tallies: Sequence[_Tally], *, seconds: float, queue_depth: int) -> LoadSplit:
    busy = [tally for tally in tallies if tally.num_jobs]
    read_s = sum(tally.read_s for tally in busy)
    return LoadSplit(
        open_s=sum(tally.open_s for tally in busy) / max(len(busy), 1),
        read_s=read_s / max(len(busy), 1),
        h2d_s=_mean([tally.h2d_s for tally in busy]),
        scatter_s=_mean([tally.scatter_s for tally in busy]),
        num_bytes=sum(tally.num_bytes for tally in busy),
        num_requests=sum(tally.num_requests for tally in busy),
        request_bytes=max((tally.request_bytes for tally in busy), default=None),
        queue_depth=queue_depth,
        achieved_queue_depth=read_s / seconds if seconds > 0 else None,
    )


def _mean(seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) / len(known) if known else None
