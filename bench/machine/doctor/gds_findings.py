"""What the doctor says about GPUDirect Storage: what gdscheck looks at, with a remedy for each fault."""

from collections.abc import Callable, Iterator

from bench.machine.doctor.finding import Finding, Status
from bench.record.units import format_bytes
from kvio.backends.gds.driver_probe import DriverProbe
from kvio.backends.gds.gds_library import INSTALL
from kvio.backends.gds.gds_system import GdsSystem
from kvio.evidence.storage_device import Storage

GUIDE = "https://docs.nvidia.com/gpudirect-storage/troubleshooting-guide"
# NVIDIA's guide, "NVMe P2PDMA Troubleshooting": Linux 6.2 and the open kernel modules from 565.47 on
P2PDMA_DRIVER = 565
REGISTRY = 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;RmForceDisableIomapWC=1;"'
GDS_FILE_SYSTEMS = frozenset({"ext4", "xfs"})  # on local drives; the guide lists network ones by vendor
MIN_BAR1_BYTES = 2**30  # a GPU without resizable BAR has 256 MiB, less than one load's blocks


def examine_gds(
    system: GdsSystem,
    storage: Storage,
    *,
    installed: bool,
    probe: Callable[[], DriverProbe],
) -> Iterator[Finding]:
    """Everything between the drive and the GPU's memory, and which path to expect.

    Args:
        storage: under the chunk files.
        installed: kvikio can be imported.
        probe: opens cuFile's driver in a process of its own; only asked where there is a GPU.
    """
    if not system.has_gpu:
        what = "no NVIDIA GPU or driver here: kvikio reads into host memory at most"
        yield Finding("gds gpu", "skipped", what, "measure with posix, or on a machine with a GPU")
        return
    yield _examine_kernel(system)
    yield _examine_driver(system)
    yield _examine_nvfs(system)
    yield _examine_p2pdma(system)
    yield from _examine_gpus(system)
    yield _examine_storage(storage)
    yield _examine_config(system)
    yield _examine_surroundings(system)
    if installed:
        yield _examine_probe(probe())
    yield _expect_path(system, storage)


def _examine_kernel(system: GdsSystem) -> Finding:
    shown = f"Linux {system.kernel or 'of unknown version'}"
    if not system.modules_listed:
        remedy = (
            "use a runtime that shows /proc/modules; gds with --backend-option gds.compat=on works without"
        )
        return Finding("gds kernel", "warning", f"{shown}, without /proc/modules: cuFile hangs", remedy)
    if system.kernel_p2pdma is None:
        remedy = f"grep CONFIG_PCI_P2PDMA /boot/config-{system.kernel}"
        return Finding("gds kernel", "warning", f"{shown}, which does not say whether it has P2PDMA", remedy)
    if not system.kernel_p2pdma:
        remedy = "boot a kernel with CONFIG_PCI_P2PDMA=y, or load nvidia-fs"
        return Finding("gds kernel", "warning", f"{shown}, built without P2PDMA", remedy)
    return Finding("gds kernel", "ok", f"{shown}, with P2PDMA")


def _examine_driver(system: GdsSystem) -> Finding:
    if system.driver is None:
        what = "a GPU is on the bus, and no NVIDIA driver answers"
        return Finding("gds driver", "warning", what, "install the driver's open kernel modules")
    what = f"{system.driver}, {'open' if system.driver_open else 'closed'} kernel modules"
    if not system.driver_open or _major(system.driver) < P2PDMA_DRIVER:
        remedy = f"P2PDMA needs the open kernel modules, {P2PDMA_DRIVER} or newer: {GUIDE}"
        return Finding("gds driver", "warning", what, remedy)
    return Finding("gds driver", "ok", what)


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _examine_nvfs(system: GdsSystem) -> Finding:
    if system.nvfs_version is None:
        what = "nvidia-fs is not loaded; P2PDMA does without"
        status: Status = "skipped" if _p2pdma_faults(system) else "ok"
        return Finding("nvidia-fs", status, what, "modprobe nvidia_fs")
    what = f"{system.nvfs_version}, for {', '.join(system.nvfs_drivers) or 'no storage driver'}"
    if not system.nvfs_nodes:
        remedy = "docker run --device=/dev/nvidia-fs0 (and so on), or reload nvidia_fs: cuFile closes stdin without"
        return Finding("nvidia-fs", "warning", f"{what}; its device nodes are missing", remedy)
    if not system.nvfs_drivers:
        remedy = f"install storage drivers with nvidia-fs support (DOCA, MLNX_OFED): {GUIDE}"
        return Finding("nvidia-fs", "warning", what, remedy)
    if not system.nvfs_counts:
        remedy = "echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled: a second witness of the path"
        return Finding("nvidia-fs", "warning", f"{what}; it counts no reads", remedy)
    return Finding("nvidia-fs", "ok", f"{what}; it counts reads")


def _p2pdma_faults(system: GdsSystem) -> list[tuple[str, str]]:
    """What stands between this machine and P2PDMA, each with its remedy."""
    wanted = (
        (bool(system.kernel_p2pdma), "the kernel has no P2PDMA", "CONFIG_PCI_P2PDMA=y"),
        (system.driver_open, "the driver's kernel modules are closed", "install the open ones"),
        (_major(system.driver or "0") >= P2PDMA_DRIVER, "the driver is too old", f"{P2PDMA_DRIVER} or newer"),
        (system.p2pdma_registry, "the driver maps no static BAR1", f"{REGISTRY} in /etc/modprobe.d"),
        (
            not system.nvme_multipath,
            "NVMe multipath is on",
            "options nvme_core multipath=N in /etc/modprobe.d",
        ),
        (
            system.config.use_p2pdma,
            "cufile.json does not ask for it",
            "CUFILE_USE_PCIP2PDMA=true, or use_pci_p2pdma",
        ),
    )
    return [(fault, remedy) for fulfilled, fault, remedy in wanted if not fulfilled]


