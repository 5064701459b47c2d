"""Tries Mooncake in a process of its own, under a time limit, with a real object that is put, read and removed."""

import json
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from kvio.backends.config import BackendConfig
from kvio.backends.mooncake.mooncake_backend import MooncakeBackend
from kvio.backends.mooncake.mooncake_client import INSTALL, is_installed, read_mooncake
from kvio.backends.mooncake.mooncake_placement import MooncakeDepot
from kvio.backends.selftest import TRIAL_FAILED, run_trial
from kvio.protocol import KVIOError, Read, Unavailable, make_host_target
from kvio.store import scratch

PROBE_BYTES = 1 << 20
REMEDY = "--backend mooncake --option master=HOST:PORT of a store that runs, or none for one of the run's own"


def probe_store(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Whether an object can be put into the store and read back; a store is started for it where none is named."""
    if not is_installed():
        return Unavailable("mooncake is not installed", INSTALL)
    try:
        read_mooncake(options)
        with scratch.open_scratch(directory, prefix=scratch.TRIAL_PREFIX) as folder:
            path = folder / "probe.kv"
            path.write_bytes(secrets.token_bytes(PROBE_BYTES))
            command = [sys.executable, "-m", __name__, str(path), json.dumps(dict(options))]
            return run_trial(command, remedy=REMEDY)
    except scratch.ScratchError as error:
        return Unavailable(f"no file to try it on: {error}", "another --data-dir")
    except KVIOError as error:
        return Unavailable(*_split(error))
    except OSError as error:
        return Unavailable(f"no file to try it on: {error.strerror}", "another --data-dir")


def transfer_once(path: Path, options: Mapping[str, str]) -> dict[str, str | None] | None:
    """Put the file's object, read it back and compare; None when all is well, else reason and remedy."""
    try:
        depot = MooncakeDepot(options, path.parent)
        try:
            depot.begin()
            depot.place([path])
            same = _read(path, options) == path.read_bytes()
        finally:
            depot.withdraw()
    except KVIOError as error:
        reason, remedy = _split(error)
        return {"reason": reason, "remedy": remedy}
    return (
        None if same else {"reason": f"{TRIAL_FAILED}: other bytes arrived than were placed", "remedy": None}
    )


def _split(error: KVIOError) -> tuple[str, str]:
    """What went wrong, and what to try."""
    reason, _, remedy = str(error).rpartition("; ")
    return (reason, remedy.removeprefix("try ")) if reason else (remedy, REMEDY)


def _read(path: Path, options: Mapping[str, str]) -> bytes:
    target = make_host_target(PROBE_BYTES)
    with closing(MooncakeBackend(BackendConfig(directory=path.parent, options=options))) as backend:
        backend.attach([target])
        backend.open(path)
        backend.submit(0, [Read(path, 0, PROBE_BYTES, 0)], target)
        backend.wait()
    return bytes(target.view)


def main() -> None:
    """One transfer as the arguments say: file, options as JSON."""
    path, options = sys.argv[1:]
    print(json.dumps(transfer_once(Path(path), json.loads(options))), flush=True)
    os._exit(0)  # threads of the library must not keep the process


if __name__ == "__main__":
    main()
