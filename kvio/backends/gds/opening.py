"""Opens cuFile's driver and says how far it got; run as a process of its own (see `kvio.backends.gds.driver_probe`).

Prints one JSON object a line: {"step": name, …}.  A process that spins or dies has said its last step.
"""

import ctypes
import json
import os
import sys
from types import ModuleType
from typing import Any

from kvio.backends.gds.gds_library import GdsUnavailableError, import_cufile

ROOM_BYTES = 4096  # for CUfileDrvProps_t, which is below 100 bytes and grows between versions
# offsets in CUfileDrvProps_t (cufile.h of CUDA 13.5): the nvfs part, then the feature flags
MAJOR, MINOR, STATUS_FLAGS, FEATURE_FLAGS = 0, 4, 24, 32


def _say(step: str, **facts: object) -> None:
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
        _say("absent", reason=str(error))
        return
    version = cufile.get_version()
    _say("loaded", version=f"{version // 1000}.{version % 1000 // 10}")
    reason = _enter_context()
    if reason is not None:
        _say("no context", reason=reason)
        return
    had_stdin = _has_stdin()
    _say("opening")
    try:
        cufile.driver_open()
    except cufile.cuFileError as error:
        _say("refused", reason=str(error).partition("\n")[0], closed_stdin=had_stdin and not _has_stdin())
        return
    _say("opened", closed_stdin=had_stdin and not _has_stdin(), **_read_properties(cufile))


if __name__ == "__main__":
    main()
