"""Processes that end with the one that started them, even by kill -9.

`python -m kvio.child_process PARENT PROGRAM ARGUMENT …` becomes that program.  The kernel keeps the promise
across execve(2).
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def own_environment() -> dict[str, str]:
    """This process's environment, in which Python finds this project wherever it is started."""
    paths = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "PYTHONPATH": paths}


def start_child(
    command: Sequence[str], *, folder: Path, log: IO[bytes], talks: bool = False
) -> subprocess.Popen[bytes]:
    """Start a program in `folder`, in a session of its own, so that Ctrl-C reaches its parent alone.

    Args:
        command: the program's path, and its arguments.
        folder: its working directory.
        log: what it prints goes there.
        talks: its standard input and output are pipes.
    """
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(os.getpid()), *command],
        cwd=folder,
        env=own_environment(),
        stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
        stdout=subprocess.PIPE if talks else log,
        stderr=log,
        start_new_session=True,
    )


def stop_child(process: subprocess.Popen[bytes]) -> None:
    """End it and wait; safe where it has ended."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def main() -> None:
    """Become the program that the arguments name, unless the parent is gone already."""
    parent, program, *arguments = sys.argv[1:]
    die_with_parent()
    if os.getppid() == int(parent):
        os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
