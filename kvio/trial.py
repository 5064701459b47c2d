"""The process of a trial (`kvio.backends.trial`): writes a small file, and reads it back through one backend."""

import ctypes
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from kvio.backends import find_backend
from kvio.backends.protocol import HostTarget, KVIOError, Read, UnavailableError
from kvio.backends.setting import BackendSetting
from kvio.backends.trial import TRIAL_FAILED

TRIAL_BYTES = 65_536


def read_back(name: str, directory: Path, options: Mapping[str, str]) -> None:
    """Read a file of random bytes in two halves.

    Raises:
        KVIOError: it cannot be read, or other bytes came back.
    """
    content = os.urandom(TRIAL_BYTES)
    with tempfile.NamedTemporaryFile(dir=directory, prefix="trial-") as file:
        file.write(content)
        file.flush()
        memory = mmap.mmap(-1, TRIAL_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        target = HostTarget(0, address, memoryview(memory))
        with closing(find_backend(name).make(BackendSetting(options=options))) as backend:
            backend.attach([target])
            path, half = Path(file.name), TRIAL_BYTES // 2
            backend.open(path)
            backend.submit(0, [Read(path, 0, half, 0), Read(path, half, half, half)], target)
            backend.wait()
        if target.view != content:
            raise KVIOError(f"{name} brought other bytes than were written")


def main(name: str, directory: str, options: str) -> None:
    """Print null where reading works, else why not."""
    said: dict[str, str | None] | None = None
    try:
        read_back(name, Path(directory), json.loads(options))
    except UnavailableError as error:
        said = {"reason": error.why.reason, "remedy": error.why.remedy}
    except KVIOError as error:
        said = {"reason": f"{TRIAL_FAILED}: {error}", "remedy": None}
    except OSError as error:
        said = {"reason": f"{directory}: {error.strerror}", "remedy": None}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
