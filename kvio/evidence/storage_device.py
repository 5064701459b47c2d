"""Which physical devices do a path's bytes lie on?  From /proc and /sys, down to the disks."""

import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kvio.evidence.disk import PhysicalDevice, describe_physical, read_value
from kvio.evidence.mounts import Mount, find_mount
from kvio.protocol import MEMORY_FILE_SYSTEMS

ROOT = Path("/")
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs", "glusterfs", "virtiofs"}
)
# what changes how reads behave: journalled data has no O_DIRECT, dax no page cache, compression fewer bytes
NOTED_OPTIONS = frozenset(
    {"ro", "sync", "data", "dax", "compress", "compress-force", "barrier", "nobarrier", "volatile"}
    | {"vers", "rsize", "nconnect", "proto", "cache", "fsc", "direct_io"}
)
DMI = "sys/class/dmi/id"
GUEST_MARKS = ("QEMU", "KVM", "VMware", "VirtualBox", "Xen", "Virtual Machine", "Google Compute Engine")
MAX_DEPTH = 16  # of devices on devices; a deeper stack is a cycle


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """What a file system lies on.

    Args:
        name: of the kernel: "nvme0n1p1", "dm-0", "md127".
        major_minor: its device number.
        disks: device numbers of the whole disks that the file system talks to (of a partition its
            disk, of a mapper itself); where the kernel can limit reads.
        physical: the devices at the bottom.
    """

    name: str
    major_minor: str
    disks: tuple[str, ...]
    physical: tuple[PhysicalDevice, ...]

    @property
    def model(self) -> str | None:
        """Models of the physical devices, each once."""
        models = sorted({device.model for device in self.physical if device.model is not None})
        return ", ".join(models) or None

    @property
    def rotational(self) -> bool | None:
        """True when any physical device spins, None when none of them says."""
        said = [device.rotational for device in self.physical if device.rotational is not None]
        return any(said) if said else None

    @property
    def logical_block_bytes(self) -> int | None:
        """Alignment in bytes that an O_DIRECT read needs at least: the largest of all devices."""
        return max(
            (device.logical_block_bytes for device in self.physical if device.logical_block_bytes),
            default=None,
        )

    @property
    def link_bytes_per_s(self) -> float | None:
        """Bytes per second that the links of all devices together could carry; None when one is unknown."""
        rates = [device.link.bytes_per_s for device in self.physical if device.link is not None]
        return sum(rates) if rates and len(rates) == len(self.physical) else None

    @property
    def behind_loop(self) -> bool:
        """True when a loop device lies in between, which hides where bytes come from."""
        return any(device.behind_loop for device in self.physical)

    @property
    def unproved(self) -> str | None:
        """`PhysicalDevice.unproved` of the first that has one."""
        return next((device.unproved for device in self.physical if device.unproved is not None), None)

    @property
    def numa_node(self) -> int | None:
        """The memory node of all devices, None when unknown or not one."""
        nodes = {device.numa_node for device in self.physical}
        return nodes.pop() if len(nodes) == 1 else None


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a folder's files lie, as a record keeps it.

    Args:
        fs_type: of the file system, None when no mount was found.
        device: under the file system; None for memory, network and what hides its device.
        options: mount options that change how reads behave.
        in_guest: True in a virtual machine, where "cold" reaches no further than the guest's own cache.
    """

    fs_type: str | None
    device: BlockDevice | None
    options: tuple[str, ...]
    in_guest: bool

    @property
    def in_memory(self) -> bool:
        """True when the files never leave memory."""
        return self.fs_type in MEMORY_FILE_SYSTEMS

    @property
    def name(self) -> str:
        """For people: "ext4 on vda (virtio)"; a network file system's server is not named."""
        kind = self.fs_type or "unknown file system"
        if self.device is not None:
            return f"{kind} on {_name_of(self.device)}"
        if self.in_memory:
            return f"{kind} (in memory)"
        return f"{kind} ({'network' if kind in NETWORK_FILE_SYSTEMS else 'device not visible'})"

    @property
    def cold_name(self) -> str:
        """What a cold read may be called here."""
        return "cold in guest" if self.in_guest else "cold"

    @property
    def link_bytes_per_s(self) -> float | None:
        """Bytes per second no read can exceed; None when unknown, and in a guest, whose links are painted."""
        return None if self.in_guest or self.device is None else self.device.link_bytes_per_s

    def facts(self) -> dict[str, object]:
        """All of it, ready for JSON."""
        return {
            "name": self.name,
            "fs_type": self.fs_type,
            "options": list(self.options),
            "in_guest": self.in_guest,
            "link_bytes_per_s": self.link_bytes_per_s,
            "device": None if self.device is None else asdict(self.device),
        }


