"""Where messages come from: fresh processes of a fork server, or a simulation on a virtual clock."""

import multiprocessing
import random
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Protocol

from bench.arms.case import Case
from bench.arms.simulated import SimulatedArm, meet_simulated
from bench.measure.clock import Clock, VirtualClock
from bench.measure.jobs import CaseCost, Job, JobDone, JobFailed, Message, PreflightJob, RoundJob
from bench.measure.plan import SimulationSpec
from bench.measure.sampling import measure_passes

STOP_WAIT_S = 5.0  # time that a terminated process gets before it is killed


class Source(Protocol):
    """Carries out one job at a time."""

    def run(self, job: Job) -> Iterator[Message]:
        """Messages of the job, ending with JobDone or JobFailed; closing the iterator stops the job."""

    def close(self) -> None:
        """Stop whatever still runs."""


class ProcessSource:
    """Each job in a fresh process, forked from a server that has imported torch and touched no device.

    Args:
        work: what the process does with its end of the pipe and the job.
        preload: modules that the fork server imports once.
        attach: called with the process id before the job is handed over (puts it under a read limit); None for nothing.
        overrun_s: how long after its deadline a job is left running before it is stopped.
    """

    def __init__(
        self,
        work: Callable[[Connection], None],
        *,
        preload: list[str],
        clock: Clock,
        attach: Callable[[int], None] | None,
        overrun_s: float,
    ) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(preload)
        self._work = work
        self._clock = clock
        self._attach = attach
        self._overrun_s = overrun_s

    def run(self, job: Job) -> Iterator[Message]:
        """Messages of the job as they arrive."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=self._work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        try:
            assert process.pid is not None  # started above
            if self._attach is not None:
                self._attach(process.pid)
            ours.send(job)
            yield from self._receive(ours, job)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            process.join(STOP_WAIT_S)
            yield JobFailed(_describe_exit(process.exitcode))
        finally:
            ours.close()
            process.join(0 if process.exitcode is not None else 0.5)
            if process.is_alive():
                process.kill()
                process.join(STOP_WAIT_S)

    def _receive(self, pipe: Connection, job: Job) -> Iterator[Message]:
        latest_s = job.deadline_s + self._overrun_s
        while True:
            if not pipe.poll(max(0.0, latest_s - self._clock.now_s())):
                yield JobDone()
                return
            message = pipe.recv()
            yield message
            if isinstance(message, (JobDone, JobFailed)):
                return

    def close(self) -> None:
        """Nothing outlives `run`."""


def _describe_exit(code: int | None) -> str:
    if code == -9:
        return "the measuring process was killed (out of memory?)"
    return f"the measuring process ended with exit code {code}"


class SimulatedSource:
    """Rounds of arms with a known truth; takes no real time."""

    def __init__(self, spec: SimulationSpec, *, clock: VirtualClock, num_bytes: Callable[[int], int]) -> None:
        self._spec = spec
        self._clock = clock
        self._num_bytes = num_bytes

    def _arm(self, case: Case, seed: int) -> SimulatedArm:
        def recompute_s(tokens: float) -> float:
            a, b, c = self._spec.recompute_s
            return a + b * tokens + c * tokens**2

        def load_s(tokens: float) -> float:
            a, b = self._spec.load_s
            return a + b * tokens

        def seconds(tokens: int) -> float:
            if case.arm == "hybrid":
                return meet_simulated(recompute_s, load_s, tokens)[0]
            return recompute_s(tokens) if case.arm == "recompute" else load_s(tokens)

        def truth_s(prefix: int, suffix: int) -> float:
            return seconds(prefix + suffix) - seconds(prefix) if suffix else seconds(prefix)

        return SimulatedArm(
            case.arm,
            truth_s,
            advance=self._clock.advance,
            num_bytes=self._num_bytes if case.arm != "recompute" else None,
            load_fraction=(lambda n: meet_simulated(recompute_s, load_s, n)[1])
            if case.arm == "hybrid"
            else None,
            round_noise=self._spec.round_noise,
            sample_noise=self._spec.sample_noise,
            seed=seed,
        )

    def run(self, job: Job) -> Iterator[Message]:
        """Messages of the job, at once."""
        if isinstance(job, RoundJob):
            cases = {case.series: case for walk in job.passes for group in walk.groups for case in group}
            seed = random.Random(f"{job.seed}/{job.number}").getrandbits(32)
            arms = {series: self._arm(case, seed) for series, case in cases.items()}
            yield from measure_passes(job, arms, clock=self._clock)
        else:
            yield from self._preflight(job)
        yield JobDone()

    def _preflight(self, job: PreflightJob) -> Iterator[Message]:
        for length in job.lengths:
            case = Case("recompute", "recompute", length, job.plan.suffix_tokens)
            seconds = self._arm(case, job.plan.seed).run(case).seconds
            yield CaseCost(case, wall_s=seconds, seconds=seconds)
            if seconds > job.case_limit_s:
                return

    def close(self) -> None:
        """Nothing to stop."""
