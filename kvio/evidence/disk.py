"""A whole disk with nothing below it, as sysfs describes it.

What the PCI Express link between a drive and the CPU can carry at most.
"""

import re
from dataclasses import dataclass
from pathlib import Path

# Bytes/s of one lane in one direction after line coding, by signalling rate in GT/s.
# Source: PCI Express Base Specification: 8b/10b coding at 2.5 and 5 GT/s, 128b/130b at 8, 16 and 32 GT/s,
# 242 of each 256-byte flit at 64 GT/s.  Packet headers come off that, so these are upper bounds.
LANE_BYTES_PER_S = {
    2.5: 2.5e9 / 8 * 8 / 10,
    5.0: 5e9 / 8 * 8 / 10,
    8.0: 8e9 / 8 * 128 / 130,
    16.0: 16e9 / 8 * 128 / 130,
    32.0: 32e9 / 8 * 128 / 130,
    64.0: 64e9 / 8 * 242 / 256,
}
GENERATIONS = {rate: number for number, rate in enumerate(LANE_BYTES_PER_S, start=1)}


@dataclass(frozen=True, slots=True)
class PcieLink:
    """A PCI Express link: its generation (1 to 6) and its number of lanes."""

    generation: int
    width: int

    @property
    def bytes_per_s(self) -> float:
        """Upper bound of its payload rate in one direction."""
        rate = next(rate for rate, number in GENERATIONS.items() if number == self.generation)
        return LANE_BYTES_PER_S[rate] * self.width


def find_link(disk: Path) -> PcieLink | None:
    """The narrowest hop above the device at `disk`, a resolved folder in sysfs; None when no hop is known.

    A hop counts with its fastest generation and its present width: an idle link may run slower to save
    power and speed up under load, and a bound must not refuse a true rate.
    """
    folder = _controller(disk)
    hops = [link for parent in (folder, *folder.parents) if (link := _read_link(parent)) is not None]
    return min(hops, key=lambda link: link.bytes_per_s, default=None)


def _controller(disk: Path) -> Path:
    """Where to start: multipath NVMe disks are virtual devices that lie beside a link to their controller."""
    if not any(part.startswith("nvme-subsys") for part in disk.parts):
        return disk
    controllers = [path for path in disk.parent.glob("nvme*") if re.fullmatch(r"nvme\d+", path.name)]
    return controllers[0].resolve() if len(controllers) == 1 else disk


def _read_link(folder: Path) -> PcieLink | None:
    try:
        speed = (folder / "max_link_speed").read_text()
        width = (folder / "current_link_width").read_text()
    except OSError:  # not a PCI device, or one inside the root complex
        return None
    found = re.match(r"([0-9.]+) GT/s", speed)
    generation = GENERATIONS.get(float(found[1])) if found else None
    lanes = int(width) if width.strip().isdigit() else 0
    # 63 and 255 are what the kernel reports for "unknown"
    return PcieLink(generation, lanes) if generation is not None and 0 < lanes <= 32 else None


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
    link: PcieLink | None = None
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
