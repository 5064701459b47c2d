"""Facts of the machine: what is read, what is never read, and which facts keep results apart."""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy
import psutil
import pynvml
import pytest

from bench.machine import gpus
from bench.machine.facts import (
    MachineFacts,
    NoiseFacts,
    comparable,
    count_usable_cores,
    describe_machine,
    find_container,
    machine_slug,
    read_isa,
)
from bench.machine.gpus import GpuFacts, name_cuda_version, name_throttle_reasons, read_gpus
from bench.machine.software import (
    ENVIRONMENT,
    SoftwareFacts,
    describe_software,
    read_environment,
    read_git,
    read_versions,
)

H200 = GpuFacts(
    name="NVIDIA H200",
    memory_bytes=150_754_820_096,
    driver="580.95.05",
    cuda_driver="13.0",
    pcie_generation=1,
    pcie_width=16,
    pcie_generation_max=5,
    pcie_width_max=16,
    persistence=True,
    mig=False,
    sm_clock_mhz=345,
    max_sm_clock_mhz=1980,
    power_limit_w=700.0,
    throttle_reasons=(),
)
CPU_ONLY = MachineFacts(
    cpu_model="AMD EPYC",
    architecture="x86_64",
    online_cores=2,
    usable_cores=2.0,
    isa=("avx2",),
    memory_bytes=25_276_510_208,
    memory_limit_bytes=None,
    kernel_release="6.18.0",
    in_guest=True,
    container=None,
    devices_managed=False,
    governor=None,
    numa_nodes=1,
    gpus=(),
    noise=NoiseFacts(busy_share=0.1, steal_share=0.0, load_average=0.5),
)


def put(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n")


def test_facts_of_this_machine_survive_json_and_name_no_host() -> None:
    facts = describe_machine()
    assert MachineFacts.model_validate_json(facts.model_dump_json()) == facts
    assert facts.memory_bytes == psutil.virtual_memory().total
    assert 0 < facts.usable_cores <= facts.online_cores
    assert 0 <= facts.noise.busy_share <= 1
    words = json.dumps(facts.model_dump(mode="json")).replace('"', " ").replace(",", " ").split()
    assert platform.node() not in words


def test_the_isa_is_read_from_the_flags_of_the_cpu(tmp_path: Path) -> None:
    put(
        tmp_path,
        "proc/cpuinfo",
        "processor : 0\nflags : fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile\n\nflags : x",
    )
    assert read_isa(tmp_path) == ("amx_bf16", "amx_tile", "avx512_bf16", "avx512f", "avx2")
    put(tmp_path, "proc/cpuinfo", "processor : 0\nFeatures : fp asimd bf16 i8mm sve")
    assert read_isa(tmp_path) == ("bf16", "i8mm", "sve")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys/fs/cgroup/a/b/cpu.max": "50000 100000", "proc/self/cgroup": "0::/a/b"}, 0.5),
        ({"sys/fs/cgroup/a/cpu.max": "50000 100000", "proc/self/cgroup": "0::/a/b"}, 0.5),
        (
            {
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "25000",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
                "proc/self/cgroup": "4:cpu,cpuacct:/a",
            },
            0.25,
        ),
    ],
)
def test_a_quota_lowers_the_usable_cores(tmp_path: Path, files: dict[str, str], expected: float) -> None:
    for path, text in files.items():
        put(tmp_path, path, text)
    assert count_usable_cores(tmp_path) == expected


@pytest.mark.parametrize("text", ["max 100000", "-1"])
def test_without_a_quota_affinity_decides(tmp_path: Path, text: str) -> None:
    put(tmp_path, "sys/fs/cgroup/cpu.max", text)
    put(tmp_path, "proc/self/cgroup", "0::/")
    assert count_usable_cores(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/self/cgroup", "0::/kubepods/burstable/pod1", "kubepods"),
        ("proc/self/cgroup", "0::/user.slice", None),
    ],
)
def test_a_container_is_recognised(tmp_path: Path, path: str, text: str, expected: str | None) -> None:
    put(tmp_path, path, text)
    assert find_container(tmp_path) == expected


