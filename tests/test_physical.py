"""Over which way a disk is reached, in folders as sysfs has them, and what a read of it then proves."""

from pathlib import Path

import pytest

from bench.machine.doctor.storage_findings import examine_storage
from bench.measure.conditions.storage_check import foresee_storage
from kvio.evidence.cold_evidence import ReadCounters, prove_cache_state
from kvio.evidence.disk import PhysicalDevice, describe_physical
from kvio.evidence.storage_device import BlockDevice, Storage
from tests.test_provable import _setup

PCI = "pci0000:00/0000:00:01.0/0000:01:00.0"
SESSION = "platform/host2/session1/target2:0:0/2:0:0:0/block/sda"
SUBSYSTEM = "virtual/nvme-subsystem/nvme-subsys0"


def _disk(root: Path, folder: str, **transports: str) -> PhysicalDevice:
    """The disk at sys/devices/`folder`, and NVMe controllers with their transports beside it."""
    disk = root / "sys/devices" / folder
    disk.mkdir(parents=True)
    if disk.name.startswith("nvme"):
        (disk / "device").symlink_to("..")
    for name, transport in transports.items():
        controller = disk.parent if name == disk.parent.name else disk.parent / name
        controller.mkdir(exist_ok=True)
        (controller / "transport").write_text(transport + "\n")
    return describe_physical(disk.resolve())


@pytest.mark.parametrize(
    ("folder", "transports", "transport", "unproved"),
    [
        ("virtual/block/zram0", {}, "memory", "device_in_memory"),
        ("virtual/block/ram3", {}, "memory", "device_in_memory"),
        ("virtual/block/nbd0", {}, "network", "device_on_network"),
        ("rbd/0/block/rbd0", {}, "network", "device_on_network"),
        (SESSION, {}, "network", "device_on_network"),
        (f"{PCI}/host1/rport-1:0-3/target1:0:0/1:0:0:1/block/sdb", {}, "network", "device_on_network"),
        (
            "virtual/nvme-fabrics/ctl/nvme1/nvme1n1",
            {"nvme1": "tcp"},
            "network",
            "device_on_network",
        ),
        (f"{SUBSYSTEM}/nvme0n1", {"nvme0": "rdma", "nvme2": "rdma"}, "network", "device_on_network"),
        (f"{SUBSYSTEM}/nvme0n1", {"nvme0": "pcie", "nvme2": "pcie"}, "nvme", None),
        (f"{PCI}/nvme/nvme0/nvme0n1", {"nvme0": "pcie"}, "nvme", None),
        (f"{PCI}/nvme/nvme0/nvme0n1", {}, "nvme", None),
        (f"{PCI}/ata1/host0/target0:0:0/0:0:0:0/block/sda", {}, "scsi", None),
        (f"{PCI}/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sda", {}, "scsi", None),
        (f"{PCI}/virtio1/block/vda", {}, "virtio", None),
        ("virtual/block/loop0", {}, "loop", None),
        ("virtual/block/zd0", {}, "virtual", "device_virtual"),
        ("platform/mmc_host/mmc0/mmc0:0001/block/mmcblk0", {}, None, None),
    ],
)
def test_memory_and_networks_are_told_from_disks_of_this_machine(
    tmp_path: Path, folder: str, transports: dict[str, str], transport: str | None, unproved: str | None
) -> None:
    disk = _disk(tmp_path, folder, **transports)
    assert (disk.transport, disk.unproved) == (transport, unproved)


@pytest.mark.parametrize(
    ("model", "transport", "label"),
    [
        ("Sample Drive", "nvme", "d0 (Sample Drive)"),
        ("LIO-ORG disk", "network", "d0 (LIO-ORG disk, network)"),
        (None, "network", "d0 (network)"),
        (None, "memory", "d0 (in memory)"),
        (None, "virtio", "d0 (virtio)"),
        (None, "virtual", "d0 (virtual)"),
        (None, None, "d0 (unknown model)"),
    ],
)
def test_a_disk_is_named_with_the_way_that_matters(
    model: str | None, transport: str | None, label: str
) -> None:
    assert PhysicalDevice("d0", "8:0", model=model, transport=transport).label == label


@pytest.mark.parametrize(
    ("direct", "resident", "moved", "proved"),
    [
        (True, 0, ReadCounters(100, 100), ("unverified", ("device_on_network",))),
        (False, 0, ReadCounters(100, 100), ("unverified", ("device_on_network",))),
        (False, 0, ReadCounters(100, None), ("unverified", ("device_on_network", "device_counter_missing"))),
        (False, 100, ReadCounters(0, 0), ("warm", ("not_cold",))),
    ],
    ids=["direct", "cold", "no counter", "warm"],
)
def test_above_a_network_nothing_but_a_warm_page_cache_is_proved(
    *, direct: bool, resident: int, moved: ReadCounters, proved: tuple[str, tuple[str, ...]]
) -> None:
    local = PhysicalDevice("sda", "8:0", transport="scsi")
    remote = PhysicalDevice("nbd0", "43:0", transport="network")
    device = BlockDevice("dm-0", "252:0", ("252:0",), (local, remote))
    asked = {"asked_direct": direct, "payload_bytes": 100, "resident_before": resident, "moved": moved}
    assert prove_cache_state(**asked, unproved=device.unproved) == proved  # type: ignore[arg-type]
    only_local = BlockDevice("sda", "8:0", ("8:0",), (local,))
    assert only_local.unproved is None


def test_a_device_that_proves_nothing_is_told_before_the_sweep_and_by_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PhysicalDevice("sda", "8:0", model="LIO-ORG disk", transport="network")
    storage = Storage("xfs", BlockDevice("sda1", "8:1", ("8:0",), (disk,)), (), in_guest=False)
    for room in ("measure.conditions.storage_check", "machine.doctor.storage_findings"):
        monkeypatch.setattr(f"bench.{room}.describe_storage", lambda path: storage)
    where = f"{tmp_path} is on xfs on sda1 (LIO-ORG disk, network)"
    why = "the device below is on a network: a server there may have had the bytes in memory, or not"
    (notice,) = foresee_storage(_setup("posix"), tmp_path)
    assert (notice.code, notice.message) == (
        "storage_unproved",
        f"posix/best: {where}: {why}; none of these samples will count; try --data-dir FOLDER on a local disk",
    )
    first = next(iter(examine_storage(tmp_path)))
    assert (first.status, first.what) == ("warning", f"{where}: {why}")
