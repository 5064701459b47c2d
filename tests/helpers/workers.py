"""What processes of the source's tests do."""

import os
import signal
import time
from multiprocessing.connection import Connection

from bench.measure.processes.messages import CheckDone, JobDone


def answer(pipe: Connection) -> None:
    """Say who it is, then that it is done."""
    pipe.recv()
    pipe.send(CheckDone("process", {"pid": os.getpid(), "parent": os.getppid()}))
    pipe.send(JobDone())


def die(pipe: Connection) -> None:
    """End without a word."""
    pipe.recv()
    os._exit(7)


def orphan(pipe: Connection) -> None:
    """Kill the fork server, which alone can tell how this process ended."""
    pipe.recv()
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(0)


def hang(pipe: Connection) -> None:
    """Never answer."""
    pipe.recv()
    pipe.send(CheckDone("process", {"pid": os.getpid()}))
    while True:
        time.sleep(60)


def stop_server(pipe: Connection) -> None:
    """Answer, and leave the fork server stopped, so that nobody hears how this process ends."""
    os.kill(os.getppid(), signal.SIGSTOP)
    answer(pipe)
