"""From a path down to the disks, in trees as the kernel shows them, and on this machine."""

import json
import os
from pathlib import Path

import pytest

from kvio.evidence.disk import LANE_BYTES_PER_S, PcieLink, PhysicalDevice
from kvio.evidence.io_counters import Traffic, read_traffic
from kvio.evidence.mounts import find_mount
from kvio.evidence.storage_device import (
    BlockDevice,
    Storage,
    describe_storage,
    find_block_device,
    runs_in_guest,
)

DRIVE = "pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1"


class Tree:
    """A root folder with just the files of /proc and /sys that we read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts: list[str] = []
        (root / "sys/dev/block").mkdir(parents=True)
        (root / "sys/block").mkdir(parents=True)
        (root / "sys/class/block").mkdir(parents=True)

    def put(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")

    def mount(self, point: str, fs_type: str, number: str, source: str = "none", options: str = "rw") -> None:
        self.mounts.append(f"{len(self.mounts) + 20} 1 {number} / {point} rw - {fs_type} {source} {options}")
        self.put("proc/self/mountinfo", "\n".join(self.mounts))

    def device(self, folder: str, number: str, **values: str) -> None:
        """A block device at sys/devices/`folder`, linked as the kernel does."""
        path = self.root / "sys/devices" / folder
        path.mkdir(parents=True, exist_ok=True)
        self.put(f"sys/devices/{folder}/dev", number)
        for name, value in values.items():
            self.put(f"sys/devices/{folder}/{name.replace('__', '/')}", value)
        (self.root / "sys/dev/block" / number).symlink_to(f"../../devices/{folder}")
        (self.root / "sys/class/block" / path.name).symlink_to(f"../../devices/{folder}")

    def stack(self, upper: str, *lower: str) -> None:
        """`upper` is made of `lower`."""
        slaves = self.root / "sys/devices" / upper / "slaves"
        slaves.mkdir()
        for folder in lower:
            (slaves / Path(folder).name).symlink_to(self.root / "sys/devices" / folder)

    def nvme(self) -> None:
        """A Gen4 x4 drive in a Gen3 slot, on NUMA node 1, with one partition."""
        self.device(DRIVE, "259:0", queue__rotational="0", queue__logical_block_size="4096")
        self.device(f"{DRIVE}/nvme0n1p2", "259:2", partition="2")
        self.put("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/model", "Sample Drive 2TB  ")
        (self.root / "sys/devices" / DRIVE / "device").symlink_to("..")
        for folder, speed in (("0000:00:01.0", "8.0"), ("0000:00:01.0/0000:01:00.0", "16.0")):
            self.put(f"sys/devices/pci0000:00/{folder}/max_link_speed", f"{speed} GT/s PCIe")
            self.put(f"sys/devices/pci0000:00/{folder}/current_link_width", "4")
        self.put("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node", "1")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_mount_is_found_by_component_not_by_string(tree: Tree) -> None:
    tree.mount("/", "ext4", "8:1")
    tree.mount("/mnt/a", "xfs", "8:2")
    for path, fs_type in (("/mnt/a/f", "xfs"), ("/mnt/a", "xfs"), ("/mnt/ab/f", "ext4"), ("/mnt", "ext4")):
        mount = find_mount(Path(path), tree.root)
        assert mount is not None
        assert mount.fs_type == fs_type, path


def test_spaces_in_a_mount_point_are_unescaped(tree: Tree) -> None:
    tree.mount("/", "ext4", "8:1")
    tree.mount(r"/mnt/my\040fast\134disk", "xfs", "8:2")
    mount = find_mount(Path("/mnt/my fast\\disk/chunks"), tree.root)
    assert mount is not None
    assert (mount.fs_type, mount.mount_point) == ("xfs", Path("/mnt/my fast\\disk"))


def test_the_later_of_two_mounts_on_one_point_counts(tree: Tree) -> None:
    tree.mount("/", "ext4", "8:1")
    tree.mount("/scratch", "xfs", "8:2")
    tree.mount("/scratch", "tmpfs", "0:40")
    mount = find_mount(Path("/scratch/x"), tree.root)
    assert mount is not None
    assert mount.fs_type == "tmpfs"


def test_optional_fields_and_option_values_are_read(tree: Tree) -> None:
    line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue"
    tree.put("proc/self/mountinfo", line)
    mount = find_mount(Path("/mnt2/x"), tree.root)
    assert mount is not None
    assert (mount.fs_type, mount.source, mount.major_minor) == ("ext3", "/dev/root", "98:0")
    assert mount.options == {"rw": "", "errors": "continue", "noatime": ""}


def test_a_partition_leads_to_its_drive_and_the_drives_link(tree: Tree) -> None:
    tree.nvme()
    tree.mount("/", "ext4", "259:2", "/dev/nvme0n1p2")
    device = find_block_device(Path("/x"), tree.root)
    assert device is not None
    assert (device.name, device.major_minor, device.disks) == ("nvme0n1p2", "259:2", ("259:0",))
    assert [disk.name for disk in device.physical] == ["nvme0n1"]
    assert (device.model, device.rotational, device.logical_block_bytes) == ("Sample Drive 2TB", False, 4096)
    assert device.numa_node == 1
    assert device.physical[0].link == PcieLink(3, 4)  # the slot is the narrow hop
    assert device.link_bytes_per_s == pytest.approx(3.938e9, rel=1e-3)


def test_lvm_on_a_mapper_on_two_md_members_leads_to_both_disks(tree: Tree) -> None:
    for letter, minor in (("a", 0), ("b", 16)):
        tree.device(f"ata/sd{letter}", f"8:{minor}", queue__rotational="1", queue__logical_block_size="512")
        tree.device(f"ata/sd{letter}/sd{letter}1", f"8:{minor + 1}", partition="1")
    for name, number in (("md0", "9:0"), ("dm-0", "252:0"), ("dm-1", "252:1")):
        tree.device(f"virtual/block/{name}", number)
    tree.stack("virtual/block/md0", "ata/sda/sda1", "ata/sdb/sdb1")
    tree.stack("virtual/block/dm-0", "virtual/block/md0")
    tree.stack("virtual/block/dm-1", "virtual/block/dm-0")
    tree.mount("/", "xfs", "252:1", "/dev/mapper/vg-data")
    device = find_block_device(Path("/chunks"), tree.root)
    assert device is not None
    assert (device.name, device.disks) == ("dm-1", ("252:1",))
    assert [(disk.name, disk.major_minor) for disk in device.physical] == [("sda", "8:0"), ("sdb", "8:16")]
    assert (device.rotational, device.link_bytes_per_s, device.numa_node) == (True, None, None)


def test_a_loop_device_leads_to_the_disk_of_its_backing_file(tree: Tree) -> None:
    tree.nvme()
    tree.mount("/", "ext4", "259:2")
    tree.put("images/disk.img", "")
    tree.device("virtual/block/loop3", "7:3", loop__backing_file="/images/disk.img")
    tree.mount("/mnt/image", "ext4", "7:3", "/dev/loop3")
    device = find_block_device(Path("/mnt/image/x"), tree.root)
    assert device is not None
    assert (device.name, device.disks, device.physical[0].name) == ("loop3", ("7:3",), "nvme0n1")
    assert device.behind_loop
    assert (
        describe_storage(Path("/mnt/image"), tree.root).name
        == "ext4 on loop3 over nvme0n1 (Sample Drive 2TB)"
    )


def test_a_loop_device_whose_backing_file_is_out_of_sight_ends_at_the_loop(tree: Tree) -> None:
    tree.nvme()
    tree.mount("/", "ext4", "259:2")
    tree.device("virtual/block/loop3", "7:3", loop__backing_file="/elsewhere/disk.img (deleted)")
    tree.mount("/mnt/image", "ext4", "7:3")
    device = find_block_device(Path("/mnt/image/x"), tree.root)
    assert device is not None
    assert [(disk.name, disk.behind_loop, disk.counts_reads) for disk in device.physical] == [
        ("loop3", True, False)
    ]
    assert describe_storage(Path("/mnt/image/x"), tree.root).name == "ext4 on loop3 (loop)"


def test_an_overlay_leads_to_the_device_of_its_upper_directory(tree: Tree) -> None:
    tree.nvme()
    tree.mount("/", "overlay", "0:50", "overlay", "rw,lowerdir=/l,upperdir=/var/up,workdir=/w")
    tree.mount("/var", "ext4", "259:2")
    tree.put("var/up/marker", "")
    device = find_block_device(Path("/data"), tree.root)
    assert device is not None
    assert device.name == "nvme0n1p2"


def test_an_overlay_whose_upper_directory_is_out_of_sight_is_unknown(tree: Tree) -> None:
    tree.mount("/", "overlay", "0:50", "overlay", "rw,upperdir=/var/lib/overlay2/abc/diff")
    storage = describe_storage(Path("/data"), tree.root)
    assert storage.device is None
    assert storage.name == "overlay (device not visible)"


def test_an_overlay_upon_itself_ends(tree: Tree) -> None:
    tree.mount("/", "overlay", "0:50", "overlay", "rw,upperdir=/up")
    tree.put("up/marker", "")
    assert find_block_device(Path("/data"), tree.root) is None


def test_btrfs_is_found_by_its_source_with_all_its_members(tree: Tree) -> None:
    for letter, minor in (("a", 0), ("b", 16), ("c", 32)):
        tree.device(f"ata/sd{letter}", f"8:{minor}")
    tree.put("dev/sda", "")
    members = tree.root / "sys/fs/btrfs/1234/devices"
    members.mkdir(parents=True)
    for letter in "ab":
        (members / f"sd{letter}").symlink_to(tree.root / f"sys/devices/ata/sd{letter}")
    tree.mount("/", "btrfs", "0:33", "/dev/sda", "rw,compress=zstd:3")
    storage = describe_storage(Path("/x"), tree.root)
    assert storage.options == ("compress=zstd:3",)
    assert storage.device is not None
    assert [disk.name for disk in storage.device.physical] == ["sda", "sdb"]
    assert storage.device.disks == ("8:0", "8:16")


def test_a_multipath_nvme_disk_finds_the_link_of_its_controller(tree: Tree) -> None:
    tree.nvme()
    head = "virtual/nvme-subsystem/nvme-subsys0/nvme1n1"
    tree.device(head, "259:7")
    (tree.root / "sys/devices" / head).parent.joinpath("nvme0").symlink_to(
        tree.root / "sys/devices" / Path(DRIVE).parent
    )
    tree.mount("/", "xfs", "259:7")
    device = find_block_device(Path("/x"), tree.root)
    assert device is not None
    assert device.physical[0].link == PcieLink(3, 4)


def test_the_painted_link_of_a_virtio_disk_is_not_believed(tree: Tree) -> None:
    folder = "pci0000:00/0000:00:02.0/virtio1/block/vda"
    tree.device(folder, "254:0", queue__iostats="0")
    tree.put("sys/devices/pci0000:00/0000:00:02.0/max_link_speed", "2.5 GT/s PCIe")
    tree.put("sys/devices/pci0000:00/0000:00:02.0/current_link_width", "1")
    tree.mount("/", "ext4", "254:0", "/dev/vda")
    device = find_block_device(Path("/x"), tree.root)
    assert device is not None
    assert device.link_bytes_per_s is None
    assert not device.physical[0].counts_reads
    assert describe_storage(Path("/x"), tree.root).name == "ext4 on vda (virtio)"


@pytest.mark.parametrize(
    ("speed", "width"), [("Unknown", "4"), ("8.0 GT/s PCIe", "0"), ("8.0 GT/s PCIe", "63")]
)
def test_an_unknown_link_is_unknown(tree: Tree, speed: str, width: str) -> None:
    tree.device("pci0000:00/0000:00:02.0/ata1/block/sda", "8:0")
    tree.put("sys/devices/pci0000:00/0000:00:02.0/max_link_speed", speed)
    tree.put("sys/devices/pci0000:00/0000:00:02.0/current_link_width", width)
    tree.mount("/", "ext4", "8:0")
    device = find_block_device(Path("/x"), tree.root)
    assert device is not None
    assert device.link_bytes_per_s is None


def test_lane_rates_are_those_of_the_specification() -> None:
    assert [round(rate / 1e6, 1) for rate in LANE_BYTES_PER_S.values()] == [
        250.0,
        500.0,
        984.6,
        1969.2,
        3938.5,
        7562.5,
    ]
    assert PcieLink(4, 4).bytes_per_s == pytest.approx(7.877e9, rel=1e-3)


def test_memory_and_network_have_no_device_and_name_no_server(tree: Tree) -> None:
    tree.mount("/", "tmpfs", "0:20")
    tree.mount("/filer", "nfs4", "0:60", "filer.example:/export", "rw,vers=4.2,nconnect=8,addr=192.0.2.1")
    memory, network = (describe_storage(Path(path), tree.root) for path in ("/x", "/filer/x"))
    assert (memory.name, memory.in_memory, memory.device) == ("tmpfs (in memory)", True, None)
    assert (network.name, network.in_memory, network.device) == ("nfs4 (network)", False, None)
    assert network.options == ("nconnect=8", "vers=4.2")
    assert "192.0.2.1" not in json.dumps(network.facts())


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("proc/cpuinfo", "model name: X\nflags\t\t: fpu hypervisor lahf_lm", True),
        ("proc/cpuinfo", "model name: X\nflags\t\t: fpu lahf_lm", False),
        ("sys/class/dmi/id/sys_vendor", "QEMU", True),
        ("sys/class/dmi/id/product_name", "PowerEdge R760", False),
    ],
)
def test_a_guest_is_recognised(tree: Tree, path: str, text: str, expected: bool) -> None:
    tree.put(path, text)
    assert runs_in_guest(tree.root) is expected


def test_in_a_guest_no_link_bounds_the_rate_and_cold_says_so(tree: Tree) -> None:
    tree.nvme()
    tree.mount("/", "ext4", "259:2")
    bare = describe_storage(Path("/x"), tree.root)
    tree.put("proc/cpuinfo", "flags : fpu hypervisor")
    guest = describe_storage(Path("/x"), tree.root)
    assert (bare.link_bytes_per_s, bare.cold_name) == (pytest.approx(3.938e9, rel=1e-3), "cold")
    assert (guest.link_bytes_per_s, guest.cold_name) == (None, "cold in guest")


def test_the_facts_of_a_storage_survive_json(tree: Tree) -> None:
    tree.nvme()
    tree.mount("/", "ext4", "259:2")
    facts = describe_storage(Path("/x"), tree.root).facts()
    again = json.loads(json.dumps(facts))
    assert again["name"] == "ext4 on nvme0n1p2 (Sample Drive 2TB)"
    assert again["device"]["physical"][0]["link"] == {"generation": 3, "width": 4}


def test_on_this_machine_the_device_number_is_that_of_stat(tmp_path: Path) -> None:
    storage: Storage = describe_storage(tmp_path)
    if storage.device is None or storage.fs_type in {"btrfs", "overlay"}:
        pytest.skip(f"{storage.name}: files do not carry their device's number")
    number = tmp_path.stat().st_dev
    assert storage.device.major_minor == f"{os.major(number)}:{os.minor(number)}"
    assert storage.name.startswith(f"{storage.fs_type} on {storage.device.name}")
    for disk in storage.device.physical:
        assert (Path("/sys/block") / disk.name / "stat").exists()


def _device(**changes: bool) -> BlockDevice:
    return BlockDevice(
        "md0", "9:0", ("9:0",), tuple(PhysicalDevice(name, "8:0", **changes) for name in ("a", "b"))
    )


def _tree(root: Path, **sectors: tuple[int, int]) -> Path:
    for name, (read, written) in sectors.items():
        (root / "sys/block" / name).mkdir(parents=True)
        (root / "sys/block" / name / "stat").write_text(f"  11  22 {read}  44 55 66 {written} 88 0 99 100\n")
    return root


def test_bytes_read_and_written_are_summed_over_the_devices(tmp_path: Path) -> None:
    root = _tree(tmp_path, a=(10, 3), b=(5, 4))
    assert read_traffic(_device(), root) == Traffic(15 * 512, 7 * 512)


def test_devices_that_do_not_all_count_count_nothing(tmp_path: Path) -> None:
    root = _tree(tmp_path, a=(10, 3))
    assert read_traffic(_device(), root) is None
    assert read_traffic(_device(counts_reads=False), _tree(tmp_path, b=(5, 4))) is None


@pytest.mark.parametrize("before", [Traffic(11, 0), Traffic(0, 21)], ids=["read", "written"])
def test_a_counter_that_was_reset_tells_nothing(before: Traffic) -> None:
    assert Traffic(10, 20).moved_since(Traffic(4, 5)) == Traffic(6, 15)
    assert Traffic(10, 20).moved_since(before) is None
