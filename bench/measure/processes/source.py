"""Run jobs: in fresh processes of a fork server, or as a simulation on a virtual clock."""

import multiprocessing
import random
from collections.abc import Callable, Iterator
from typing import Protocol

from bench.arms.simulated import SimulatedArm, meet_simulated
from bench.measure.clock import Clock, VirtualClock
from bench.measure.processes.fork_server import ServerKilledError, StartError, start_server
from bench.measure.processes.messages import (
    CaseCost,
    Job,
    JobDone,
    JobFailed,
    Message,
    PreflightJob,
    RoundJob,
)
from bench.measure.processes.rank_processes import open_ranks
from bench.measure.worker.sampling import measure_passes
from bench.record.plan import SimulationSpec
from bench.record.sample import Case

START_S = 60.0  # that the start of a job's processes may take at least: the fork server may have torch to import first


class Source(Protocol):
    """Carries out one job at a time."""

    def run(self, job: Job) -> Iterator[Message]:
        """Messages of the job, ending with JobDone, JobFailed or JobStopped; closing the iterator stops the job."""

    def close(self) -> None:
        """Stop whatever still runs."""


class ProcessSource:
    """Each job in fresh processes, forked from a server that has imported torch and touched no device.

    Args:
        work: what a process does with its end of the pipe, the job, and its slot among several.
        preload: modules that the fork server imports once.
        attach: called with the process id before the job is handed over (puts it under a read limit); None for nothing.
        overrun_s: how long after its deadline a job is left running before it is stopped.
        num_ranks: processes that carry out one job together.
    """

    def __init__(
        self,
        work: Callable[..., None],
        *,
        preload: list[str],
        clock: Clock,
        attach: Callable[[int], None] | None,
        overrun_s: float,
        num_ranks: int = 1,
    ) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(preload)
        self._work = work
        self._clock = clock
        self._attach = attach
        self._overrun_s = overrun_s
        self._num_ranks = num_ranks

    def run(self, job: Job) -> Iterator[Message]:
        """Messages of the job as they arrive."""
        latest_s = job.deadline_s + self._overrun_s
        try:
            try:
                yield from self._run(job, latest_s)
            except ServerKilledError:  # by the job before, or since: its death may be seen only here
                yield from self._run(job, latest_s)
        except StartError as error:
            yield JobFailed(str(error))

    def _run(self, job: Job, latest_s: float) -> Iterator[Message]:
        start_server()
        start_s = max(START_S, latest_s - self._clock.now_s())
        with open_ranks(self._context, self._work, num_ranks=self._num_ranks, start_s=start_s) as ranks:
            for pid in ranks.pids:
                if self._attach is not None:
                    self._attach(pid)
            ranks.hand_over(job)
            yield from ranks.messages(lambda: latest_s - self._clock.now_s())

    def close(self) -> None:
        """Nothing outlives `run`."""


class SimulatedSource:
    """Rounds of arms with a known truth; takes no real time."""

    def __init__(
        self, spec: SimulationSpec, *, clock: VirtualClock, num_bytes: Callable[[int, int], int]
    ) -> None:
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
        elif isinstance(job, PreflightJob):
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
