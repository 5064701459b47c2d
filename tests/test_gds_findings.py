"""What the doctor says about GPUDirect Storage on machines of every kind, and that each fault has a remedy."""

from pathlib import Path

import pytest

from bench.machine.doctor.finding import Finding
from bench.machine.doctor.gds_findings import examine_gds
from kvio.backends.gds.driver_probe import DriverProbe
from kvio.backends.gds.gds_system import read_gds_system
from kvio.evidence.disk import PhysicalDevice
from kvio.evidence.storage_device import BlockDevice, Storage
from tests.gds_trees import GPU, bar1, gpu_machine, nvfs_machine, p2pdma_machine, write

OPENED = DriverProbe("opened", "libcufile 1.20 opens", version="1.20", facts={"supported": ["nvme"]})


def _storage(
    fs_type: str = "ext4", *, name: str = "nvme0n1p1", transport: str = "nvme", options: tuple[str, ...] = ()
) -> Storage:
    disk = PhysicalDevice("nvme0n1", "259:0", transport=transport)
    return Storage(fs_type, BlockDevice(name, "259:1", ("259:0",), (disk,)), options, in_guest=False)


NVME = _storage()


def _examine(root: Path, storage: Storage = NVME, probe: DriverProbe = OPENED) -> dict[str, Finding]:
    found = list(examine_gds(read_gds_system(root, {}), storage, installed=True, probe=lambda: probe))
    for finding in found:
        assert finding.what and "\n" not in finding.what
        assert finding.status == "ok" or finding.remedy, finding
    return {finding.topic: finding for finding in found}


def test_a_machine_set_up_for_p2pdma_has_no_faults(tmp_path: Path) -> None:
    found = _examine(p2pdma_machine(tmp_path))
    assert {finding.status for finding in found.values()} == {"ok"}
    assert found["gds path"].what == "gds-p2pdma is to be expected"
    assert found["gds driver"].what == "580.95.05, open kernel modules"
    assert found["bar1"].what == f"{GPU}: 137 GB"
    assert found["cufile"].what == "libcufile 1.20 opens; it says that it supports nvme"


def test_nvidia_fs_alone_is_a_path_too(tmp_path: Path) -> None:
    found = _examine(nvfs_machine(tmp_path))
    assert found["gds path"].what == "gds-nvfs is to be expected"
    assert found["nvidia-fs"].what == "2.27, for nvme, nvme_rdma; it counts reads"
    assert found["p2pdma"].status == "skipped"


def test_a_plain_gpu_machine_is_told_everything_that_is_missing(tmp_path: Path) -> None:
    found = _examine(gpu_machine(tmp_path))
    assert found["gds path"].what.startswith("only cufile-compat or kvikio-compat is to be expected")
    assert found["gds kernel"].remedy == "boot a kernel with CONFIG_PCI_P2PDMA=y, or load nvidia-fs"
    assert found["gds driver"].what == "535.247.01, closed kernel modules"
    assert found["p2pdma"].what.count(";") == 5  # six conditions, none fulfilled
    assert found["bar1"].what.endswith("268 MB: larger buffers cannot be registered")
    assert found["iommu"].remedy == "boot with iommu=off or iommu=pt"
    assert found["cufile.json"].what.startswith("none, and the wheels bring none")
    assert found["gds container"].remedy == "docker run -v /run/udev:/run/udev:ro"
    assert found["nvidia-fs"].remedy == "modprobe nvidia_fs"


def test_without_a_gpu_one_line_says_so_and_nothing_is_probed(tmp_path: Path) -> None:
    def probe() -> DriverProbe:
        raise AssertionError("cuFile must not be touched")

    found = list(examine_gds(read_gds_system(tmp_path, {}), NVME, installed=False, probe=probe))
    assert [finding.topic for finding in found] == ["gds gpu"]
    assert found[0].what == "no NVIDIA GPU or driver here: kvikio reads into host memory at most"


def test_without_kvikio_cufile_is_not_probed(tmp_path: Path) -> None:
    def probe() -> DriverProbe:
        raise AssertionError("cuFile must not be touched")

    found = list(
        examine_gds(read_gds_system(p2pdma_machine(tmp_path), {}), NVME, installed=False, probe=probe)
    )
    assert "cufile" not in {finding.topic for finding in found}


