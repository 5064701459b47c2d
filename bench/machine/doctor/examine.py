"""What this machine can measure, and why not the rest."""

import importlib.util
import resource
from pathlib import Path

from bench.machine.doctor.compute_findings import examine_machine
from bench.machine.doctor.finding import Finding
from bench.machine.doctor.gds_findings import examine_gds
from bench.machine.doctor.storage_findings import examine_storage
from bench.machine.facts import describe_machine
from bench.record.units import format_bytes
from kvio.backends import BACKENDS, BackendKind
from kvio.backends.gds.driver_probe import probe_driver
from kvio.backends.gds.gds_library import is_installed
from kvio.backends.gds.gds_system import read_gds_system
from kvio.evidence.storage_device import describe_storage

# module to look for (never imported: some spin or crash without a GPU), what for, what installs it
EXTRAS = (
    ("flash_attn", "flash-attention kernels", "pip install flash-attn --no-build-isolation"),
    ("numba", "fast reuse simulation", "pip install -c constraints.txt -e '.[reuse]'"),
)
MIN_OPEN_FILES = 4096  # cuFile holds two descriptors for each open file
MIN_LOCKED_BYTES = 64 * 2**20  # pinned and io_uring-registered buffers count against it


def examine(data_dir: Path) -> list[Finding]:
    """Everything worth knowing before a sweep whose chunks will lie in `data_dir`."""
    _, open_files = resource.getrlimit(resource.RLIMIT_NOFILE)  # what measures raises its own limit to that
    locked_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return [
        *examine_machine(describe_machine()),
        *examine_storage(data_dir),
        *examine_gds(
            read_gds_system(),
            describe_storage(data_dir),
            installed=is_installed("kvikio"),
            probe=probe_driver,
        ),
        examine_open_files(open_files),
        examine_locked_memory(locked_bytes),
        *(try_backend(name, kind, data_dir) for name, kind in BACKENDS.items()),
        *(find_extra(module, purpose, command) for module, purpose, command in EXTRAS),
    ]


def examine_open_files(allowed: int) -> Finding:
    """RLIMIT_NOFILE: files that may be open at once; -1 is unlimited."""
    if allowed != resource.RLIM_INFINITY and allowed < MIN_OPEN_FILES:
        return Finding("open files", "warning", f"{allowed} at once", f"ulimit -n {MIN_OPEN_FILES}")
    shown = "unlimited" if allowed == resource.RLIM_INFINITY else f"{allowed} at once"
    return Finding("open files", "ok", shown)


def examine_locked_memory(allowed_bytes: int) -> Finding:
    """RLIMIT_MEMLOCK: bytes that may be pinned; -1 is unlimited."""
    if allowed_bytes == resource.RLIM_INFINITY:
        return Finding("locked memory", "ok", "unlimited")
    if allowed_bytes < MIN_LOCKED_BYTES:
        return Finding("locked memory", "warning", format_bytes(allowed_bytes), "ulimit -l unlimited")
    return Finding("locked memory", "ok", format_bytes(allowed_bytes))


def try_backend(name: str, kind: BackendKind, data_dir: Path) -> Finding:
    """Whether a way to read can be used here: tried, with a real read where it needs anything beyond Python."""
    why = kind.probe(data_dir, {})
    if why is not None:
        return Finding(name, "skipped", why.reason, why.remedy)
    return Finding(name, "ok", kind.meaning)


def find_extra(module: str, purpose: str, command: str) -> Finding:
    """Whether an optional package could be imported, without importing it."""
    if importlib.util.find_spec(module) is None:
        return Finding(module, "skipped", f"{purpose}: {module} is not installed", command)
    return Finding(module, "ok", f"{purpose}: installed, not tried")
