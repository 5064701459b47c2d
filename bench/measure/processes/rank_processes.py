"""The fresh processes of one job: one, or the ranks of a group, of which rank 0 sends the messages."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess

from bench.measure.processes.fork_server import end_server, limit_starts
from bench.measure.processes.messages import Job, JobDone, JobFailed, JobStopped, Message, RankSlot

END_WAIT_S = 0.5  # time that a process gets to end by itself before it is killed
STOP_WAIT_S = 5.0  # time that a killed process gets to be gone
CAUSE_WAIT_S = 1.0  # when one rank fails the others fail too; time for the one that began it to be heard


@dataclass(slots=True)
class RankProcesses:
    """Running processes, by rank, with our ends of their pipes."""

    processes: list[ForkServerProcess]
    pipes: list[Connection]
    failures: dict[int, JobFailed] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank."""
        return [process.pid for process in self.processes if process.pid is not None]

    def hand_over(self, job: Job) -> None:
        """Give every process the job."""
        for rank, pipe in enumerate(self.pipes):
            try:
                pipe.send(job)
            except (BrokenPipeError, ConnectionResetError):
                self._reap(rank)

    def messages(self, left_s: Callable[[], float]) -> Iterator[Message]:
        """Messages of rank 0 until it is done, any rank fails, or the time is used."""
        while not self.failures:
            ready = self._ready(left_s())
            if not ready:
                yield JobStopped()
                return
            for rank in ready:
                message = self._receive(rank)
                if message is None:
                    continue
                yield message
                if isinstance(message, JobDone):
                    return
        yield self._find_cause()

    def _ready(self, timeout_s: float) -> list[int]:
        open_pipes = {
            pipe: rank
            for rank, pipe in enumerate(self.pipes)
            if rank not in self.failures and rank not in self.done
        }
        return sorted(open_pipes[pipe] for pipe in wait(list(open_pipes), max(0.0, timeout_s)))  # type: ignore[index]

    def _receive(self, rank: int) -> Message | None:
        """The next message of one rank; None for failures, which are kept, and for other ranks than 0."""
        try:
            message: Message = self.pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            self._reap(rank)
            return None
        if isinstance(message, JobFailed):
            self.failures[rank] = message
            return None
        if isinstance(message, JobDone):
            self.done.add(rank)
        return message if rank == 0 else None

    def _reap(self, rank: int) -> None:
        process = self.processes[rank]
        process.join(STOP_WAIT_S)
        self.failures[rank] = JobFailed(_describe_exit(process.exitcode))

    def _find_cause(self) -> JobFailed:
        """Why the job failed: the failure of the first rank that did not just miss another."""
        while len(self.failures) < len(self.pipes):
            ready = self._ready(CAUSE_WAIT_S)
            if not ready:
                break
            for rank in ready:
                self._receive(rank)
        causes = {rank: failed for rank, failed in self.failures.items() if not failed.lost_others}
        silent = min(set(range(len(self.pipes))) - self.failures.keys(), default=None)
        if not causes and silent is not None:
            causes = {silent: JobFailed("it hangs: the other ranks timed out waiting for it")}
        rank, failed = min((causes or self.failures).items())
        if len(self.pipes) == 1 or len({cause.reason for cause in causes.values()}) < len(causes):
            return failed  # one process, or the same failure in several
        return JobFailed(f"rank {rank} of {len(self.pipes)}: {failed.reason}", refused=failed.refused)


UNTOLD = 255  # multiprocessing's code of a process whose fork server is gone


@contextmanager
def open_ranks(
    context: ForkServerContext, work: Callable[..., None], *, num_ranks: int, start_s: float
) -> Iterator[RankProcesses]:
    """Start the processes; none is left when the block ends, however it ends.

    Args:
        context: of the fork server.
        work: what each does with its end of the pipe, and its slot among several.
        num_ranks: how many.
        start_s: seconds that it may take to start them all.

    Raises:
        StartError: they cannot be started.
    """
    ranks = RankProcesses([], [])
    with ExitStack() as stack:
        stack.callback(_stop, ranks)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0))) if num_ranks > 1 else None
        with limit_starts(start_s):
            for rank in range(num_ranks):
                ours, theirs = context.Pipe()
                ranks.pipes.append(ours)
                slot = () if listener is None else (_make_slot(rank, num_ranks, listener),)
                process = context.Process(target=work, args=(theirs, *slot), daemon=True)
                process.start()
                ranks.processes.append(process)
                theirs.close()
        yield ranks


def _make_slot(rank: int, size: int, listener: socket.socket) -> RankSlot:
    """The ranks meet at a port that is ours already, so that no other process can take it."""
    return RankSlot(rank, size, listener.getsockname()[1], listener if rank == 0 else None)


def _stop(ranks: RankProcesses) -> None:
    for pipe in ranks.pipes:
        pipe.close()
    for process in ranks.processes:
        process.join(0 if process.exitcode is not None else END_WAIT_S)
        if process.is_alive():
            process.kill()
    for process in ranks.processes:
        process.join(STOP_WAIT_S)
        if process.is_alive():  # or it is dead, and the fork server, which knows, hangs
            end_server()


def _describe_exit(code: int | None) -> str:
    if code == -9:
        return "the measuring process was killed (out of memory?)"
    if code is None:
        return "the measuring process ended, and the fork server, which knows how, does not answer"
    if code == UNTOLD:
        return "the measuring process, or the one that starts it, was killed"
    return f"the measuring process ended with exit code {code}"
