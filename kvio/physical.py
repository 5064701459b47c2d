"""A whole disk with nothing below it, as sysfs describes it."""

from dataclasses import dataclass
from pathlib import Path

from kvio.pcie import Link, find_link


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A whole disk with nothing below it: an NVMe drive, a virtio disk.

    Args:
        name: of the kernel, as under /sys/block.
        major_minor: device number, "259:0".
        model: what the drive calls itself.
        transport: "nvme", "virtio", "scsi", "network" …
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
    names = {
        "nvme": "nvme",
        "zram": "memory",
        "ram": "memory",
        "nbd": "network",
        "rbd": "network",
        "loop": "loop",
    }
    if any(part.startswith("virtio") for part in disk.parts):
        return "virtio"
    found = next((names[start] for start in names if disk.name.startswith(start)), None)
    return found or ("scsi" if disk.name.startswith("sd") else None)


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
