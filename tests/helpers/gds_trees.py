"""Folders that look like /proc, /sys, /dev, /etc and /run of machines with GPUDirect Storage.

Formats: proc/driver/nvidia-fs from nvfs-proc.c and nvfs-stat.c of github.com/NVIDIA/gds-nvidia-fs; proc/driver/nvidia
from nv-procfs.c of github.com/NVIDIA/open-gpu-kernel-modules; sysfs from Documentation/ABI of Linux.
"""

from pathlib import Path

NVFS_STATS = """GDS Version: 1.16.0.1 
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.27.3)
Mellanox PeerDirect Supported: False
IO stats: {enabled}, peer IO stats: Disabled
Logging level: info

Active Shadow-Buffer (MiB): 0
Active Process: 1
Reads\t\t\t\t: {reads}
Reads\t\t\t\t: Bandwidth(MiB/s)=5120 Avg-Latency(usec)=190
Sparse Reads\t\t        : n=0 io=0 holes=0 pages=0 
"""
OPEN_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@host)\n"
    "GCC version:  gcc version 13.3.0\n"
)
CLOSED_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.247.01  Wed Mar 26 06:11:10 UTC 2025\n"
GPU = "0000:17:00.0"
GIB = 2**30
P2PDMA_CONFIG = """{
    // where errors go
    "logging": { "dir": "/var/log//cufile" },
    "properties": {
        // allow p2pdma
        "use_pci_p2pdma": true, // needs the open driver
        "allow_compat_mode": false
    }
}
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """The files below `root`, folders included."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def bar1(num_bytes: int) -> str:
    """The `resource` file of a GPU whose BAR1 has so many bytes."""
    start = 0x380000000000
    lines = [(0x9C000000, 0x9CFFFFFF), (start, start + num_bytes - 1) if num_bytes else (0, 0), (0, 0)]
    return "".join(f"0x{first:016x} 0x{last:016x} 0x000000000014220c\n" for first, last in lines)


def gpu_machine(root: Path) -> Path:
    """A GPU with its driver, and nothing that GPUDirect Storage needs."""
    pci = f"sys/bus/pci/devices/{GPU}"
    return write(
        root,
        {
            "proc/sys/kernel/osrelease": "5.15.0-100-generic\n",
            "proc/kallsyms": "ffffffff81000000 T _stext\n",
            "proc/modules": "nvidia 56508416 0 - Live 0x0\n",
            "proc/driver/nvidia/version": CLOSED_DRIVER,
            "proc/driver/nvidia/params": 'ModifyDeviceFiles: 1\nRegistryDwords: ""\n',
            "sys/module/nvme_core/parameters/multipath": "Y\n",
            f"{pci}/vendor": "0x10de\n",
            f"{pci}/class": "0x030200\n",
            f"{pci}/resource": bar1(256 * 2**20),
            f"{pci}/iommu_group/type": "DMA-FQ\n",
            f"{pci}/numa_node": "1\n",
        },
    )


def p2pdma_machine(root: Path) -> Path:
    """As NVIDIA's guide wants it for P2PDMA, without nvidia-fs."""
    gpu_machine(root)
    (root / "run/udev").mkdir(parents=True)
    return write(
        root,
        {
            "proc/sys/kernel/osrelease": "6.14.0-37-generic\n",
            "proc/kallsyms": "ffffffff81000000 T _stext\n0000000000000000 d p2pdma_pgmap_ops\n",
            "proc/driver/nvidia/version": OPEN_DRIVER,
            "proc/driver/nvidia/params": 'RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"\n',
            "sys/module/nvme_core/parameters/multipath": "N\n",
            f"sys/bus/pci/devices/{GPU}/resource": bar1(128 * GIB),
            f"sys/bus/pci/devices/{GPU}/iommu_group/type": "identity\n",
            "etc/cufile.json": P2PDMA_CONFIG,
        },
    )


def nvfs_machine(root: Path) -> Path:
    """With nvidia-fs, patched storage drivers and read statistics, without P2PDMA."""
    gpu_machine(root)
    (root / "run/udev").mkdir(parents=True)
    return write(
        root,
        {
            "proc/driver/nvidia/version": OPEN_DRIVER,
            "proc/driver/nvidia-fs/version": "version: 2.27\n",
            "proc/driver/nvidia-fs/modules": "nvme: 1.0\nnvme_rdma: 1.0\n",
            "proc/driver/nvidia-fs/stats": NVFS_STATS.format(
                enabled="Enabled", reads="n=1024 ok=1024 err=0 readMiB=4096 io_state_err=0"
            ),
            "dev/nvidia-fs0": "",
            "etc/cufile.json": '{"properties": {"allow_compat_mode": true}}',
        },
    )
