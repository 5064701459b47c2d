"""The measuring process: receive one job, run it, send its messages."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

import torch

from bench.arms import ranks as group
from bench.arms.hybrid import PartOfModelError
from bench.arms.model.build import UnsupportedArchitectureError
from bench.arms.model.kv_cache import CacheMismatchError
from bench.arms.model.memory import MemoryShortError
from bench.arms.model.shard import NotDivisibleError
from bench.arms.model.weights import WeightsError
from bench.arms.prefill import PrefixTooLongError
from bench.arms.rank_arm import RankShortError, guard
from bench.measure.clock import Clock, MonotonicClock
from bench.measure.processes.messages import (
    DeviceJob,
    DeviceSeen,
    Job,
    JobDone,
    JobFailed,
    Message,
    PreflightJob,
    RankSlot,
    RoundJob,
    SampleTaken,
    SearchJob,
    SeriesFailed,
)
from bench.measure.setup import resolve_plan
from bench.measure.worker.model_session import (
    DeviceError,
    UnreadableSeriesError,
    files_taken,
    make_arms,
    open_model_session,
    pick_device,
)
from bench.measure.worker.preflight_checks import run_preflight_checks
from bench.measure.worker.sampling import measure_passes
from bench.measure.worker.tuning_reads import search_all
from kvio.backends.local.file_handles import raise_limit
from kvio.child_process import die_with_parent
from kvio.os_errors import thread_limit_errors
from kvio.protocol import KVIOError

REFUSALS = (
    CacheMismatchError,
    DeviceError,
    MemoryShortError,
    NotDivisibleError,
    PartOfModelError,
    PrefixTooLongError,
    RankShortError,
    UnsupportedArchitectureError,
    WeightsError,
)


def serve_job(pipe: Connection, slot: RankSlot | None = None) -> None:
    """Take one job from the pipe and carry it out; ends with JobDone or JobFailed, or with a traceback for a bug.

    With a `slot` it is one of several ranks, which all do the same; rank 0 sends the messages.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides what an interrupt means
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    die_with_parent()
    raise_limit()
    job = _receive(pipe)
    try:
        if slot is not None:
            _join_group(slot, job)
        with thread_limit_errors("the threads beside the reading ones"):
            for message in _carry_out(job, MonotonicClock()):
                pipe.send(message)
    except (BrokenPipeError, EOFError, ConnectionResetError):
        os._exit(1)  # the runner is gone
    except (RuntimeError, OSError, KVIOError, *REFUSALS) as error:
        failed = _describe_failure(error, job)
        if failed is None:
            raise
        pipe.send(failed)


def _describe_failure(error: Exception, job: Job) -> JobFailed | None:
    """The message for an error; None for a bug of ours."""
    if isinstance(error, RuntimeError):
        loss = group.describe_loss(error)
        return None if loss is None else JobFailed(loss, lost_others=True)
    if isinstance(error, REFUSALS):
        return JobFailed(str(error), refused=True)
    early = isinstance(job, PreflightJob)  # before anything is measured, it is the folder that was named
    if isinstance(error, KVIOError):
        return JobFailed(str(error), refused=early)
    if isinstance(error, OSError) and error.filename is not None:
        return JobFailed(f"{error.filename}: {error.strerror}", refused=early)
    return None


def _receive(pipe: Connection) -> Job:
    """The job; ends this process where the runner was killed before it could send one."""
    try:
        job: Job = pipe.recv()
    except (EOFError, ConnectionResetError):
        os._exit(1)
    return job


def _join_group(slot: RankSlot, job: Job) -> None:
    """Join the other ranks of the same job."""
    device = pick_device(job.plan.device, slot.rank, slot.size)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    listener = None if slot.listener is None else slot.listener.detach()
    group.join(slot.rank, slot.size, port=slot.port, listener=listener, device_type=device.type)


def _carry_out(job: Job, clock: Clock) -> Iterator[Message]:
    if isinstance(job, PreflightJob):
        yield from run_preflight_checks(job, clock)
        group.leave()
        yield JobDone()
    elif isinstance(job, DeviceJob):
        yield report_device(job)
        yield JobDone()
    elif isinstance(job, SearchJob):
        yield from search_all(job, clock)
        yield JobDone()
    else:
        yield from _measure(job, clock)


def report_device(job: DeviceJob) -> DeviceSeen:
    """What the measuring processes of this plan compute on, rank by rank.

    Raises:
        DeviceError: it is not there.
    """
    ranks = job.plan.tensor_parallel
    picked = [pick_device(job.plan.device, rank, ranks) for rank in range(ranks)]
    if picked[0].type == "cpu":
        return DeviceSeen(("cpu",) * ranks, None, torch.__version__)
    names = dict.fromkeys(torch.cuda.get_device_properties(device).name for device in picked)
    return DeviceSeen(
        tuple(f"cuda:{device.index or 0}" for device in picked), " + ".join(names), torch.__version__
    )


class GroupClock:
    """The clock of rank 0, broadcast: decisions that depend on the time must not differ among ranks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_s(self) -> float:
        """Seconds, the same on every rank."""
        return group.broadcast(self._clock.now_s)


def _measure(job: RoundJob, clock: Clock) -> Iterator[Message]:
    cases = [case for walk in job.passes for group in walk.groups for case in group]
    longest = max(case.prefix_tokens + case.suffix_tokens for case in cases)
    seed = job.seed * 1_000_003 + job.number
    setup = resolve_plan(job.plan)
    if job.layers is None:
        raise ValueError("a round needs the layers that the preflight chose")
    bench = open_model_session(setup, layers=job.layers, longest=longest, now_s=clock.now_s, seed=seed)
    try:
        arms = make_arms(
            bench,
            capacity_tokens=longest,
            store_dirs=job.store_dirs,
            taken=job.taken,
            seed=seed,
            series={case.series for case in cases},
        )
    except UnreadableSeriesError as error:
        if group.size() > 1:
            raise  # the other ranks wait for this one
        yield SeriesFailed(error.series, str(error))
        yield JobDone()
        return
    try:
        guarded = {name: guard(arm) for name, arm in arms.items()}
        shared = clock if group.size() == 1 else GroupClock(clock)
        for message in measure_passes(job, guarded, clock=shared):
            yield (
                replace(message, taken=files_taken(arms, job.store_dirs))
                if isinstance(message, SampleTaken)
                else message
            )
        group.leave()
        yield JobDone(files_taken(arms, job.store_dirs))
    finally:
        for arm in arms.values():
            arm.close()
