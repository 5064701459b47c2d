"""The process of a trial (`kvio.backends.selftest`): writes a small file, and reads it back through one backend."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from kvio.backends import find_backend
from kvio.backends.config import BackendConfig
from kvio.backends.selftest import TRIAL_FAILED
from kvio.protocol import DeviceTarget, HostTarget, KVIOError, Read, UnavailableError, make_host_target

TRIAL_BYTES = 65_536


def read_back(name: str, directory: Path, options: Mapping[str, str]) -> None:
    """Write a file of random bytes into `directory`, which the caller removes, and read it in two halves.

    Raises:
        KVIOError: it cannot be read, or other bytes came back.
    """
    kind, content = find_backend(name), os.urandom(TRIAL_BYTES)
    path, half = directory / "file", TRIAL_BYTES // 2
    path.write_bytes(content)
    target = make_host_target(TRIAL_BYTES) if kind.into == "host" else _device_target()
    with ExitStack() as stack:
        depot = None if kind.depot is None else kind.depot(options, directory)
        if depot is not None:
            stack.callback(depot.withdraw)
            depot.begin()
            depot.place([path])
        setting = BackendConfig(depot=depot, directory=directory, options=options)
        backend = stack.enter_context(closing(kind.make(setting)))
        backend.attach([target])
        backend.open(path)
        backend.submit(0, [Read(path, 0, half, 0), Read(path, half, half, half)], target)
        backend.wait()
    if _content(target) != content:
        raise KVIOError(f"{name} brought other bytes than were written")


def _device_target() -> DeviceTarget:
    import torch  # takes seconds, which other trials need not wait for

    from kvio.loading.transfer_gpu import make_staging

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return DeviceTarget(0, make_staging(TRIAL_BYTES, device))


def _content(target: HostTarget | DeviceTarget) -> bytes:
    if isinstance(target, HostTarget):
        return bytes(target.view)
    return target.tensor.cpu().numpy().tobytes()


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
