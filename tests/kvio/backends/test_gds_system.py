"""Facts of GPUDirect Storage, read from recorded trees."""

import gzip
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from kvio.backends.gds.cufile_counters import read_nvfs_bytes
from kvio.backends.gds.driver_probe import judge, probe_driver, read_steps
from kvio.backends.gds.gds_system import PciGpu, read_cufile_config, read_gds_system, strip_comments
from tests.helpers.gds_trees import (
    GIB,
    GPU,
    NVFS_STATS,
    bar1,
    gpu_machine,
    nvfs_machine,
    p2pdma_machine,
    write,
)


def test_an_empty_tree_has_nothing_and_raises_nothing(tmp_path: Path) -> None:
    system = read_gds_system(tmp_path, {})
    assert not system.has_gpu and not system.modules_listed and not system.udev and not system.wsl
    assert (system.kernel, system.driver, system.nvfs_version) == (None, None, None)
    assert (system.kernel_p2pdma, system.nvme_multipath) == (None, None)
    assert (system.gpus, system.registry, system.config.path) == ((), {}, None)


def test_a_machine_set_up_for_p2pdma(tmp_path: Path) -> None:
    system = read_gds_system(p2pdma_machine(tmp_path), {})
    assert (system.kernel, system.kernel_p2pdma) == ("6.14.0-37-generic", True)
    assert (system.driver, system.driver_open) == ("580.95.05", True)
    assert system.p2pdma_registry and system.nvme_multipath is False
    assert system.gpus == (PciGpu(GPU, 128 * GIB, "identity", 1),)
    assert system.config.path == tmp_path / "etc/cufile.json"
    assert system.config.use_p2pdma and system.config.fault is None
    assert system.udev and system.modules_listed and system.nvfs_version is None


def test_a_machine_with_nvidia_fs(tmp_path: Path) -> None:
    system = read_gds_system(nvfs_machine(tmp_path), {})
    assert (system.nvfs_version, system.nvfs_drivers) == ("2.27", ("nvme", "nvme_rdma"))
    assert system.nvfs_counts and system.nvfs_nodes
    assert not system.config.use_p2pdma and not system.p2pdma_registry


def test_a_plain_gpu_machine(tmp_path: Path) -> None:
    system = read_gds_system(gpu_machine(tmp_path), {})
    assert (system.driver, system.driver_open, system.kernel_p2pdma) == ("535.247.01", False, False)
    assert system.gpus[0].bar1_bytes == 256 * 2**20 and system.gpus[0].iommu == "DMA-FQ"
    assert system.nvme_multipath is True


def test_the_kernel_configuration_tells_where_its_symbols_are_hidden(tmp_path: Path) -> None:
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.8.0\n"})
    config = tmp_path / "proc/config.gz"
    config.write_bytes(gzip.compress(b"CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n"))
    assert read_gds_system(tmp_path, {}).kernel_p2pdma is True
    config.unlink()
    write(tmp_path, {"boot/config-6.8.0": "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n"})
    assert read_gds_system(tmp_path, {}).kernel_p2pdma is False


def test_only_both_registry_settings_make_a_static_bar1(tmp_path: Path) -> None:
    write(tmp_path, {"proc/driver/nvidia/params": 'RegistryDwords: "RMForceStaticBar1=1;ForceP2P=0"\n'})
    system = read_gds_system(tmp_path, {})
    assert system.registry == {"rmforcestaticbar1": "1", "forcep2p": "0"}
    assert not system.p2pdma_registry


def test_other_cards_of_the_vendor_and_other_vendors_are_no_gpus(tmp_path: Path) -> None:
    pci = "sys/bus/pci/devices"
    write(
        tmp_path,
        {
            f"{pci}/0000:00:01.0/vendor": "0x10de\n",
            f"{pci}/0000:00:01.0/class": "0x040300\n",  # its sound card
            f"{pci}/0000:00:02.0/vendor": "0x1002\n",
            f"{pci}/0000:00:02.0/class": "0x030000\n",
            f"{pci}/0000:00:03.0/vendor": "0x10de\n",
            f"{pci}/0000:00:03.0/class": "0x030000\n",
            f"{pci}/0000:00:03.0/resource": bar1(0),
        },
    )
    assert read_gds_system(tmp_path, {}).gpus == (PciGpu("0000:00:03.0", None, None, None),)


