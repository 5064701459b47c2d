"""Facts of this machine, by allow-list: nothing that names a person, a host or a network."""

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import BaseModel, ConfigDict

from bench.machine.gpus import GpuFacts, read_gpus
from kvio.evidence.storage_device import runs_in_guest

ROOT = Path("/")
# what decides the speed of prefill on a CPU; arm64 names bf16 and sve* the same way
ISA_FEATURES = (
    "amx_bf16",
    "amx_int8",
    "amx_tile",
    "avx512_bf16",
    "avx512f",
    "avx_vnni",
    "avx2",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
)
CONTAINER_SIGNS = {"docker": ".dockerenv", "podman": "run/.containerenv"}
CONTAINER_MARKS = ("docker", "kubepods", "containerd", "lxc", "libpod")
GIB = 2**30
NOISE_INTERVAL_S = 0.3
# two machines are the same when all of these are
COMPARED = ("device_name", "cpu_model", "usable_cores", "isa", "in_guest")
COMPARED_OF_GPU = ("name", "memory_bytes", "mig", "pcie_generation_max", "pcie_width_max")


class NoiseFacts(BaseModel):
    """What else the machine was doing when the facts were read; shares of all cores, 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    busy_share: float
    steal_share: float | None
    load_average: float


class MachineFacts(BaseModel):
    """The machine; missing is None.

    Args:
        usable_cores: that affinity and cgroup quota leave to this process.
        memory_bytes: that the machine has.
        memory_limit_bytes: that a cgroup leaves to this process, None without a limit.
        isa: those of `ISA_FEATURES` that the CPU has.
        governor: of the first core's clock.
        container: what kind of container this looks like.
        devices_managed: False when /run/udev is missing, where libraries that ask it fall back in silence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_model: str
    architecture: str
    online_cores: int
    usable_cores: float
    isa: tuple[str, ...]
    memory_bytes: int
    memory_limit_bytes: int | None
    kernel_release: str
    in_guest: bool
    container: str | None
    devices_managed: bool
    governor: str | None
    numa_nodes: int | None
    gpus: tuple[GpuFacts, ...]
    noise: NoiseFacts


def describe_machine(root: Path = ROOT) -> MachineFacts:
    """Facts of this machine now; takes a tenth of a second to look at the noise."""
    cpu = _read_cpu(root)
    return MachineFacts(
        cpu_model=cpu.get("model name") or cpu.get("Hardware") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        online_cores=psutil.cpu_count() or 1,
        usable_cores=count_usable_cores(root),
        isa=read_isa(root),
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=_find_limit(root, "memory", ("memory.max", "memory.limit_in_bytes")),
        kernel_release=platform.release(),
        in_guest=runs_in_guest(root),
        container=find_container(root),
        devices_managed=(root / "run/udev").exists(),
        governor=_read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        numa_nodes=len(list(root.glob("sys/devices/system/node/node[0-9]*"))) or None,
        gpus=read_gpus(),
        noise=read_noise(),
    )


def read_noise() -> NoiseFacts:
    """How busy the machine is without us; steal is what a hypervisor gave to other guests."""
    times = psutil.cpu_times_percent(interval=NOISE_INTERVAL_S)
    steal = getattr(times, "steal", None)
    return NoiseFacts(
        busy_share=round((sum(times) - times.idle - times.iowait) / 100, 4),  # idle ticks may come late
        steal_share=None if steal is None else round(steal / 100, 4),
        load_average=round(os.getloadavg()[0], 2),
    )


def read_isa(root: Path = ROOT) -> tuple[str, ...]:
    """Those of `ISA_FEATURES` that the CPU has."""
    cpu = _read_cpu(root)
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    return tuple(name for name in ISA_FEATURES if name in flags)


