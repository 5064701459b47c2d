"""Self-test of a backend: write a small file, place it where the backend needs that, read it back and compare.

    python -m kvio.backends.selftest NAME DIRECTORY OPTIONS

The last line printed is null, or `{"reason": …, "remedy": …}`.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from kvio.backends import BackendKind, find_backend
from kvio.backends.config import BackendConfig
from kvio.backends.placement import Placement
from kvio.backends.selftest_process import TRIAL_FAILED
from kvio.protocol import (
    DeviceTarget,
    HostTarget,
    KVIOError,
    Read,
    Target,
    Unavailable,
    UnavailableError,
    make_host_target,
)

TRIAL_BYTES = 1 << 20


def read_back(name: str, directory: Path, options: Mapping[str, str]) -> None:
    """Write a file of random bytes into `directory`, which the caller removes, and read it in two halves.

    Raises:
        UnavailableError: the chunks cannot be placed, or the device is missing.
        KVIOError: the file cannot be read, or other bytes came back.
    """
    kind, content = find_backend(name), os.urandom(TRIAL_BYTES)
    path, half = directory / "file", TRIAL_BYTES // 2
    path.write_bytes(content)
    with ExitStack() as stack:
        placement = _place(kind, path, options, stack=stack)
        target = make_host_target(TRIAL_BYTES) if kind.target_memory == "host" else _device_target(kind)
        setting = BackendConfig(placement=placement, directory=directory, options=options)
        backend = stack.enter_context(closing(kind.make(setting)))
        backend.attach([target])
        backend.open(path)
        backend.submit(0, [Read(path, 0, half, 0), Read(path, half, half, half)], target)
        backend.wait()
    if _content(target) != content:
        raise KVIOError(f"{name} returned other bytes than were written")


def _place(
    kind: BackendKind, path: Path, options: Mapping[str, str], *, stack: ExitStack
) -> Placement | None:
    """The placement of the file; `stack` removes it."""
    if kind.placement is None:
        return None
    try:
        placement = kind.placement(options, path.parent)
        stack.callback(placement.remove)
        placement.open()  # marks it, so that a later run removes what a killed trial left
        placement.upload([path])
    except UnavailableError:
        raise
    except KVIOError as error:
        reason, _, remedy = str(error).rpartition("; ")
        why = Unavailable(reason, remedy.removeprefix("try ")) if reason else Unavailable(remedy, "")
        raise UnavailableError(why) from error
    return placement


def _device_target(kind: BackendKind) -> DeviceTarget:
    import torch  # takes seconds, which other trials need not wait for

    from kvio.loading.transfer_gpu import make_staging

    if kind.needs_gpu and not torch.cuda.is_available():
        raise UnavailableError(Unavailable("torch finds no GPU", ""))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return DeviceTarget(0, make_staging(TRIAL_BYTES, device))


def _content(target: Target) -> bytes:
    if isinstance(target, HostTarget):
        return bytes(target.view)
    return target.tensor.cpu().numpy().tobytes()


def main(name: str, directory: str, options: str) -> None:
    """Print null where the backend reads, else reason and remedy."""
    said: dict[str, str | None] | None = None
    try:
        read_back(name, Path(directory), json.loads(options))
    except UnavailableError as error:
        said = {"reason": error.why.reason, "remedy": error.why.remedy}
    except KVIOError as error:
        said = {"reason": f"{TRIAL_FAILED}: {' '.join(str(error).split())}", "remedy": None}
    except OSError as error:
        said = {"reason": f"{directory}: {error.strerror}", "remedy": None}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # threads of a library must not keep the process