@pytest.mark.parametrize(
    ("model", "cores", "slug"),
    [
        ("AMD EPYC", 2.0, "amd-epyc-2c"),
        ("AMD EPYC 7763 64-Core Processor", 8.0, "amd-epyc-7763-8c"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", 4.0, "intel-xeon-platinum-8481c-4c"),
        ("Intel(R) Xeon(R) Processor @ 2.10GHz", 1.5, "intel-xeon-1_5c"),
    ],
)
def test_a_cpu_names_its_folder(model: str, cores: float, slug: str) -> None:
    assert machine_slug(CPU_ONLY.model_copy(update={"cpu_model": model, "usable_cores": cores})) == slug


def test_a_gpu_names_the_folder_before_the_cpu_does() -> None:
    assert machine_slug(CPU_ONLY.model_copy(update={"gpus": (H200,)}), H200.name) == "nvidia-h200"
    assert machine_slug(CPU_ONLY.model_copy(update={"gpus": (H200,) * 8}), H200.name) == "nvidia-h200-8x"


def changed(**facts: object) -> list[str]:
    """How a machine differs from CPU_ONLY once both were written and read again."""
    one = json.loads(CPU_ONLY.model_dump_json())
    other = json.loads(CPU_ONLY.model_copy(update=facts).model_dump_json())
    return comparable(one, other)


def test_a_machine_is_itself_before_and_after_json() -> None:
    assert changed() == []
    assert comparable(CPU_ONLY.model_dump(), json.loads(CPU_ONLY.model_dump_json())) == []


def test_the_facts_that_differ_are_named() -> None:
    assert changed(cpu_model="Intel Xeon", usable_cores=4.0) == [
        "cpu_model: AMD EPYC, Intel Xeon",
        "usable_cores: 2, 4",
    ]
    assert changed(isa=("avx2", "amx_bf16")) == ["isa: [avx2], [avx2, amx_bf16]"]
    assert changed(memory_limit_bytes=8 * 2**30) == ["memory (GiB): 24, 8"]


def test_a_gpu_tells_machines_apart_and_its_momentary_clock_does_not() -> None:
    assert len(changed(gpus=(H200,))) == 1
    with_gpu = CPU_ONLY.model_copy(update={"gpus": (H200,)}).model_dump()
    busy = H200.model_copy(update={"sm_clock_mhz": 1980, "pcie_generation": 5})
    assert comparable(with_gpu, CPU_ONLY.model_copy(update={"gpus": (busy,)}).model_dump()) == []


def test_a_reboot_and_other_load_do_not_make_another_machine() -> None:
    noise = NoiseFacts(busy_share=0.9, steal_share=0.3, load_average=8.0)
    assert changed(memory_bytes=CPU_ONLY.memory_bytes + 2**20, noise=noise, kernel_release="6.19.0") == []


class FakeDriver:
    """Answers like an H200 what it knows, refuses the rest; only names that the real library has."""

    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM

    def __init__(self, **answers: object) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Callable[..., object]:
        assert hasattr(pynvml, name), name

        def answer(*arguments: object) -> object:
            if name not in self.answers:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return self.answers[name]

        return answer


def test_what_the_driver_does_not_say_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver(
        nvmlInit=None,
        nvmlShutdown=None,
        nvmlDeviceGetCount=1,
        nvmlDeviceGetHandleByIndex=object(),
        nvmlDeviceGetName="NVIDIA H200",
        nvmlDeviceGetMemoryInfo=SimpleNamespace(total=150_754_820_096),
        nvmlDeviceGetMigMode=(0, 0),
        nvmlDeviceGetPowerManagementLimit=700_000,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x1 | 0x4,
        nvmlSystemGetCudaDriverVersion_v2=12040,
    )
    monkeypatch.setattr(gpus, "NVML", driver)
    (found,) = read_gpus()
    assert (found.name, found.memory_bytes, found.mig) == ("NVIDIA H200", 150_754_820_096, False)
    assert (found.power_limit_w, found.throttle_reasons, found.cuda_driver) == (700.0, ("power_cap",), "12.4")
    assert (found.driver, found.pcie_generation, found.persistence, found.sm_clock_mhz) == (None,) * 4


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "NVML", FakeDriver())
    assert read_gpus() == ()


@pytest.mark.gpu
def test_the_gpus_of_this_machine_are_read() -> None:
    found = read_gpus()
    if not found:
        pytest.skip("no NVIDIA driver here")
    assert all(gpu.name and gpu.driver and gpu.pcie_width_max for gpu in found)


def test_throttle_reasons_and_versions_have_names() -> None:
    assert name_throttle_reasons(0x1) == ()
    assert name_throttle_reasons(0x44) == ("power_cap", "hardware_thermal")
    assert [name_cuda_version(number) for number in (None, 13000, 12080)] == [None, "13.0", "12.8"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("one\n")
    git("add", "code.py")
    git("commit", "-m", "Start")
    return tmp_path


def test_a_clean_checkout_has_its_commit(checkout: Path) -> None:
    facts = read_git(checkout)
    assert facts is not None
    assert len(facts.commit) == 40
    assert not facts.dirty


def test_a_changed_file_makes_it_dirty_and_a_new_result_does_not(checkout: Path) -> None:
    (checkout / "samples.csv").write_text("new\n")
    facts = read_git(checkout)
    assert facts is not None
    assert not facts.dirty
    (checkout / "code.py").write_text("two\n")
    facts = read_git(checkout)
    assert facts is not None
    assert facts.dirty


def test_below_somebody_elses_checkout_there_is_no_commit(checkout: Path) -> None:
    (checkout / "site-packages").mkdir()
    assert read_git(checkout / "site-packages") is None


def test_outside_git_there_is_no_commit(tmp_path: Path) -> None:
    assert read_git(tmp_path) is None


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert read_git(checkout) is None


def test_only_listed_variables_are_read() -> None:
    environment = {
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_TOKEN": "secret",
        "HOME": "/home/a",
        "CUFILE_ENV_PATH_JSON": "/home/a/cufile.json",
        "MKL_SECRET": "secret",
    }
    assert read_environment(environment) == {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0"}


def test_no_listed_variable_holds_a_path_or_a_secret() -> None:
    assert len(ENVIRONMENT) == len(set(ENVIRONMENT))
    for word in ("PATH", "TOKEN", "KEY", "SECRET", "PASS", "USER", "HOST", "HOME", "_DIR_", "PROXY"):
        assert not [name for name in ENVIRONMENT if word in name], word


def test_versions_are_those_installed_and_nothing_else() -> None:
    versions = read_versions()
    assert versions["numpy"] == numpy.__version__
    assert "pytest" not in versions


def test_the_software_of_this_process_survives_json() -> None:
    facts = describe_software()
    assert SoftwareFacts.model_validate_json(facts.model_dump_json()) == facts
    assert set(facts.environment) <= set(ENVIRONMENT) & set(os.environ)
