"""Tries NIXL in a process of its own, under a time limit, with a real transfer.

It lists plugins that cannot load, and says "backend created" of some that cannot read, so nothing less is proof.
"""

import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from kvio.backends.config import BackendConfig
from kvio.backends.nixl.nixl_backend import NixlBackend
from kvio.backends.nixl.nixl_plugin import INSTALL, Plugin, load_nixl
from kvio.backends.s3.object_placement import ObjectDepot
from kvio.backends.s3.s3_backend import probe_objects
from kvio.backends.selftest import TRIAL_FAILED, run_trial
from kvio.protocol import DeviceTarget, HostTarget, KVIOError, Read, Target, Unavailable, make_host_target
from kvio.store import scratch

PROBE_BYTES = 1 << 20
GPU_REMEDY = "a machine with an NVIDIA GPU, a CUDA torch, and GPUDirect Storage"


def probe_posix(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Whether the POSIX plugin reads a file of this directory."""
    return _probe("POSIX", directory, options)


def probe_gds(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Whether the GDS_MT plugin reads a file of this directory into a GPU."""
    return _probe("GDS_MT", directory, options)


def probe_obj(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Whether the OBJ plugin reads an object of the bucket; obstore must put it there first."""
    if not _is_installed():
        return Unavailable("nixl is not installed", INSTALL)
    return probe_objects(directory, options, backend="nixl-obj") or _probe("OBJ", directory, options)


def _is_installed() -> bool:
    try:
        load_nixl()
    except KVIOError:
        return False
    return True


def _probe(plugin: Plugin, directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    if not _is_installed():
        return Unavailable("nixl is not installed", INSTALL)
    remedy = GPU_REMEDY if plugin == "GDS_MT" else "another --option queue=, or --backend posix"
    try:
        with scratch.open_scratch(directory, prefix=scratch.TRIAL_PREFIX) as folder:
            path = folder / "probe.kv"
            path.write_bytes(secrets.token_bytes(PROBE_BYTES))
            arguments = [plugin, str(path), json.dumps(dict(options))]
            return run_trial([sys.executable, "-m", __name__, *arguments], remedy=remedy)
    except (OSError, scratch.ScratchError) as error:
        return Unavailable(f"no file to try it on: {error}", "another --data-dir")


def transfer_once(plugin: Plugin, path: Path, options: Mapping[str, str]) -> str | None:
    """Read `path`, or the object made of it, and compare; None when all is well, else why not, in one line."""
    try:
        depot = ObjectDepot(options, path.parent) if plugin == "OBJ" else None
        try:
            if depot is not None:
                depot.begin()  # leaves the mark by which a later run finds what a killed trial left
                depot.place([path])
            return _read_and_compare(plugin, path, options)
        finally:
            if depot is not None:
                depot.withdraw()
    except KVIOError as error:
        return f"{TRIAL_FAILED}: {' '.join(str(error).split())}"


def _read_and_compare(plugin: Plugin, path: Path, options: Mapping[str, str]) -> str | None:
    target = _device_target() if plugin == "GDS_MT" else make_host_target(PROBE_BYTES)
    if target is None:
        return "torch sees no GPU here"
    backend = NixlBackend(BackendConfig(options=options), plugin)
    try:
        backend.attach([target])
        backend.open(path)
        backend.submit(0, [Read(path, 0, PROBE_BYTES, 0)], target)
        backend.wait()
    finally:
        backend.close()
    same = _content(target) == path.read_bytes()
    return None if same else f"{TRIAL_FAILED}: {plugin} said that it was done, and other bytes arrived"


def _device_target() -> Target | None:
    import torch  # seconds to import: not in the process that lists backends

    if not torch.cuda.is_available():
        return None
    return DeviceTarget(0, torch.zeros(PROBE_BYTES, dtype=torch.uint8, device="cuda"))


def _content(target: Target) -> bytes:
    return bytes(target.view) if isinstance(target, HostTarget) else target.tensor.cpu().numpy().tobytes()


def main() -> None:
    """One transfer as the arguments say: plugin, file, options as JSON."""
    plugin, path, options = sys.argv[1:]
    reason = transfer_once(plugin, Path(path), json.loads(options))  # type: ignore[arg-type]
    print(json.dumps(None if reason is None else {"reason": reason, "remedy": None}), flush=True)
    os._exit(0)  # a plugin's threads must not keep the process


if __name__ == "__main__":
    main()
