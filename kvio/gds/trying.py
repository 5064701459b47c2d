"""Reads a small file through kvikio and says how far it got; run as a process of its own.

Arguments: a directory, and options as NAME=VALUE.  Prints one JSON object a line, as `kvio.gds.opening` does.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from kvio.backends.gds import NO_DRIVER, GdsBackend
from kvio.backends.protocol import DeviceTarget, KVIOError, Read
from kvio.backends.setting import BackendSetting
from kvio.files import write_file
from kvio.gds.driver import find_driver_kind
from kvio.staging import make_staging

TRIED_BYTES = 2**20


def _say(step: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"step": step, **facts}) + "\n")
    sys.stdout.flush()


def _read_back(directory: Path, options: dict[str, str], device: torch.device) -> bool:
    """Whether what was written arrives in memory of the device."""
    content = np.random.default_rng(0).bytes(TRIED_BYTES)
    memory = make_staging(TRIED_BYTES, device)
    with tempfile.TemporaryDirectory(dir=directory, prefix="kvcross-") as folder:
        path = Path(folder) / "tried"
        write_file(path, [content])
        backend = GdsBackend(BackendSetting(directory=Path(folder), options=options))
        try:
            backend.attach([DeviceTarget(0, memory)])
            backend.open(path)
            backend.submit(0, [Read(path, 0, TRIED_BYTES, 0)], DeviceTarget(0, memory))
            backend.wait()
        finally:
            backend.close()
    return memory.cpu().numpy().tobytes() == content


def main(arguments: Sequence[str]) -> None:
    """Look for a driver, then read; each step is said before it is tried."""
    directory, options = Path(arguments[0]), dict(text.split("=", 1) for text in arguments[1:])
    kind = find_driver_kind()
    if kind == "absent":
        _say("refused", reason=NO_DRIVER, remedy="install the NVIDIA driver, or --backend posix")
        return
    device = torch.device("cuda" if kind == "gpu" and torch.cuda.is_available() else "cpu")
    _say("reading", driver=kind, device=device.type)
    try:
        arrived = _read_back(directory, options, device)
    except (KVIOError, OSError) as error:
        _say("refused", reason=str(error).partition("\n")[0])
        return
    if not arrived:
        _say("refused", reason="other bytes arrived than were written")
        return
    _say("read", device=device.type)


if __name__ == "__main__":
    main(sys.argv[1:])
