"""Does cuFile's driver open here?  Asked in a process of its own, which may spin, die or close its input.

Opens cuFile's driver and says how far it got; run as a process of its own (see `kvio.backends.gds.driver_probe`).

Prints one JSON object a line: {"step": name, …}.  A process that spins or dies has said its last step.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from kvio.backends.gds.gds_library import GdsUnavailableError, import_cufile

ROOM_BYTES = 4096  # for CUfileDrvProps_t, which is below 100 bytes and grows between versions
# offsets in CUfileDrvProps_t (cufile.h of CUDA 13.5): the nvfs part, then the feature flags
MAJOR, MINOR, STATUS_FLAGS, FEATURE_FLAGS = 0, 4, 24, 32


def _format_message(step: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"step": step, **facts}) + "\n")
    sys.stdout.flush()


def _enter_context() -> str | None:
    """Make the first GPU's context current, which cuFile needs; None when done, else why not."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        calls = (
            ("cuInit", (ctypes.c_uint(0),)),
            ("cuDeviceGet", (ctypes.byref(device), ctypes.c_int(0))),
            ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
            ("cuCtxSetCurrent", (context,)),
        )
        for name, arguments in calls:
            code = getattr(driver, name)(*arguments)
            if code:
                return f"{name} gives CUresult {code}"
    except (OSError, AttributeError) as error:  # no driver; a library that lacks the call
        return str(error)
    return None


def _read_properties(cufile: ModuleType) -> dict[str, Any]:
    room = ctypes.create_string_buffer(ROOM_BYTES)
    cufile.driver_get_properties(ctypes.addressof(room))

    def read(offset: int) -> int:
        return int(ctypes.c_uint32.from_buffer(room, offset).value)

    return {
        "nvfs_version": f"{read(MAJOR)}.{read(MINOR)}",
        "supported": _name_bits(cufile.DriverStatusFlags, read(STATUS_FLAGS)),
        "features": _name_bits(cufile.FeatureFlags, read(FEATURE_FLAGS)),
    }


def _name_bits(flags: Any, bits: int) -> list[str]:  # noqa: ANN401 — an enum of the bindings
    return [flag.name.removesuffix("_SUPPORTED").lower() for flag in flags if bits >> flag.value & 1]


def _has_stdin() -> bool:
    try:
        os.fstat(0)
    except OSError:
        return False
    return True


def main() -> None:
    """Load, enter a context, open; each step is said before the next is tried."""
    try:
        cufile = import_cufile()
    except GdsUnavailableError as error:
        _format_message("absent", reason=str(error))
        return
    version = cufile.get_version()
    _format_message("loaded", version=f"{version // 1000}.{version % 1000 // 10}")
    reason = _enter_context()
    if reason is not None:
        _format_message("no context", reason=reason)
        return
    had_stdin = _has_stdin()
    _format_message("opening")
    try:
        cufile.driver_open()
    except cufile.cuFileError as error:
        _format_message(
            "refused", reason=str(error).partition("\n")[0], closed_stdin=had_stdin and not _has_stdin()
        )
        return
    _format_message("opened", closed_stdin=had_stdin and not _has_stdin(), **_read_properties(cufile))


if __name__ == "__main__":
    main()


OPEN_LIMIT_S = 20.0  # on working machines it takes one or two seconds, most of it for the CUDA context
OPENING = (sys.executable, "-m", "kvio.backends.gds.driver_probe")
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
        command: what to run; it says its steps as `kvio.backends.gds.driver_probe` does.
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
