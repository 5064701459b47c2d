"""What the kernel and the driver say about GPUDirect Storage, read below a root folder."""

import gzip
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvio.backends.gds.cufile_counters import read_nvfs_bytes
from kvio.evidence.disk import read_count, read_value

ROOT = Path("/")
P2PDMA_SYMBOL = b"p2pdma_pgmap_ops"  # what NVIDIA's troubleshooting guide greps /proc/kallsyms for
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
BAR1_LINE = 1  # of `resource` in sysfs; BAR1 is 64 bits wide and takes two


@dataclass(frozen=True, slots=True)
class PciGpu:
    """An NVIDIA GPU on the PCI bus.

    Args:
        bar1_bytes: the window through which others reach its memory.
        iommu: "identity" (passed through), "DMA" or "DMA-FQ" (translated); None: there is no IOMMU.
    """

    address: str
    bar1_bytes: int | None
    iommu: str | None
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class CuFileConfig:
    """The cufile.json that would be used.

    Args:
        path: None: there is none, and cuFile's defaults hold.
        properties: its section of that name.
        use_p2pdma: it, or the environment, asks for P2PDMA, which is off by default.
        fault: why it cannot be read.
    """

    path: Path | None
    properties: Mapping[str, Any]
    use_p2pdma: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class GdsSystem:
    """Facts that `gdscheck` also looks at; None where it cannot be known.

    Args:
        kernel: its release.
        kernel_p2pdma: built with CONFIG_PCI_P2PDMA.
        driver, driver_open: version of the NVIDIA driver; whether its kernel modules are the open ones.
        registry: the driver's registry settings, lower case names ("rmforcestaticbar1": "1").
        nvme_multipath: of nvme_core; P2PDMA needs it off.
        nvfs_version: of nvidia-fs, None when it is not loaded.
        nvfs_counts: it keeps read statistics.
        nvfs_nodes: its device nodes are there.
        nvfs_drivers: storage drivers that registered with it ("nvme").
        modules_listed: /proc/modules is there; cuFileDriverOpen spins for ever without it.
        udev: /run/udev is there; cuFile finds no topology, and kvikio's AUTO falls back, without it.
        wsl: Windows Subsystem for Linux.
    """

    kernel: str | None
    kernel_p2pdma: bool | None
    driver: str | None
    driver_open: bool
    registry: Mapping[str, str]
    nvme_multipath: bool | None
    nvfs_version: str | None
    nvfs_counts: bool
    nvfs_nodes: bool
    nvfs_drivers: tuple[str, ...]
    modules_listed: bool
    udev: bool
    wsl: bool
    gpus: tuple[PciGpu, ...]
    config: CuFileConfig

    @property
    def has_gpu(self) -> bool:
        """An NVIDIA GPU or its driver is here."""
        return bool(self.gpus) or self.driver is not None

    @property
    def p2pdma_registry(self) -> bool:
        """The driver was told to map all of the GPU's memory statically, as P2PDMA needs on x86."""
        return all(self.registry.get(name) == "1" for name in ("rmforcestaticbar1", "rmforcedisableiomapwc"))


