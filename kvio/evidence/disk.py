"""A whole disk with nothing below it, as sysfs describes it."""

import re
from dataclasses import dataclass
from pathlib import Path

from kvio.evidence.pcie import Link, find_link

UNPROVED = {  # by transport: what comes from there was perhaps in memory all along, here or elsewhere
    "memory": "device_in_memory",
    "network": "device_on_network",
    "virtual": "device_virtual",
}
LOCAL_NVME = frozenset(
    {"pcie", "apple-nvme"}
)  # the others are fabrics: drivers/nvme/host/*.c, .name of nvme_ctrl_ops
NETWORK_NAMES = ("nbd", "rbd", "drbd")
MEMORY_NAMES = ("zram", "ram", "nullb")


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A whole disk with nothing below it: an NVMe drive, a virtio disk.

    Args:
        name: of the kernel, as under /sys/block.
        major_minor: device number, "259:0".
        model: what the drive calls itself.
        transport: "nvme", "virtio", "scsi"; "network" (nbd, rbd, iSCSI, Fibre Channel, NVMe over fabrics), "memory" (zram,
            brd), "loop"; "virtual" is any other that no hardware carries (a ZFS volume, ublk).
        rotational: what the kernel believes; virtual disks often say True.
        logical_block_bytes: smallest unit of an O_DIRECT read.
        link: narrowest PCI Express hop between the drive and the CPU.
        numa_node: the memory node it hangs on.
        counts_reads: False when the kernel was told to keep no counters for it, and behind a loop device: what it read
            proves nothing there.
        behind_loop: a loop device lies on it.  The loop's backing file is cached a second time, and
            neighbours move the counters of the disk, so that no counter tells where bytes came from.
    """

    name: str
    major_minor: str
    model: str | None = None
    transport: str | None = None
    rotational: bool | None = None
    logical_block_bytes: int | None = None
    link: Link | None = None
    numa_node: int | None = None
    counts_reads: bool = True
    behind_loop: bool = False

    @property
    def unproved(self) -> str | None:
        """Code (see `cold_evidence.NOTICES`) of a cache below that no counter here sees, or None."""
        return UNPROVED.get(self.transport or "")

    @property
    def label(self) -> str:
        """For people: its name, model and what it is reached over where that says more."""
        said = {"memory": "in memory", "network": "network"}.get(self.transport or "")
        known = [part for part in (self.model, said) if part is not None]
        return f"{self.name} ({', '.join(known) or self.transport or 'unknown model'})"


def describe_physical(disk: Path) -> PhysicalDevice:
    """The whole disk at `disk`, a resolved folder in sysfs."""
    rotational = read_value(disk / "queue/rotational")
    transport = _transport(disk)
    return PhysicalDevice(
        name=disk.name,
        major_minor=read_value(disk / "dev") or "",
        model=read_value(disk / "device/model"),
        transport=transport,
        rotational=None if rotational is None else rotational == "1",
        logical_block_bytes=read_count(disk / "queue/logical_block_size"),
        # what a hypervisor paints on the link of its virtual disks bounds nothing
        link=None if transport == "virtio" else find_link(disk),
        numa_node=_numa_node(disk),
        counts_reads=read_value(disk / "queue/iostats") != "0",
    )


def _transport(disk: Path) -> str | None:
    name, parts = disk.name, disk.parts
    if name.startswith(NETWORK_NAMES) or _is_remote(disk):
        return "network"
    if any(part.startswith("virtio") for part in parts):
        return "virtio"
    if name.startswith(MEMORY_NAMES):
        return "memory"
    found = next(
        (kind for start, kind in (("nvme", "nvme"), ("loop", "loop")) if name.startswith(start)), None
    )
    if found is None and disk.parent.parts[-3:] == ("devices", "virtual", "block"):
        return "virtual"
    return found or ("scsi" if name.startswith("sd") else None)


def _is_remote(disk: Path) -> bool:
    """Whether sysfs shows a way to it over a network.

    SCSI: an iSCSI session, or a remote port (Fibre Channel, SRP), is one of the folders above it.  NVMe: its controller
    says its transport; of a drive with several ways, each controller in its subsystem does.
    """
    if any(re.fullmatch(r"session\d+|rport-.*|nvme-fabrics", part) for part in disk.parts):
        return True
    if not disk.name.startswith("nvme"):
        return False
    controller = disk / "device"
    said = [read_value(path) for path in (controller / "transport", *controller.glob("nvme*/transport"))]
    return any(way not in LOCAL_NVME for way in said if way is not None)


def _numa_node(disk: Path) -> int | None:
    for folder in disk.parents:
        node = read_count(folder / "numa_node")
        if node is not None and node >= 0:
            return node
    return None


def read_value(path: Path) -> str | None:
    """A file of one value, None when it is not there."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:  # sysfs answers a value that does not apply with ENOENT, EINVAL, EIO or ENODEV
        return None


def read_count(path: Path) -> int | None:
    """A file of one whole number, None when it is not there or no number."""
    text = read_value(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
