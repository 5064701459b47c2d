"""Does cuFile's driver open here?  Asked in a process of its own, which may spin, die or close its input."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

OPEN_LIMIT_S = 20.0  # on working machines it takes one or two seconds, most of it for the CUDA context
OPENING = (sys.executable, "-m", "kvio.backends.gds.opening")
CHECKOUT = Path(__file__).parents[3]

Outcome = Literal["opened", "refused", "no context", "absent", "hung", "died"]


@dataclass(frozen=True, slots=True)
class DriverProbe:
    """How opening cuFile's driver ended.

    Args:
        outcome: "hung": killed at the time limit; "died": by a signal or with an error of its own.
        what: one line.
        closed_stdin: cuFile closed descriptor 0 of the process, as it does when nvidia-fs's device nodes are
            missing; whatever is opened next would take the number.
        version: of libcufile, None when it was never loaded.
        facts: of the driver's properties: `nvfs_version`, `supported`, `features`.
    """

    outcome: Outcome
    what: str
    closed_stdin: bool = False
    version: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def probe_driver(*, limit_s: float = OPEN_LIMIT_S, command: Sequence[str] = OPENING) -> DriverProbe:
    """Open cuFile's driver in a process of its own.

    Args:
        limit_s: then it is killed: without /proc/modules cuFileDriverOpen spins for ever.
        command: what to run; it says its steps as `kvio.backends.gds.opening` does.
    """
    steps, returncode = run_steps(command, limit_s=limit_s)
    return judge(steps, returncode=returncode, limit_s=limit_s)


def run_steps(command: Sequence[str], *, limit_s: float) -> tuple[list[dict[str, Any]], int | None]:
    """The steps that a process says, and its return code; None when it was killed after `limit_s`.

    It has input, working folder and log file of its own.
    """
    with tempfile.TemporaryDirectory(prefix="kvcross-") as folder:
        environment = {**os.environ, "CUFILE_LOGFILE_PATH": f"{folder}/cufile.log"}
        places = filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH")))
        environment["PYTHONPATH"] = os.pathsep.join(places)
        try:
            done = subprocess.run(
                command, input=b"", capture_output=True, cwd=folder, env=environment, timeout=limit_s
            )
        except subprocess.TimeoutExpired as expired:
            return read_steps(expired.stdout or b""), None
        return read_steps(done.stdout), done.returncode


def read_steps(output: bytes) -> list[dict[str, Any]]:
    """The steps that were said, in order; other lines, which libraries print, are left out."""
    steps = []
    for line in output.decode(errors="replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and isinstance(said.get("step"), str):
            steps.append(said)
    return steps


def judge(steps: Sequence[dict[str, Any]], *, returncode: int | None, limit_s: float) -> DriverProbe:
    """What the steps and the end of the process mean; `returncode` None: killed after `limit_s`."""
    version = next((said.get("version") for said in steps if said["step"] == "loaded"), None)
    last = steps[-1] if steps else {"step": "starting"}
    reason, closed = str(last.get("reason", "")), bool(last.get("closed_stdin"))
    where = f"while {last['step']}" if last["step"].endswith("ing") else f"after {last['step']}"
    if returncode is None:
        what = f"cuFile was {where} for {limit_s:g} s and was killed"
        return DriverProbe("hung", what, version=version)
    if returncode:
        return DriverProbe("died", f"{_name_end(returncode)} {where}", version=version)
    if last["step"] == "opened":
        facts = {name: last.get(name) for name in ("nvfs_version", "supported", "features")}
        return DriverProbe("opened", f"libcufile {version} opens", closed, version, facts)
    for outcome in ("refused", "no context", "absent"):
        if last["step"] == outcome:
            return DriverProbe(outcome, reason, closed, version)
    return DriverProbe("died", f"ended without a word {where}", version=version)


def _name_end(returncode: int) -> str:
    if returncode > 0:
        return f"exit code {returncode}"
    return f"killed by {signal.Signals(-returncode).name}"