def read_gds_system(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> GdsSystem:
    """The facts below `root`, a folder with `proc`, `sys`, `dev`, `etc` and `run`."""
    kernel = read_value(root / "proc/sys/kernel/osrelease")
    nvidia = read_value(root / "proc/driver/nvidia/version") or ""
    version = re.search(r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", nvidia)
    nvfs = root / "proc/driver/nvidia-fs"
    nvfs_version = re.search(r"(\d+\.\d+)", read_value(nvfs / "version") or "")
    multipath = read_value(root / "sys/module/nvme_core/parameters/multipath")
    return GdsSystem(
        kernel=kernel,
        kernel_p2pdma=_has_p2pdma(root, kernel),
        driver=version[1] if version else None,
        driver_open="Open Kernel Module" in nvidia,
        registry=_read_registry(root),
        nvme_multipath=None if multipath is None else multipath == "Y",
        nvfs_version=nvfs_version[1] if nvfs_version else None,
        nvfs_counts=read_nvfs_bytes(root) is not None,
        nvfs_nodes=any(root.glob("dev/nvidia-fs*")),
        nvfs_drivers=tuple(re.findall(r"^(\w+):", read_value(nvfs / "modules") or "", re.MULTILINE)),
        modules_listed=(root / "proc/modules").exists(),
        udev=(root / "run/udev").is_dir(),
        wsl="microsoft" in (kernel or "").lower(),
        gpus=tuple(_read_gpus(root)),
        config=read_cufile_config(root, environment),
    )


def _has_p2pdma(root: Path, kernel: str | None) -> bool | None:
    """By the running kernel's symbols, else by its configuration."""
    try:
        return P2PDMA_SYMBOL in (root / "proc/kallsyms").read_bytes()
    except OSError:  # a kernel without it, or a container that hides it
        pass
    for path in (root / "proc/config.gz", root / f"boot/config-{kernel}"):
        try:
            stored = path.read_bytes()
        except OSError:
            continue
        text = gzip.decompress(stored) if path.suffix == ".gz" else stored
        return b"\nCONFIG_PCI_P2PDMA=y\n" in text
    return None


def _read_registry(root: Path) -> dict[str, str]:
    """From /proc/driver/nvidia/params: the module parameter in sysfs reads empty even when it is set."""
    found = re.search(r'^RegistryDwords: "(.*)"', read_value(root / "proc/driver/nvidia/params") or "", re.M)
    pairs = (entry.partition("=") for entry in found[1].split(";")) if found else ()
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}


def _read_gpus(root: Path) -> list[PciGpu]:
    found = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind = read_value(folder / "class") or ""
        if read_value(folder / "vendor") == NVIDIA_VENDOR and kind.startswith(DISPLAY_CLASSES):
            node = read_count(folder / "numa_node")
            found.append(
                PciGpu(
                    address=folder.name,
                    bar1_bytes=_bar1_bytes(read_value(folder / "resource")),
                    iommu=read_value(folder / "iommu_group/type"),
                    numa_node=node if node is not None and node >= 0 else None,
                )
            )
    return found


def _bar1_bytes(resources: str | None) -> int | None:
    """From the line "START END FLAGS" of BAR1; all zeros when it has none."""
    lines = (resources or "").splitlines()
    if len(lines) <= BAR1_LINE:
        return None
    start, end, _ = (int(number, 16) for number in lines[BAR1_LINE].split())
    return end - start + 1 if end else None


def read_cufile_config(root: Path, environment: Mapping[str, str]) -> CuFileConfig:
    """The file that CUFILE_ENV_PATH_JSON names, else /etc/cufile.json; kvikio's and cuFile's wheels bring none."""
    named = environment.get("CUFILE_ENV_PATH_JSON")
    asked = environment.get("CUFILE_USE_PCIP2PDMA", "").lower() == "true"
    path = root / (named or "etc/cufile.json").lstrip("/")
    try:
        found = json.loads(strip_comments(path.read_text()))
    except FileNotFoundError:
        fault = f"CUFILE_ENV_PATH_JSON names {named}, which is not there" if named else None
        return CuFileConfig(None, {}, asked, fault)
    except (OSError, ValueError) as error:
        return CuFileConfig(path, {}, asked, f"{path}: {error}")
    properties = _section(found, "properties")
    nvme = _section(_section(found, "block"), "nvme")  # where newer versions keep it
    told = any(part.get("use_pci_p2pdma") is True for part in (properties, nvme))
    return CuFileConfig(path, properties, asked or told)


def _section(found: object, name: str) -> dict[str, Any]:
    inner = found.get(name) if isinstance(found, dict) else None
    return inner if isinstance(inner, dict) else {}


def strip_comments(text: str) -> str:
    """JSON without the // comments that cufile.json has; those inside of strings stay."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda found: found[1] or "", text)
