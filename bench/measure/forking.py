"""The fork server that measuring processes come from: started so that signals and kills leave nothing behind."""

import signal
import tempfile
from contextlib import ExitStack
from functools import cache
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path

from kvio.scratch import ScratchError, clean_stale, open_scratch

PREFIX = "kvfork-"  # not that of a scratch directory: this one does not say that a run measures
FOR_THE_PARENT = (signal.SIGINT, signal.SIGHUP)  # a terminal sends them to all; the parent ends the others
MOST_PATH_BYTES = 107  # of a socket's name; source: unix(7), sun_path
BELOW_BYTES = len("/kvfork-12345678/pymp-12345678/listener-12345678")
SHORT = Path("/tmp")  # where TMPDIR is too long for a socket
AFTER_MULTIPROCESSING = -200  # its own directory goes at -100 (multiprocessing.util.get_temp_dir)


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
    return named if len(bytes(named)) + BELOW_BYTES <= MOST_PATH_BYTES else SHORT
