"""Probing reads prove what a folder lets us prove, and leave nothing behind."""

import os
import resource
import sys
from pathlib import Path

import pytest

from bench.machine import storage_probe as probe
from bench.machine.doctor import compute_findings as machine_findings
from bench.machine.doctor import storage_findings
from bench.machine.doctor.compute_findings import examine_machine
from bench.machine.doctor.examine import (
    EXTRAS,
    examine,
    examine_locked_memory,
    examine_open_files,
    find_extra,
)
from bench.machine.doctor.finding import Finding
from bench.machine.doctor.gds_findings import examine_gds
from bench.machine.doctor.storage_findings import examine_storage
from bench.machine.facts import NoiseFacts
from bench.machine.read_limit import LimitRefusedError
from bench.machine.storage_probe import PROBE_BYTES, probe_storage
from kvio.backends.gds.driver_probe import DriverProbe
from kvio.backends.gds.gds_system import read_gds_system
from kvio.evidence.disk import PhysicalDevice
from kvio.evidence.storage_device import BlockDevice, Storage
from tests.helpers.gds_trees import GPU, bar1, gpu_machine, nvfs_machine, p2pdma_machine, write
from tests.helpers.places import memory_folder, require_disk
from tests.machine.test_facts import CPU_ONLY, H200


def test_a_disk_can_be_proved_cold_and_direct(tmp_path: Path) -> None:
    found = probe_storage(require_disk(tmp_path))
    assert found.residency_known and found.process_counted and found.device_counted
    assert found.left_bytes == 0
    assert (found.buffered.state, found.direct.state) == ("cold", "direct")
    assert list(tmp_path.iterdir()) == []


def test_tmpfs_accepts_o_direct_and_is_warm_all_the_same() -> None:
    with memory_folder() as folder:
        found = probe_storage(folder)
    assert found.left_bytes == PROBE_BYTES
    assert (found.buffered.state, found.direct.state) == ("warm", "warm")
    assert "direct_not_honoured" in found.direct.notices
    assert not found.device_counted


def test_a_dropped_flag_is_found_though_the_open_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_open = os.open
    monkeypatch.setattr(
        probe.os,
        "open",
        lambda path, flags, *rest, **named: whole_open(path, flags & ~os.O_DIRECT, *rest, **named),
    )
    found = probe_storage(require_disk(tmp_path))
    assert found.direct.refused == "open dropped O_DIRECT in silence"
    assert found.buffered.state == "cold"


def test_a_refused_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_BYTES", 1000)  # O_DIRECT takes whole blocks only
    found = probe_storage(require_disk(tmp_path))
    if found.direct.refused is None:
        pytest.skip("this file system reads odd lengths through O_DIRECT")
    assert found.direct.refused == "read: Invalid argument"


def test_a_folder_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe_storage(tmp_path / "nowhere")


def by_topic(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings}


@pytest.mark.slow
def test_everything_is_looked_at_every_fault_has_a_remedy_and_no_extra_is_imported(tmp_path: Path) -> None:
    before = set(sys.modules)
    findings = examine(tmp_path)  # seconds: each backend reads in a process of its own
    assert not {module for module, _, _ in EXTRAS} & (set(sys.modules) - before)
    topics = [finding.topic for finding in findings]
    expected = {"machine", "load", "container", "torch device", "sdpa", "gpu", "storage", "free space"}
    expected |= {"counters", "cold reads", "direct reads", "read limit", "open files", "locked memory"}
    assert expected | {module for module, _, _ in EXTRAS} <= set(topics)
    for finding in findings:
        assert finding.what and "\n" not in finding.what
        assert finding.status == "ok" or finding.remedy, finding
    assert list(tmp_path.iterdir()) == []


def test_an_absent_extra_is_skipped_with_the_command_that_installs_it() -> None:
    assert find_extra("kvcross_absent", "a test", "pip install 'kvcross[gds]'") == Finding(
        "kvcross_absent", "skipped", "a test: kvcross_absent is not installed", "pip install 'kvcross[gds]'"
    )
    assert find_extra("numpy", "a test", "pip install numpy").status == "ok"


