"""Several fresh processes that carry out one job: the first one speaks, and none outlives a failure."""

import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import psutil
import pytest

from bench.measure.clock import MonotonicClock
from bench.measure.processes.messages import (
    CheckDone,
    JobDone,
    JobFailed,
    JobStopped,
    Message,
    PreflightJob,
    RankSlot,
)
from bench.measure.processes.source import ProcessSource
from bench.record.plan import Plan

NUM_RANKS = 3


def _run(work: Any, *, left_s: float = 60.0, num_ranks: int = NUM_RANKS) -> list[Message]:  # noqa: ANN401
    source = ProcessSource(
        work,
        preload=["tests.measure.processes.test_rank_processes"],
        clock=MonotonicClock(),
        attach=None,
        overrun_s=0.5,
        num_ranks=num_ranks,
    )
    return list(source.run(PreflightJob(Plan(model="m"), (64,), 1.0, time.monotonic() + left_s, None)))


def _tell(pipe: Connection, slot: RankSlot) -> None:
    pipe.send(CheckDone(f"rank {slot.rank}", {"pid": os.getpid()}))


def speak(pipe: Connection, slot: RankSlot) -> None:
    """Every rank says who it is and that it is done."""
    pipe.recv()
    _tell(pipe, slot)
    pipe.send(JobDone({"rank": slot.rank}))


def lose_one(pipe: Connection, slot: RankSlot) -> None:
    """The last rank is killed; the others miss it."""
    pipe.recv()
    _tell(pipe, slot)
    if slot.rank == NUM_RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    pipe.send(JobFailed("another rank is gone", lost_others=True))


def silence_one(pipe: Connection, slot: RankSlot) -> None:
    """The last rank hangs; the others stop waiting for it."""
    pipe.recv()
    _tell(pipe, slot)
    if slot.rank == NUM_RANKS - 1:
        signal.pause()
    pipe.send(JobFailed("another rank did not answer for 60 s", lost_others=True))


def refuse_together(pipe: Connection, slot: RankSlot) -> None:
    """All ranks say the same."""
    pipe.recv()
    pipe.send(JobFailed("opt: no plan", refused=True))


def refuse_alone(pipe: Connection, slot: RankSlot) -> None:
    """One rank has a reason, the first one misses it, the last one hangs."""
    pipe.recv()
    if slot.rank == 0:
        pipe.send(JobFailed("another rank is gone", lost_others=True))
    if slot.rank == 1:
        pipe.send(JobFailed("wrong bytes", refused=False))
    signal.pause()


def hang_together(pipe: Connection, slot: RankSlot) -> None:
    """Nobody answers."""
    pipe.recv()
    _tell(pipe, slot)
    signal.pause()


def test_only_the_first_rank_is_heard_while_all_is_well() -> None:
    told, done = _run(speak)
    assert isinstance(told, CheckDone) and told.name == "rank 0"
    assert done == JobDone({"rank": 0})


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lose_one, "rank 2 of 3: the measuring process was killed (out of memory?)"),
        (silence_one, "rank 2 of 3: it hangs: the other ranks timed out waiting for it"),
        (refuse_together, "opt: no plan"),
        (refuse_alone, "rank 1 of 3: wrong bytes"),
    ],
    ids=["killed", "hangs", "all alike", "one alone"],
)
def test_the_rank_that_began_it_is_named_once_and_no_process_is_left(work: Any, reason: str) -> None:  # noqa: ANN401
    messages = _run(work)
    assert isinstance(messages[-1], JobFailed)
    assert messages[-1].reason == reason
    assert sum(isinstance(message, JobFailed) for message in messages) == 1
    pids = [message.result["pid"] for message in messages if isinstance(message, CheckDone)]
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not [child for child in psutil.Process().children(recursive=True) if "signal.pause" in str(child)]


def test_what_a_lone_process_refuses_is_not_laid_at_a_rank() -> None:
    (failed,) = _run(_lone, num_ranks=1)
    assert failed == JobFailed("no", refused=True)


def _lone(pipe: Connection) -> None:
    pipe.recv()
    pipe.send(JobFailed("no", refused=True))


def test_ranks_that_run_over_the_deadline_are_all_stopped() -> None:
    (before,) = [len(psutil.Process().children(recursive=True))]
    messages = _run(hang_together, left_s=2.0)
    assert messages[-1] == JobStopped()
    assert len(psutil.Process().children(recursive=True)) <= max(
        before, 2
    )  # fork server and resource tracker
