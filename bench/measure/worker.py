"""A fresh process: takes one job from its pipe, carries it out, sends what comes of it."""

import ctypes
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

from bench.arms.cache import CacheMismatchError
from bench.arms.hybrid import PartOfModelError
from bench.arms.memory import MemoryGuard, MemoryShortError
from bench.arms.model import UnsupportedArchitectureError, WeightsError
from bench.arms.prefill import PrefixTooLongError
from bench.measure.checks import look_ahead
from bench.measure.clock import Clock, MonotonicClock
from bench.measure.jobs import Job, JobDone, JobFailed, Message, PreflightJob, RoundJob
from bench.measure.sampling import measure_passes
from bench.measure.setup import work_out
from bench.measure.workbench import DeviceError, make_arms, next_chunks, open_workbench
from kvio.backends.protocol import KVIOError

PR_SET_PDEATHSIG = 1  # prctl(2)
REFUSALS = (
    CacheMismatchError,
    DeviceError,
    MemoryShortError,
    PartOfModelError,
    PrefixTooLongError,
    UnsupportedArchitectureError,
    WeightsError,
)


def serve_job(pipe: Connection) -> None:
    """Take one job from the pipe and carry it out; ends with JobDone or JobFailed, or with a traceback for a bug."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides what an interrupt means
    _die_with_parent()
    job: Job = pipe.recv()
    try:
        for message in _carry_out(job, MonotonicClock()):
            pipe.send(message)
    except REFUSALS as error:
        pipe.send(JobFailed(str(error), refused=True))
    except KVIOError as error:  # before anything is measured, it is the folder that was named
        pipe.send(JobFailed(str(error), refused=isinstance(job, PreflightJob)))
    except (BrokenPipeError, EOFError, ConnectionResetError):
        os._exit(1)  # the runner is gone; nobody is left to tell


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _carry_out(job: Job, clock: Clock) -> Iterator[Message]:
    if isinstance(job, PreflightJob):
        yield from look_ahead(job, clock)
        yield JobDone()
    else:
        yield from _measure(job, clock)


def _measure(job: RoundJob, clock: Clock) -> Iterator[Message]:
    cases = [case for walk in job.passes for group in walk.groups for case in group]
    longest = max(case.prefix_tokens + case.suffix_tokens for case in cases)
    seed = job.seed * 1_000_003 + job.number
    setup = work_out(job.plan)
    bench = open_workbench(setup, longest=longest, now_s=clock.now_s, seed=seed)
    arms = make_arms(
        bench, capacity_tokens=longest, store_dirs=job.store_dirs, first_chunk=job.first_chunk, seed=seed
    )
    try:
        guarded = {name: MemoryGuard(arm) for name, arm in arms.items()}
        yield from measure_passes(job, guarded, clock=clock)
        yield JobDone(next_chunks(arms))
    finally:
        for arm in arms.values():
            arm.close()
