"""The counters of cuFile (level 3) and of nvidia-fs, as values."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from kvio.evidence.disk import read_value
from kvio.evidence.gds_path import CuFileReads

LEVEL = 3  # per GPU and way; lower ones only count reads
ROOM_BYTES = (
    65_536  # libcufile writes its own idea of the structure, 5 KB in CUDA 13.5: room for a larger one
)
NVFS_STATS = "proc/driver/nvidia-fs/stats"


def start_statistics(cufile: ModuleType) -> None:
    """Have cuFile count from here on; its driver must be open.

    Raises:
        cufile.cuFileError: libcufile refuses.
        AttributeError, RuntimeError: libcufile is older than 1.15, or its bindings are.
    """
    cufile.set_stats_level(LEVEL)
    cufile.stats_start()


def read_statistics(cufile: ModuleType) -> CuFileReads:
    """All reads of this process since `start_statistics`."""
    room = np.zeros(ROOM_BYTES, np.uint8)
    cufile.get_stats_l3(room.ctypes.data)
    return parse_statistics(room, cufile.stats_level3_dtype)


def parse_statistics(room: npt.NDArray[np.uint8], dtype: Any) -> CuFileReads:  # noqa: ANN401 — a numpy dtype
    """The reads in a CUfileStatsLevel3_t that lies at the beginning of `room`.

    The structure grew between versions, so bindings may misplace what an older or newer libcufile wrote.
    The basic part is at its beginning in all of them; that the GPUs' bytes add up to it shows that the rest
    is where it is looked for.  `kvio.evidence.gds_path` demands it.
    """
    found = room[: dtype.itemsize].view(dtype)[0]
    gpus = found["per_gpu_stats"][: int(found["num_gpus"])]

    def total(name: str) -> int:
        return int(gpus[name].sum())

    return CuFileReads(
        num_bytes=int(found["detailed"]["basic"]["read_bytes"]),
        gpu_bytes=total("read_bytes"),
        num_p2p=total("n_p2p_reads"),
        num_nvfs=total("n_nvfs_reads"),
        num_posix=total("n_posix_reads"),
        num_unaligned=total("n_unaligned_reads"),
        num_rerouted=total("n_dr_reads"),
        num_errors=total("n_reads_err"),
    )


def read_nvfs_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that nvidia-fs has read, in whole MiB, for the whole machine.

    None: not loaded, or it does not count (module parameter rw_stats_enabled=0).
    Source: nvfs_stats_show() in src/nvfs-stat.c of github.com/NVIDIA/gds-nvidia-fs.
    """
    text = read_value(root / NVFS_STATS) or ""
    counts = re.search(r"^IO stats: Enabled", text, re.MULTILINE)  # on the same line: those of peers
    found = re.search(r"^Reads\s*:.*\breadMiB=(\d+)", text, re.MULTILINE)
    return int(found[1]) * 2**20 if counts and found else None
