"""One reading thread: keeps jobs in flight, and sends what has arrived on to the blocks.

Whose turn the buffers of one thread are: to be read into, or to be copied from.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from kvio.loading.blocks import KVBlocks
from kvio.loading.read_plan import ChunkRead
from kvio.loading.transfer import Transfer
from kvio.protocol import Backend, ShortReadError
from kvio.streams import on_device

TakeJob = Callable[[], ChunkRead | None]


@dataclass(slots=True)
class ReadStats:
    """What one thread did in one load.

    Args:
        open_s: opening files.
        read_s: waiting for arrivals.
        in_flight_s: from submission to arrival, summed over the reads in flight: one of each job, or all of it where the
            backend begins them together and tells of the job alone.
        h2d_s, scatter_s: copying; None where nothing is copied.
        num_bytes, num_jobs, num_requests: that arrived.
        request_bytes: largest read.
        reads_per_job: of the job with most.
    """

    open_s: float = 0.0
    read_s: float = 0.0
    in_flight_s: float = 0.0
    h2d_s: float | None = None
    scatter_s: float | None = None
    num_bytes: int = 0
    num_jobs: int = 0
    num_requests: int = 0
    request_bytes: int = 0
    reads_per_job: int = 0


@dataclass(frozen=True, slots=True)
class _Flight:
    """A job in flight, and the slot it is read into."""

    job: ChunkRead
    slot: int


class ReaderThread:
    """A thread with its backend and buffers, used by one load at a time.

    From `start` on, the backend is called from this thread alone.
    """

    def __init__(
        self,
        backend: Backend,
        transfer: Transfer,
        *,
        device: torch.device,
        now_s: Callable[[], float],
        open_per_read: bool,
    ) -> None:
        self.backend = backend
        self._transfer = transfer
        self._device = device
        self._now_s = now_s
        self._open_per_read = open_per_read
        self._in_flight: dict[int, _Flight] = {}  # by slot, which is the ticket
        self._counted_s = 0.0  # until when the time of what is in flight is in the tally
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kvio")
        self._started = False

    def start(self) -> None:
        """Start the thread and have the buffers registered, so that neither is timed.

        Raises:
            KVIOError: they cannot be registered.
        """
        attached = self._thread.submit(self._on_device, lambda: self.backend.attach(self._transfer.targets))
        self._started = True
        attached.result()

    def _on_device(self, action: Callable[[], None]) -> None:
        with on_device(self._device):
            action()

    def begin(
        self, take: TakeJob, blocks: KVBlocks, *, stop: threading.Event, at_once: int | None
    ) -> Future[ReadStats]:
        """`run` in the lane's own thread."""
        return self._thread.submit(self.run, take, blocks, stop=stop, at_once=at_once)

    def run(
        self, take: TakeJob, blocks: KVBlocks, *, stop: threading.Event, at_once: int | None
    ) -> ReadStats:
        """Take jobs until there are none, or another thread has failed; `at_once` in flight at most."""
        tally = ReadStats()
        with on_device(self._device):
            try:
                most = self.backend.queue_depth if at_once is None else min(self.backend.queue_depth, at_once)
                while not stop.is_set() and self._fill(take, most, tally=tally):
                    self._wait(blocks, tally)
            except BaseException:
                stop.set()
                raise
            finally:  # after a failure too: neither reads nor copies under way may outlive the load
                self._release(tally)
        return tally

    def _fill(self, take: TakeJob, most: int, *, tally: ReadStats) -> bool:
        """Have `most` jobs in flight, or all that are left; False when there are none."""
        while len(self._in_flight) < most and (job := take()) is not None:
            self._begin(job, tally)
        return bool(self._in_flight)

    def _wait(self, blocks: KVBlocks, tally: ReadStats) -> None:
        since_s = self._now_s()
        arrivals = self.backend.wait()
        now_s = self._now_s()
        tally.read_s += now_s - since_s
        self._count_time(now_s, tally)
        for arrival in arrivals:
            flight = self._in_flight.pop(arrival.ticket)
            if arrival.num_bytes != flight.job.num_bytes:
                raise ShortReadError(
                    f"{flight.job.path}: {arrival.num_bytes} of {flight.job.num_bytes} bytes arrived"
                )
            tally.num_bytes += arrival.num_bytes
            tally.num_jobs += 1
            tally.num_requests += len(flight.job.reads)
            tally.reads_per_job = max(tally.reads_per_job, len(flight.job.reads))
            sizes = (read.num_bytes for read in flight.job.reads)
            tally.request_bytes = max(tally.request_bytes, *sizes)
            if self._open_per_read:
                self.backend.shut(flight.job.path)
            self._transfer.send(flight.slot, flight.job, blocks)

    def _begin(self, job: ChunkRead, tally: ReadStats) -> None:
        slot = self._transfer.take_slot()
        start_s = self._now_s()
        self.backend.open(job.path)
        opened_s = self._now_s()
        self.backend.submit(slot, job.reads, self._transfer.targets[slot])
        self._count_time(opened_s, tally)
        self._in_flight[slot] = _Flight(job, slot)
        tally.open_s += opened_s - start_s

    def _count_time(self, now_s: float, tally: ReadStats) -> None:
        """Add the time that has passed, for each read in flight; called before that number changes."""
        jobs, at_once = self._in_flight.values(), self.backend.reads_at_once
        in_flight = len(jobs)
        if at_once is not None:
            in_flight = min(at_once, sum(len(flight.job.reads) for flight in jobs))
        tally.in_flight_s += in_flight * (now_s - self._counted_s)
        self._counted_s = now_s

    def _release(self, tally: ReadStats) -> None:
        try:
            if self._in_flight:
                self._in_flight.clear()
                self.backend.drain()
        finally:
            tally.h2d_s, tally.scatter_s = self._transfer.finish()

    def close(self) -> None:
        """Close files and the thread, then buffers: a registered one must not be freed."""
        with ExitStack() as closing:  # goes on after a failure
            closing.callback(self._transfer.close)
            closing.callback(self._thread.shutdown)
            if self._started:
                closing.callback(self._thread.submit(self._on_device, self.backend.close).result)
            else:
                closing.callback(self.backend.close)


def take_first(jobs: deque[ChunkRead]) -> ChunkRead | None:
    """The first job that is left; None when there is none."""
    try:
        return jobs.popleft()  # atomic, so that threads need no lock
    except IndexError:
        return None
