"""What the doctor says: every line has a status, and every fault a remedy."""

import resource
import sys
from pathlib import Path

import pytest

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
from bench.machine.doctor.storage_findings import examine_storage
from bench.machine.facts import NoiseFacts
from bench.machine.read_limit import LimitRefusedError
from tests.places import memory_folder, require_disk
from tests.test_machine import CPU_ONLY, H200


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
    assert found["direct reads"].what.startswith(
        "a probing read was warm: O_DIRECT was asked for and accepted"
    )
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

    monkeypatch.setattr(storage_findings, "ReadLimit", refuse)
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