def test_a_disk_is_ready(tmp_path: Path) -> None:
    found = by_topic(list(examine_storage(require_disk(tmp_path))))
    assert {found[topic].status for topic in ("storage", "counters", "cold reads", "direct reads")} == {"ok"}
    assert str(tmp_path) in found["storage"].what


def test_on_tmpfs_nothing_is_cold_and_the_doctor_says_why() -> None:
    with memory_folder() as folder:
        found = by_topic(list(examine_storage(folder)))
    assert found["storage"].status == "warning"
    assert "nothing there is ever cold" in found["storage"].what
    assert found["cold reads"].status == "skipped"
    assert "O_DIRECT" in found["direct reads"].what
    assert found["read limit"].status == "skipped"
    assert found["counters"].status == "warning"


def test_a_missing_folder_is_missing_with_the_command_that_makes_it(tmp_path: Path) -> None:
    assert list(examine_storage(tmp_path / "kv")) == [
        Finding("storage", "missing", f"{tmp_path}/kv is not a folder", f"mkdir -p {tmp_path}/kv")
    ]


def test_a_folder_that_cannot_be_written_is_missing() -> None:
    last = list(examine_storage(Path("/proc/self")))[-1]
    assert (last.topic, last.status) == ("storage", "missing")
    assert last.what.startswith("/proc/self cannot be written: ")


def test_a_refused_limit_gives_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, bytes_per_s: float) -> None:
        raise LimitRefusedError("the kernel offers neither")

    monkeypatch.setattr(storage_findings, "ReadThrottle", refuse)
    finding = by_topic(list(examine_storage(tmp_path)))["read limit"]
    assert (finding.status, finding.what) == ("skipped", "the kernel offers neither")


def test_little_space_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_findings, "MIN_FREE_BYTES", 1 << 62)
    assert by_topic(list(examine_storage(tmp_path)))["free space"].status == "warning"


@pytest.mark.parametrize(
    ("isa", "status"), [(("amx_bf16",), "ok"), (("avx512_bf16",), "ok"), (("avx2",), "warning")]
)
def test_bfloat16_without_hardware_is_a_warning(
    isa: tuple[str, ...], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_findings.torch.cuda, "is_available", lambda: False)
    found = by_topic(list(examine_machine(CPU_ONLY.model_copy(update={"isa": isa}))))
    assert found["bfloat16"].status == status


@pytest.mark.parametrize(
    ("busy", "steal", "status"),
    [(0.05, 0.0, "ok"), (0.05, None, "ok"), (0.9, 0.0, "warning"), (0.05, 0.1, "warning")],
)
def test_a_busy_or_robbed_machine_is_a_warning(busy: float, steal: float | None, status: str) -> None:
    noise = NoiseFacts(busy_share=busy, steal_share=steal, load_average=1.0)
    found = by_topic(list(examine_machine(CPU_ONLY.model_copy(update={"noise": noise}))))
    assert found["load"].status == status


def test_a_gpu_without_udev_and_without_a_torch_that_can_use_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_findings.torch.cuda, "is_available", lambda: False)
    hot = H200.model_copy(update={"throttle_reasons": ("hardware_thermal",)})
    facts = CPU_ONLY.model_copy(update={"gpus": (hot,), "container": "docker", "governor": "powersave"})
    findings = list(examine_machine(facts))
    found = by_topic(findings)
    assert found["container"].remedy == "docker run -v /run/udev:/run/udev:ro"
    assert found["governor"].status == "warning"
    gpus = [finding.what for finding in findings if finding.topic == "gpu"]
    assert gpus == [
        "this torch cannot use the GPU",
        "NVIDIA H200, 151 GB, driver 580.95.05, slowed by hardware_thermal",
    ]


def test_low_limits_are_warnings_with_the_command_that_lifts_them() -> None:
    assert examine_open_files(1024) == Finding("open files", "warning", "1024 at once", "ulimit -n 4096")
    assert examine_open_files(resource.RLIM_INFINITY) == Finding("open files", "ok", "unlimited")
    assert examine_locked_memory(8 << 20) == Finding(
        "locked memory", "warning", "8.39 MB", "ulimit -l unlimited"
    )
    assert examine_locked_memory(resource.RLIM_INFINITY) == Finding("locked memory", "ok", "unlimited")


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