def test_wsl_is_told_by_its_kernel(tmp_path: Path) -> None:
    write(tmp_path, {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"})
    assert read_gds_system(tmp_path, {}).wsl


def test_cufile_json_may_have_comments_and_strings_that_look_like_them() -> None:
    assert strip_comments('{"a": "x//y", // z\n "b": "\\"//"}') == '{"a": "x//y", \n "b": "\\"//"}'


@pytest.mark.parametrize(
    ("text", "use_p2pdma", "faulty"),
    [
        ('{"properties": {"use_pci_p2pdma": true}}', True, False),
        ('{"block": {"nvme": {"use_pci_p2pdma": true}}}', True, False),
        ('{"properties": {"use_pci_p2pdma": "true"}}', False, False),
        ('{"properties": 3}', False, False),
        ("[]", False, False),
        ('{"properties": ', False, True),
    ],
)
def test_what_a_cufile_json_asks_for(tmp_path: Path, text: str, use_p2pdma: bool, faulty: bool) -> None:
    write(tmp_path, {"opt/my.json": text})
    config = read_cufile_config(tmp_path, {"CUFILE_ENV_PATH_JSON": "/opt/my.json"})
    assert (config.use_p2pdma, config.fault is not None) == (use_p2pdma, faulty)


def test_the_environment_asks_for_p2pdma_too_and_a_named_file_must_be_there(tmp_path: Path) -> None:
    assert read_cufile_config(tmp_path, {"CUFILE_USE_PCIP2PDMA": "true"}).use_p2pdma
    config = read_cufile_config(tmp_path, {"CUFILE_ENV_PATH_JSON": "/opt/gone.json"})
    assert config.fault == "CUFILE_ENV_PATH_JSON names /opt/gone.json, which is not there"


def test_nvidia_fs_counts_in_whole_mib_and_only_when_told_to(tmp_path: Path) -> None:
    assert read_nvfs_bytes(tmp_path) is None
    assert read_nvfs_bytes(nvfs_machine(tmp_path)) == 4 * GIB
    silent = NVFS_STATS.format(enabled="Disabled", reads="err=0 io_state_err=0")
    write(tmp_path, {"proc/driver/nvidia-fs/stats": silent})
    assert read_nvfs_bytes(tmp_path) is None
    stale = NVFS_STATS.format(enabled="Disabled", reads="n=9 ok=9 err=0 readMiB=9 io_state_err=0")
    write(tmp_path, {"proc/driver/nvidia-fs/stats": stale})
    assert read_nvfs_bytes(tmp_path) is None


LOADED = {"step": "loaded", "version": "1.20"}
SAY = "import json, os, signal, sys, time\ndef say(**said): print(json.dumps(said), flush=True)\n"


def _fake(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", SAY + body)


def test_a_process_that_spins_is_killed_at_the_limit_and_its_last_step_is_told() -> None:
    body = "say(step='loaded', version='1.20')\nsay(step='opening')\nwhile True: pass"
    probe = probe_driver(limit_s=0.5, command=_fake(body))
    assert (probe.outcome, probe.version) == ("hung", "1.20")
    assert probe.what == "cuFile was while opening for 0.5 s and was killed"


def test_a_process_that_is_killed_names_the_signal() -> None:
    body = "say(step='opening')\nos.kill(os.getpid(), signal.SIGSEGV)"
    probe = probe_driver(command=_fake(body))
    assert (probe.outcome, probe.what) == ("died", "killed by SIGSEGV while opening")


def test_a_process_that_ends_early_has_died_whatever_it_printed() -> None:
    probe = probe_driver(command=_fake("print('noise'); sys.exit(3)"))
    assert (probe.outcome, probe.what) == ("died", "exit code 3 while starting")
    assert probe_driver(command=_fake("say(step='opening')")).outcome == "died"


def test_our_own_input_survives_a_driver_that_closes_its_input() -> None:
    body = "os.close(0)\nsay(step='opened', closed_stdin=True, nvfs_version='2.27', supported=['nvme'])"
    before = os.fstat(0)
    probe = probe_driver(command=_fake(body))
    assert os.fstat(0) == before
    assert (probe.outcome, probe.closed_stdin) == ("opened", True)
    assert probe.facts["supported"] == ["nvme"]


def test_the_process_works_in_a_folder_of_its_own_and_its_log_goes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = (
        "open('cufile.log', 'w').close()\n"
        "say(step='refused', reason=os.getcwd() + ' ' + os.environ['CUFILE_LOGFILE_PATH'])"
    )
    folder, log = probe_driver(command=_fake(body)).what.split()
    assert log == f"{folder}/cufile.log"
    assert not Path(folder).exists() and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "returncode", "outcome"),
    [
        ([{"step": "absent", "reason": "no wheel"}], 0, "absent"),
        ([LOADED, {"step": "no context", "reason": "cuInit gives CUresult 3"}], 0, "no context"),
        ([LOADED, {"step": "opening"}, {"step": "refused", "reason": "5006"}], 0, "refused"),
        ([LOADED, {"step": "opening"}, {"step": "opened"}], 0, "opened"),
        ([LOADED, {"step": "opening"}, {"step": "opened"}], -signal.SIGABRT, "died"),
        ([LOADED], 0, "died"),
        ([], None, "hung"),
    ],
)
def test_how_a_process_ended_is_judged_by_its_steps_and_its_code(
    steps: list[dict[str, object]], returncode: int | None, outcome: str
) -> None:
    assert judge(steps, returncode=returncode, limit_s=1.0).outcome == outcome


def test_what_libraries_print_is_no_step() -> None:
    said = b'cuFile: warning\n{"step": "loaded"}\n[1]\n{"step": 3}\n"step"\n\xff\n'
    assert read_steps(said) == [{"step": "loaded"}]
    assert read_steps(json.dumps({"step": "opening"}).encode()) == [{"step": "opening"}]