def count_usable_cores(root: Path = ROOT) -> float:
    """Cores that affinity and cgroup quota leave to this process; a quota may leave a fraction."""
    allowed = float(len(os.sched_getaffinity(0)))
    for folder in _cgroup_folders(root, "cpu"):
        quota, period = _read_quota(folder)
        if quota is not None and period:
            allowed = min(allowed, quota / period)
    return allowed


def find_container(root: Path = ROOT) -> str | None:
    """What kind of container this looks like; None when there is no sign of one."""
    for kind, sign in CONTAINER_SIGNS.items():
        if (root / sign).exists():
            return kind
    groups = _read(root / "proc/self/cgroup") or ""
    return next((mark for mark in CONTAINER_MARKS if mark in groups), None)


def machine_slug(facts: MachineFacts, gpu_name: str | None = None) -> str:
    """A name for folders: "nvidia-h200", of a machine with several of them "nvidia-h200-8x", else "amd-epyc-2c".

    Args:
        facts: of the machine.
        gpu_name: of the GPU that is measured; None for the CPU.
    """
    if gpu_name is not None:
        alike = sum(gpu.name == gpu_name for gpu in facts.gpus)
        return _slug(gpu_name) + (f"-{alike}x" if alike > 1 else "")
    model = re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*", " ", facts.cpu_model)
    return f"{_slug(model)}-{facts.usable_cores:g}c".replace(".", "_")


def comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Facts in which two machines differ, each as "fact: this, that"; results may be pooled when empty.

    Software is not compared: a newer driver on the same machine is another row, not another machine.

    Args:
        one, other: machine facts as `run.json` has them.
    """
    pairs = [(name, one.get(name), other.get(name)) for name in COMPARED]
    pairs.append(("memory (GiB)", _memory_gib(one), _memory_gib(other)))
    pairs.append(("gpus", _gpu_facts(one), _gpu_facts(other)))
    return [
        f"{name}: {_plain(mine)}, {_plain(theirs)}" for name, mine, theirs in pairs if _differ(mine, theirs)
    ]


def _differ(mine: object, theirs: object) -> bool:
    return _plain(mine) != _plain(theirs)


def _plain(value: object) -> str:
    """One text for a value before and after JSON, where tuples became lists."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_plain(part) for part in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _memory_gib(facts: Mapping[str, Any]) -> int | None:
    """Kernels reserve a little more or less at each boot, so whole GiB are compared."""
    found = [facts.get("memory_bytes"), facts.get("memory_limit_bytes")]
    known = [value for value in found if value is not None]
    return round(min(known) / GIB) if known else None


def _gpu_facts(facts: Mapping[str, Any]) -> list[list[Any]]:
    return [[gpu.get(name) for name in COMPARED_OF_GPU] for gpu in facts.get("gpus") or ()]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "unknown"


def _read_cpu(root: Path) -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    first = (_read(root / "proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _cgroup_folders(root: Path, controller: Literal["cpu", "memory"]) -> list[Path]:
    """Folders of the cgroups that this process is in, from its own up to the top."""
    folders: list[Path] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, names, group = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controller if names else "")
        own = base / group.lstrip("/")
        folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(base)]
    return folders


def _read_quota(folder: Path) -> tuple[int | None, int]:
    """Microseconds of CPU per period of microseconds: cpu.max of cgroup v2, else the two files of v1."""
    both = (_read(folder / "cpu.max") or "").split()
    if len(both) != 2:
        both = [_read(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    quota, period = both
    return (int(quota), int(period)) if quota.isdigit() and period.isdigit() else (None, 0)


def _find_limit(root: Path, controller: Literal["memory"], names: tuple[str, ...]) -> int | None:
    """The smallest limit on the way up; None where it is not below what the machine has."""
    texts = [_read(folder / name) for folder in _cgroup_folders(root, controller) for name in names]
    limits = [int(text) for text in texts if text is not None and text.isdigit()]
    smallest = min(limits, default=None)
    return smallest if smallest is not None and smallest < psutil.virtual_memory().total else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:  # a value this kernel does not offer
        return None
