"""Reads through the real kvikio in host memory and prints what came of it as JSON; run by test_gds_host."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kvio.backends.config import BackendConfig
from kvio.backends.gds.gds_backend import GdsBackend
from kvio.backends.gds.gds_process import read_path_counters
from kvio.evidence.cold_evidence import ReadCounters, prove_data_path
from kvio.loading.transfer_gpu import make_staging
from kvio.protocol import DeviceTarget, KVIOError, Read

OPTIONS = {"compat": "on", "io_threads": "3", "task_bytes": "8192", "bounce_bytes": "65536"}
SIZE = 65_536


def _format_error(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except KVIOError as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def _count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, and opens one itself each time


def _read(backend: GdsBackend, reads: list[Read], target: DeviceTarget) -> int:
    for read in reads:
        backend.open(read.path)
    backend.submit(5, reads, target)
    return sum(arrival.num_bytes for arrival in backend.wait() if arrival.ticket == 5)


def _read_swapped(backend: GdsBackend, path: Path, content: bytes, target: DeviceTarget) -> bool:
    """Both halves, each to the other's place: a forgotten offset is found out."""
    half = SIZE // 2
    arrived = _read(backend, [Read(path, 0, half, half), Read(path, half, half, 0)], target)
    return arrived == SIZE and target.tensor.numpy().tobytes() == content[half:] + content[:half]


def main(folder: Path) -> dict[str, Any]:
    """Everything that can be read without a GPU."""
    content = np.random.default_rng(0).bytes(SIZE)
    path, short = folder / "whole", folder / "short"
    path.write_bytes(content)
    short.write_bytes(content[:5000])
    setting = BackendConfig(queue_depth=2, directory=folder, options=OPTIONS)
    targets = [DeviceTarget(slot, make_staging(SIZE, torch.device("cpu"))) for slot in range(3)]
    said: dict[str, Any] = {"counters_before": read_path_counters()}
    before_files = _count_open_files()
    backend = GdsBackend(setting)
    backend.attach(targets)
    said["notices"] = backend.notices
    before = read_path_counters()
    said["swapped"] = _read_swapped(backend, path, content, targets[0])
    said["open_files"] = _count_open_files() - before_files
    after = read_path_counters()
    assert before is not None and after is not None
    moved = ReadCounters(0, 0, after).moved_since(ReadCounters(0, 0, before))
    said["moved"] = asdict(moved)
    said["path"] = prove_data_path(
        backend="gds", asked_direct=False, state="cold", payload_bytes=SIZE, moved=moved
    )
    said["odd"] = _read(backend, [Read(path, 1, 5000, 3)], targets[1])
    said["odd_right"] = targets[1].tensor[3:5003].numpy().tobytes() == content[1:5001]
    said["short"] = _format_error(lambda: _read(backend, [Read(short, 0, 8192, 0)], targets[2]))
    backend.drain()
    said["after_failure"] = _read_swapped(backend, path, content, targets[2])
    said["gone"] = _format_error(lambda: backend.open(folder / "gone"))
    said["folder"] = _format_error(lambda: _read(backend, [Read(folder, 0, 4096, 0)], targets[0]))
    backend.drain()
    backend.submit(1, [Read(path, 0, SIZE, 0)], targets[0])
    backend.submit(2, [Read(path, 0, SIZE, 0)], targets[1])
    backend.shut(path)  # in flight: stays open
    said["two"] = sorted(a.ticket for _ in range(2) if backend._in_flight for a in backend.wait())
    backend.close()
    backend.close()
    said["left_open"] = _count_open_files() - before_files
    said["off"] = _format_error(lambda: _attach_off(setting, targets))
    said["direct"] = _format_error(lambda: GdsBackend(replace(setting, direct=True)))
    said["other"] = _format_error(
        lambda: GdsBackend(replace(setting, options={**OPTIONS, "io_threads": "4"}))
    )
    said["log_files"] = sorted(found.name for found in Path.cwd().glob("*.log"))
    return said


def _attach_off(setting: BackendConfig, targets: list[DeviceTarget]) -> None:
    GdsBackend(replace(setting, options={**OPTIONS, "compat": "off"})).attach(targets)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