def _examine_p2pdma(system: GdsSystem) -> Finding:
    faults = _p2pdma_faults(system)
    if not faults:
        return Finding("p2pdma", "ok", "kernel, driver, BAR1, NVMe and cufile.json allow it")
    what = "; ".join(fault for fault, _ in faults)
    return Finding("p2pdma", "skipped", what, "; ".join(remedy for _, remedy in faults))


def _examine_gpus(system: GdsSystem) -> Iterator[Finding]:
    for gpu in system.gpus:
        if gpu.bar1_bytes is None:
            what, remedy = (
                "no BAR1: nothing can reach this GPU's memory",
                "enable 64-bit BARs in the firmware",
            )
            yield Finding("bar1", "warning", f"{gpu.address}: {what}", f"Above 4G Decoding: {remedy}")
        elif gpu.bar1_bytes < MIN_BAR1_BYTES:
            what = f"{gpu.address}: {format_bytes(gpu.bar1_bytes)}: larger buffers cannot be registered"
            yield Finding("bar1", "warning", what, "enable resizable BAR in the firmware")
        else:
            yield Finding("bar1", "ok", f"{gpu.address}: {format_bytes(gpu.bar1_bytes)}")
        if gpu.iommu is not None and gpu.iommu != "identity":
            what = f"{gpu.address}: translated by an IOMMU, which sends peer traffic through the root complex"
            yield Finding("iommu", "warning", what, "boot with iommu=off or iommu=pt")
        else:
            yield Finding("iommu", "ok", f"{gpu.address}: {'passed through' if gpu.iommu else 'no IOMMU'}")


def _examine_storage(storage: Storage) -> Finding:
    fault = _storage_fault(storage)
    if fault is None:
        return Finding("gds storage", "ok", f"{storage.name}: DMA to a GPU is possible")
    what = f"{storage.name}: {fault}"
    return Finding("gds storage", "skipped", what, "use ext4 (data=ordered) or xfs on one local NVMe drive")


def _storage_fault(storage: Storage) -> str | None:
    """Why a local file system's bytes cannot go straight to a GPU; None when they may."""
    device = storage.device
    if device is None or storage.fs_type not in GDS_FILE_SYSTEMS:
        return "neither ext4 nor xfs on a visible device"
    if "data=journal" in storage.options:
        return "journalled data is read through host memory"
    if device.behind_loop:
        return "a loop device lies between"
    if any(disk.transport != "nvme" for disk in device.physical):
        return "not a local NVMe drive"
    if device.name.startswith(("md", "dm-")):
        return "P2PDMA does not work through RAID or device-mapper; nvidia-fs does for RAID 0"
    return None


def _examine_config(system: GdsSystem) -> Finding:
    config = system.config
    if config.fault is not None:
        return Finding(
            "cufile.json", "warning", config.fault, "correct it: cuFile ignores what it cannot read"
        )
    if config.path is None:
        what = "none, and the wheels bring none: cuFile's defaults hold, P2PDMA is off, async reads block"
        return Finding("cufile.json", "warning", what, "name one in CUFILE_ENV_PATH_JSON")
    shown = ", ".join(
        f"{name}={str(config.properties[name]).lower()}"
        for name in ("use_pci_p2pdma", "allow_compat_mode", "force_compat_mode")
        if name in config.properties
    )
    return Finding("cufile.json", "ok", f"{config.path}{': ' if shown else ''}{shown}")


def _examine_surroundings(system: GdsSystem) -> Finding:
    if system.wsl:
        what = "Windows Subsystem for Linux has no GPUDirect Storage"
        return Finding("gds container", "warning", what, "measure on Linux itself")
    if not system.udev:
        what = "no /run/udev: cuFile cannot see which drive is near which GPU"
        return Finding("gds container", "warning", what, "docker run -v /run/udev:/run/udev:ro")
    return Finding("gds container", "ok", "/run/udev is there")


def _examine_probe(probe: DriverProbe) -> Finding:
    if probe.closed_stdin:
        what = f"{probe.what}, and closed its standard input"
        return Finding("cufile", "warning", what, "make nvidia-fs's device nodes visible: /dev/nvidia-fs*")
    if probe.outcome == "opened":
        supported = ", ".join(probe.facts.get("supported") or ()) or "nothing"
        return Finding("cufile", "ok", f"{probe.what}; it says that it supports {supported}")
    remedies = {
        "absent": INSTALL,
        "hung": "use --backend-option gds.compat=on; /proc/modules must be visible for compat=off",
        "died": "use --backend-option gds.compat=on; try gdscheck -p",
        "refused": f"use --backend-option gds.compat=on; {GUIDE}",
        "no context": "install a driver that answers nvidia-smi",
    }
    return Finding("cufile", "warning", probe.what, remedies[probe.outcome])


def _expect_path(system: GdsSystem, storage: Storage) -> Finding:
    """What a read will probably turn out to be; every sample is judged by its own counters all the same."""
    fault = _storage_fault(storage)
    raid = fault is not None and fault.startswith("P2PDMA does not")
    if fault is None and not _p2pdma_faults(system):
        return Finding("gds path", "ok", "gds-p2pdma is to be expected")
    if (fault is None or raid) and system.nvfs_nodes and "nvme" in system.nvfs_drivers:
        return Finding("gds path", "ok", "gds-nvfs is to be expected")
    what = "only cufile-compat or kvikio-compat is to be expected: bytes go through host memory"
    return Finding("gds path", "skipped", what, "see the lines above: p2pdma, nvidia-fs, gds storage")
