"""Starts the self-test of a backend in a process of its own, which may hang or die without harm."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvio.child_process import own_environment
from kvio.protocol import Unavailable
from kvio.store import scratch

LIMIT_S = 30.0  # for a slow file system on a busy machine; a read takes milliseconds
TRIAL_FAILED = "a trial read failed"  # a fault of ours or of a library, not of the machine


def try_reading(name: str, directory: Path, options: Mapping[str, str], *, remedy: str) -> Unavailable | None:
    """Why the backend cannot read what was written into `directory`; None when it can.

    Args:
        name: key of `kvio.backends.BACKENDS`.
        directory: of the chunk files.
        options: of the backend.
        remedy: what to try where the self-test names nothing.
    """
    try:
        # ours, so that a trial that is killed leaves nothing
        with scratch.open_scratch(directory, prefix=scratch.TRIAL_PREFIX) as folder:
            arguments = [name, str(folder), json.dumps(dict(options))]
            return run_trial([sys.executable, "-m", "kvio.backends.selftest", *arguments], remedy=remedy)
    except (OSError, scratch.ScratchError) as error:
        return Unavailable(f"no file to try it on: {error}", "another --data-dir")


def run_trial(command: Sequence[str], *, remedy: str, limit_s: float = LIMIT_S) -> Unavailable | None:
    """Run a command whose last line is null, or `{"reason": …, "remedy": …}`; None where it is null."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=own_environment())
    except subprocess.TimeoutExpired:
        return Unavailable(f"a trial read did not end within {limit_s:g} s", remedy)
    if done.returncode < 0:
        return Unavailable(f"a trial read died of {signal.Signals(-done.returncode).name}", remedy)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Unavailable(f"{TRIAL_FAILED}: {last}", remedy)
    said = json.loads(done.stdout.splitlines()[-1])
    return None if said is None else Unavailable(said["reason"], said["remedy"] or remedy)
