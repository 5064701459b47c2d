"""The fork server that measuring processes come from: started so that signals and kills leave nothing behind."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path

import psutil

from kvio.store.scratch import ScratchError, clean_stale, open_scratch

PREFIX = "kvfork-"  # not that of a scratch directory: this one does not mark a running sweep
FOR_THE_PARENT = (signal.SIGINT, signal.SIGHUP)  # a terminal sends them to all; the parent ends the others
MAX_PATH_BYTES = 107  # of a socket's name; source: unix(7), sun_path
BELOW_BYTES = len("/kvfork-12345678/pymp-12345678/listener-12345678")
SHORT = Path("/tmp")  # where TMPDIR is too long for a socket
AFTER_MULTIPROCESSING = -200  # its own directory goes at -100 (multiprocessing.util.get_temp_dir)


class StartError(Exception):
    """The fork server did not start a process; one line with the reason."""


class ServerKilledError(StartError):
    """The fork server died before it had started a process: another one can start it."""


def start_server() -> None:
    """Start the fork server where none runs; neither it nor its children ever see a signal meant for the parent.

    Raises:
        ScratchError: there is no temporary directory for its socket.
    """
    _hold_folder()
    resource_tracker.ensure_running()  # before: it unblocks signals itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_PARENT)
    try:
        forkserver.ensure_running()  # a blocked signal stays blocked across fork(2) and execve(2)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def limit_starts(limit_s: float) -> Iterator[None]:
    """Starts of processes that take no longer than this; the fork server goes where one fails, so that the next is fresh.

    Its death ends the read in which `Process.start` waits for it, as a signal for this process does.

    Raises:
        StartError: it did not answer in time and was killed, or died by itself.
    """
    late = threading.Event()

    def give_up() -> None:
        late.set()
        end_server()

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    died = False
    try:
        yield
    except (EOFError, ConnectionError):  # its ends of all pipes went with it
        died = True
    except BaseException:  # an interrupt too: a server that hangs would outlive us
        end_server()
        raise
    finally:
        timer.cancel()
        timer.join()
    if late.is_set() or died:
        end_server()
        name = "the fork server, which starts the measuring processes,"
        if late.is_set():
            raise StartError(f"{name} did not start them within {limit_s:.0f} s and was ended")
        raise ServerKilledError(f"{name} was killed")


def end_server() -> None:
    """Kill the fork server, where one runs, and all that it started; it is dead when this returns."""
    # source: Lib/multiprocessing/forkserver.py, ForkServer; there is no public way to its process id
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is None:
        return
    with suppress(psutil.NoSuchProcess):
        server = psutil.Process(pid)
        server.suspend()  # it starts nothing more while its children are listed
        for process in (*server.children(recursive=True), server):
            with suppress(psutil.NoSuchProcess):
                process.kill()
    with suppress(ChildProcessError):  # multiprocessing was faster
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # not reaped: `ensure_running` does it


@cache
def _hold_folder() -> None:
    """Have multiprocessing keep its socket where the next run finds it after a kill -9; once for this process."""
    parent = _find_parent()
    clean_stale(parent, prefix=PREFIX)
    stack = ExitStack()
    folder = stack.enter_context(open_scratch(parent, prefix=PREFIX))
    util.Finalize(None, stack.close, exitpriority=AFTER_MULTIPROCESSING)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def _find_parent() -> Path:
    try:
        named = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ScratchError(f"{error.strerror}; free some, or name one with TMPDIR=") from None
    return named if len(bytes(named)) + BELOW_BYTES <= MAX_PATH_BYTES else SHORT