@pytest.mark.parametrize(
    ("storage", "fault", "path"),
    [
        (_storage("xfs"), "DMA to a GPU is possible", "gds-p2pdma"),
        (_storage("btrfs"), "neither ext4 nor xfs", "only"),
        (_storage("overlay"), "neither ext4 nor xfs", "only"),
        (Storage("tmpfs", None, (), False), "neither ext4 nor xfs on a visible device", "only"),
        (_storage(options=("data=journal",)), "journalled data is read through host memory", "only"),
        (_storage(options=("data=ordered",)), "DMA to a GPU is possible", "gds-p2pdma"),
        (_storage(transport="virtio"), "not a local NVMe drive", "only"),
        (_storage(name="md0"), "P2PDMA does not work through RAID", "only"),
        (_storage(name="dm-0"), "P2PDMA does not work through RAID", "only"),
    ],
)
def test_the_drive_decides_too(tmp_path: Path, storage: Storage, fault: str, path: str) -> None:
    found = _examine(p2pdma_machine(tmp_path), storage)
    assert fault in found["gds storage"].what
    assert found["gds path"].what.startswith(path)


def test_nvidia_fs_reads_through_raid_where_p2pdma_does_not(tmp_path: Path) -> None:
    found = _examine(nvfs_machine(tmp_path), _storage(name="md0"))
    assert found["gds path"].what == "gds-nvfs is to be expected"


@pytest.mark.parametrize(
    ("probe", "what", "remedy"),
    [
        (
            DriverProbe("hung", "cuFile was while opening for 20 s and was killed"),
            "was killed",
            "use --backend-option gds.compat=on",
        ),
        (
            DriverProbe("died", "killed by SIGSEGV while opening"),
            "SIGSEGV",
            "use --backend-option gds.compat=on",
        ),
        (
            DriverProbe("refused", "PLATFORM_NOT_SUPPORTED (5006)"),
            "5006",
            "use --backend-option gds.compat=on",
        ),
        (DriverProbe("absent", "No module named 'cuda'"), "cuda", "pip install"),
        (DriverProbe("no context", "cuInit gives CUresult 999"), "999", "nvidia-smi"),
        (
            DriverProbe("opened", "libcufile opens", closed_stdin=True),
            "closed its standard input",
            "/dev/nvidia-fs",
        ),
    ],
)
def test_a_driver_that_does_not_open_well_is_told(
    tmp_path: Path, probe: DriverProbe, what: str, remedy: str
) -> None:
    finding = _examine(p2pdma_machine(tmp_path), probe=probe)["cufile"]
    assert finding.status == "warning"
    assert what in finding.what and remedy in finding.remedy


def test_missing_device_nodes_silent_counters_and_drivers_that_did_not_register_are_told(
    tmp_path: Path,
) -> None:
    root = nvfs_machine(tmp_path)
    write(root, {"proc/driver/nvidia-fs/stats": "IO stats: Disabled, peer IO stats: Disabled\n"})
    assert "rw_stats_enabled" in _examine(root)["nvidia-fs"].remedy
    write(root, {"proc/driver/nvidia-fs/modules": ""})
    assert "no storage driver" in _examine(root)["nvidia-fs"].what
    (root / "dev/nvidia-fs0").unlink()
    assert "--device=/dev/nvidia-fs0" in _examine(root)["nvidia-fs"].remedy
    assert _examine(root)["gds path"].status == "skipped"


def test_a_hidden_module_list_hangs_cufile(tmp_path: Path) -> None:
    root = p2pdma_machine(tmp_path)
    (root / "proc/modules").unlink()
    assert "cuFile hangs" in _examine(root)["gds kernel"].what


def test_a_gpu_without_bar1_and_wsl(tmp_path: Path) -> None:
    root = p2pdma_machine(tmp_path)
    write(root, {f"sys/bus/pci/devices/{GPU}/resource": bar1(0)})
    write(root, {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"})
    found = _examine(root)
    assert found["bar1"].status == found["gds container"].status == "warning"
    assert "no BAR1" in found["bar1"].what and "Windows" in found["gds container"].what


def test_a_broken_cufile_json_is_a_warning(tmp_path: Path) -> None:
    root = p2pdma_machine(tmp_path)
    write(root, {"etc/cufile.json": "{"})
    assert _examine(root)["cufile.json"].status == "warning"
