"""Can kvikio read here, in the way asked for?  Tried in a process of its own, which may spin or die."""

import sys
from collections.abc import Mapping
from pathlib import Path

from kvio.backends.protocol import Unavailable
from kvio.gds.library import INSTALL, is_installed
from kvio.gds.options import parse_gds_options
from kvio.gds.probe import run_steps

TRY_LIMIT_S = 60.0  # importing torch and making a CUDA context take most of it
TRYING = (sys.executable, "-m", "kvio.gds.trying")
POSIX = "--backend posix"


def probe_gds(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Why kvikio cannot read files in `directory` this way; None where it can.

    Raises:
        KVIOError: an option makes no sense.
    """
    parse_gds_options(options)
    if not is_installed("kvikio"):
        return Unavailable("kvikio is not installed", INSTALL)
    return try_reading(directory, options)


def try_reading(
    directory: Path,
    options: Mapping[str, str],
    *,
    limit_s: float = TRY_LIMIT_S,
    command: tuple[str, ...] = TRYING,
) -> Unavailable | None:
    """Read a small file of `directory` in a process of its own, killed after `limit_s`."""
    asked = [f"{name}={value}" for name, value in options.items()]
    steps, returncode = run_steps([*command, str(directory.resolve()), *asked], limit_s=limit_s)
    last = steps[-1] if steps else {"step": "starting"}
    if returncode == 0 and last["step"] == "read":
        return None
    if returncode == 0 and last["step"] == "refused":
        return Unavailable(str(last.get("reason")), str(last.get("remedy") or POSIX))
    if returncode is None:
        return Unavailable(f"kvikio was still {last['step']} after {limit_s:g} s and was killed", POSIX)
    return Unavailable(f"kvikio died while {last['step']} (code {returncode})", POSIX)