def find_block_device(path: Path, root: Path = ROOT) -> BlockDevice | None:
    """The device under `path`; None for tmpfs, network file systems and whatever hides its device.

    Args:
        root: folder that holds `proc`, `sys` and `dev`.
    """
    return _find_device(path, root, MAX_DEPTH)


def describe_storage(path: Path, root: Path = ROOT) -> Storage:
    """The file system and device under `path`."""
    mount = find_mount(path, root)
    options = {} if mount is None else mount.options
    return Storage(
        fs_type=None if mount is None else mount.fs_type,
        device=find_block_device(path, root),
        options=tuple(f"{name}={options[name]}".rstrip("=") for name in sorted(NOTED_OPTIONS & set(options))),
        in_guest=runs_in_guest(root),
    )


def runs_in_guest(root: Path = ROOT) -> bool:
    """True in a virtual machine: the CPU says so (x86), else the firmware does."""
    cpu = read_value(root / "proc/cpuinfo") or ""
    if any(line.startswith("flags") and " hypervisor" in line for line in cpu.splitlines()):
        return True
    if (root / "proc/device-tree/hypervisor").exists() or read_value(root / "sys/hypervisor/type"):
        return True
    named = f"{read_value(root / DMI / 'sys_vendor')} {read_value(root / DMI / 'product_name')}"
    return any(mark in named for mark in GUEST_MARKS)


def _name_of(device: BlockDevice) -> str:
    below = ", ".join(disk.label for disk in device.physical)
    if len(device.physical) == 1 and device.name.startswith(device.physical[0].name):
        return below.replace(device.physical[0].name, device.name, 1)
    return f"{device.name} over {below}"


def _find_device(path: Path, root: Path, depth: int) -> BlockDevice | None:
    mount = find_mount(path, root)
    if mount is None or depth == 0:
        return None
    if mount.fs_type == "overlay":
        return _device_of_upper_dir(mount, root, depth)
    folders = _device_folders(mount, root)
    if not folders:
        return None
    physical = {device.name: device for folder in folders for device in _walk_down(folder, root, depth)}
    if not physical:
        return None
    return BlockDevice(
        name=folders[0].name,
        major_minor=read_value(folders[0] / "dev") or mount.major_minor,
        disks=tuple(sorted({read_value(_whole_disk(folder) / "dev") or "" for folder in folders} - {""})),
        physical=tuple(physical[name] for name in sorted(physical)),
    )


def _device_of_upper_dir(mount: Mount, root: Path, depth: int) -> BlockDevice | None:
    """An overlay's new files lie in its upper directory; inside a container that often cannot be seen."""
    upper = mount.options.get("upperdir")
    return None if upper is None else _find_named(upper, root, depth - 1)


def _find_named(name: str, root: Path, depth: int) -> BlockDevice | None:
    """The device under a path that the kernel names; None when it is not one of this mount namespace."""
    return _find_device(Path(name), root, depth) if (root / name.lstrip("/")).exists() else None


def _device_folders(mount: Mount, root: Path) -> list[Path]:
    """Resolved folders in sysfs of the devices that the file system was made on."""
    number = mount.major_minor
    if number.startswith("0:"):  # no device of its own: btrfs and the like name theirs as the source
        number = _number_of_source(mount.source, root) or number
    link = root / "sys/dev/block" / number
    if not link.exists():
        return []
    folder = link.resolve()
    for members in sorted(root.glob("sys/fs/btrfs/*/devices")):
        names = sorted(member.name for member in members.iterdir())
        if mount.fs_type == "btrfs" and folder.name in names:
            return [(members / name).resolve() for name in names]
    return [folder]


def _number_of_source(source: str, root: Path) -> str | None:
    """Device number of the mount source "/dev/…", None when it is none."""
    if not source.startswith("/dev/"):
        return None
    node = root / source.lstrip("/")
    try:
        status = node.stat()
    except OSError:  # not in this container, not readable: unknown
        return None
    if stat.S_ISBLK(status.st_mode):
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return read_value(root / "sys/class/block" / node.resolve().name / "dev")


def _whole_disk(folder: Path) -> Path:
    return folder.parent if (folder / "partition").exists() else folder


def _walk_down(folder: Path, root: Path, depth: int) -> Iterator[PhysicalDevice]:
    """Physical devices below the device at `folder`."""
    disk = _whole_disk(folder)
    if depth == 0:
        return
    backing = read_value(disk / "loop/backing_file")
    if backing is not None:
        below = _find_named(backing, root, depth - 1)
        for device in below.physical if below is not None else (describe_physical(disk),):
            yield replace(device, behind_loop=True, counts_reads=False)
        return
    slaves = sorted((disk / "slaves").iterdir()) if (disk / "slaves").is_dir() else []
    for slave in slaves:
        yield from _walk_down(slave.resolve(), root, depth - 1)
    if not slaves:
        yield describe_physical(disk)
