"""Storage where no read can be proved is told before anything is measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.machine.doctor.storage_findings import examine_storage
from bench.measure.conditions import storage_check as provable
from bench.measure.conditions.storage_check import check_cold_reads
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.record.notices import KINDS
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from kvio.evidence.cold_evidence import ReadCounters, prove_cache_state
from kvio.evidence.disk import PhysicalDevice, describe_physical
from kvio.evidence.storage_device import BlockDevice, Storage
from tests.helpers.places import memory_folder, require_disk


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def _setup(*backends: str, **changes: object) -> ResolvedPlan:
    loads = tuple(LoadSpec(backend=name) for name in backends)
    return resolve_plan(Plan(model="qwen3-0.6b", loads=loads).model_copy(update=changes))


def test_loads_that_all_read_files_in_memory_are_refused(in_memory: Path) -> None:
    with pytest.raises(PlanError) as refused:
        check_cold_reads(_setup("posix", "uring"), in_memory)
    assert str(refused.value) == (
        f"{in_memory} is on tmpfs (in memory): no read there is ever cold or direct, so no sample of a load would count; "
        "try --data-dir FOLDER on a local disk, or --backend hostmem for loads from memory"
    )


def test_beside_another_place_files_in_memory_are_a_notice(in_memory: Path) -> None:
    (notice,) = check_cold_reads(_setup("hostmem", "posix"), in_memory)
    assert (notice.kind, notice.suspect) == ("storage_unproved", True)
    assert notice.text == (
        f"posix/best: {in_memory} is on tmpfs (in memory): no read there is ever cold or direct, so none of these samples "
        "will count; try --data-dir FOLDER on a local disk"
    )


@pytest.mark.parametrize("backends", [("hostmem",), ("null", "hostmem"), ("s3",)], ids="+".join)
def test_who_reads_no_files_may_have_them_anywhere(in_memory: Path, backends: tuple[str, ...]) -> None:
    assert check_cold_reads(_setup(*backends), in_memory) == ()


def test_a_simulation_and_a_missing_folder_are_no_matter(in_memory: Path) -> None:
    assert check_cold_reads(_setup("simulated", simulation=SimulationSpec()), in_memory) == ()
    assert check_cold_reads(_setup("posix"), in_memory / "gone") == ()


def test_of_a_local_disk_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert check_cold_reads(_setup("posix"), require_disk(tmp_path)) == ()


def _disk(*, behind_loop: bool) -> BlockDevice:
    disk = PhysicalDevice("nvme0n1", "259:0", behind_loop=behind_loop, counts_reads=not behind_loop)
    return BlockDevice("loop0" if behind_loop else "nvme0n1", "7:0", ("7:0",), (disk,))


@pytest.mark.parametrize(
    ("device", "counters", "why"),
    [
        (_disk(behind_loop=True), ReadCounters(None, None), "the file below its loop device may be cached"),
        (None, ReadCounters(0, None), "the kernel has no counters that prove reads there"),
        (
            _disk(behind_loop=False),
            ReadCounters(None, 0),
            "the kernel has no counters that prove reads there",
        ),
    ],
    ids=["loop", "network", "no process counter"],
)
def test_where_nothing_proves_a_read_a_notice_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: BlockDevice | None,
    counters: ReadCounters,
    why: str,
) -> None:
    storage = Storage("ext4", device, (), in_guest=False)
    monkeypatch.setattr(provable, "describe_storage", lambda path: storage)
    monkeypatch.setattr(provable, "read_counters", lambda device: counters)
    (notice,) = check_cold_reads(_setup("posix"), tmp_path)
    assert notice.text.startswith(f"posix/best: {tmp_path} is on {storage.name}: {why}")
    assert notice.text.endswith("so none of these samples will count; try --data-dir FOLDER on a local disk")


PCI = "pci0000:00/0000:00:01.0/0000:01:00.0"
SESSION = "platform/host2/session1/target2:0:0/2:0:0:0/block/sda"
SUBSYSTEM = "virtual/nvme-subsystem/nvme-subsys0"


def _disk_of_physical(root: Path, folder: str, **transports: str) -> PhysicalDevice:
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
    disk = _disk_of_physical(tmp_path, folder, **transports)
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
    why = KINDS["device_on_network"].meaning
    (notice,) = check_cold_reads(_setup("posix"), tmp_path)
    assert (notice.kind, notice.series) == ("storage_unproved", "posix/best")
    assert where in notice.detail and why in notice.detail
    first = next(iter(examine_storage(tmp_path)))
    assert (first.status, first.what) == ("warning", f"{where}: {why}")
