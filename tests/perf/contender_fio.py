"""fio in a read comparison: the same files, one read of a whole file at a time, O_DIRECT."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.perf.fileset import FileSet

INSTALL = "apt-get install fio"
TIMEOUT_S = 300.0


@cache
def explain_no_fio(engine: str) -> str | None:
    """Why this engine cannot be used; None where it can."""
    if shutil.which("fio") is None:
        return f"fio is not installed: {INSTALL}"
    listed = subprocess.run(["fio", "--enghelp"], capture_output=True, text=True, check=True).stdout.split()
    return None if engine in listed else f"{fio_version()} has no engine {engine}: {INSTALL}"


def fio_version() -> str:
    """As fio says it."""
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _gather(paths: Sequence[Path], folder: Path) -> Path:
    """A folder that links to these files and no others: as a list of names they would be too long for fio."""
    if not folder.exists():
        folder.mkdir()
        for path in paths:
            (folder / path.name).hardlink_to(path)
    return folder


def read_by_fio(engine: str, files: FileSet, depth: int) -> float:
    """Seconds that fio says its reads took; psync has a thread for each read in flight, the others a queue."""
    num_threads = min(depth, len(files.paths)) if engine == "psync" else 1
    command = [
        "fio",
        "--output-format=json",
        "--rw=read",
        f"--ioengine={engine}",
        f"--iodepth={depth if num_threads == 1 else 1}",
        "--direct=1",
        "--thread",
        "--invalidate=0",
        f"--bs={files.request_bytes}",
        "--group_reporting",
        "--file_service_type=sequential",
    ]
    for number in range(num_threads):
        own = files.paths[number::num_threads]
        command += [
            f"--name=reader{number}",
            f"--opendir={_gather(own, files.store.directory / f'fio-{len(files.paths)}-{num_threads}-{number}')}",
            f"--size={len(own) * files.request_bytes}",
        ]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert found.returncode == 0, found.stderr
    reads = json.loads(found.stdout[found.stdout.index("{") :])["jobs"][0]["read"]
    assert reads["io_bytes"] == files.num_bytes
    assert reads["total_ios"] == len(files.paths)
    return float(reads["runtime"]) / 1e3
