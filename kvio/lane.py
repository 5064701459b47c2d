"""One reading thread: keeps jobs in flight, and sends what has arrived on to the blocks."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from kvio.backends.protocol import Backend, ShortReadError
from kvio.blocks import KVBlocks
from kvio.jobs import Job
from kvio.streams import on_device
from kvio.transfer import Transfer


@dataclass(slots=True)
class Tally:
    """What one thread did in one load.

    Args:
        open_s: opening files.
        read_s: waiting for arrivals.
        in_flight_s: from submission to arrival, summed over jobs.
        h2d_s, scatter_s: copying; None where nothing is copied.
        num_bytes, num_jobs: that arrived.
    """

    open_s: float = 0.0
    read_s: float = 0.0
    in_flight_s: float = 0.0
    h2d_s: float | None = None
    scatter_s: float | None = None
    num_bytes: int = 0
    num_jobs: int = 0


@dataclass(frozen=True, slots=True)
class _Flight:
    """A job in flight: the slot it is read into, and since when."""

    job: Job
    slot: int
    since_s: float


class Lane:
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
        self, jobs: deque[Job], blocks: KVBlocks, *, stop: threading.Event, at_once: int
    ) -> Future[Tally]:
        """`bring` in the lane's own thread."""
        return self._thread.submit(self.bring, jobs, blocks, stop=stop, at_once=at_once)

    def bring(self, jobs: deque[Job], blocks: KVBlocks, *, stop: threading.Event, at_once: int) -> Tally:
        """Take jobs until there are none, or another thread has failed; `at_once` in flight at most."""
        tally = Tally()
        with on_device(self._device):
            try:
                most = min(self.backend.queue_depth, at_once)
                while not stop.is_set() and self._fill(jobs, most, tally=tally):
                    self._wait(blocks, tally)
            except BaseException:
                stop.set()
                raise
            finally:  # after a failure too: neither reads nor copies under way may outlive the load
                self._settle(tally)
        return tally

    def _fill(self, jobs: deque[Job], most: int, *, tally: Tally) -> bool:
        """Have `most` jobs in flight, or all that are left; False when there are none."""
        while len(self._in_flight) < most and (job := _take(jobs)) is not None:
            self._begin(job, tally)
        return bool(self._in_flight)

    def _wait(self, blocks: KVBlocks, tally: Tally) -> None:
        since_s = self._now_s()
        arrivals = self.backend.wait()
        now_s = self._now_s()
        tally.read_s += now_s - since_s
        for arrival in arrivals:
            flight = self._in_flight.pop(arrival.ticket)
            if arrival.num_bytes != flight.job.num_bytes:
                raise ShortReadError(
                    f"{flight.job.path}: {arrival.num_bytes} of {flight.job.num_bytes} bytes arrived"
                )
            tally.in_flight_s += now_s - flight.since_s
            tally.num_bytes += arrival.num_bytes
            tally.num_jobs += 1
            if self._open_per_read:
                self.backend.shut(flight.job.path)
            self._transfer.send(flight.slot, flight.job, blocks)

    def _begin(self, job: Job, tally: Tally) -> None:
        slot = self._transfer.take_slot()
        start_s = self._now_s()
        self.backend.open(job.path)
        opened_s = self._now_s()
        self.backend.submit(slot, job.reads, self._transfer.targets[slot])
        self._in_flight[slot] = _Flight(job, slot, opened_s)
        tally.open_s += opened_s - start_s

    def _settle(self, tally: Tally) -> None:
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


def _take(jobs: deque[Job]) -> Job | None:
    try:
        return jobs.popleft()  # atomic, so that threads need no lock
    except IndexError:
        return None
