"""Rates that the catalogues give by name: sets of drives, kernels of the user, links that nobody measured."""

from pathlib import Path

import pytest

from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import resolve_model
from bench.predict.machine_spec import Setting, build_model
from bench.predict.rates import LINK_SHARE, find_compute, find_link, find_storage_rate

NEW = '[gpus.new]\nname = "New"\nbf16_flops_per_s = 1e15\nlink = "pcie5-x16"\n'
KERNEL = "source = 'lab'\ngemm_low = 5e14\ngemm_high = 6e14\n"


def _with(tmp_path: Path, text: str) -> Devices:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return read_devices(file)


@pytest.mark.parametrize(
    ("name", "label", "rate"),
    [
        ("4x Solidigm D7-PS1010", "4x Solidigm D7-PS1010", 25.9e9),
        ("d7-ps1010-x4", "4x Solidigm D7-PS1010", 25.9e9),
        ("4x d7-ps1010", "4x Solidigm D7-PS1010", 25.9e9),
        ("4 x D7-PS1010", "4x Solidigm D7-PS1010", 25.9e9),
        ("2x d7-ps1010", "2x Solidigm D7-PS1010", 29e9),
        ("1x pm9a3", "Samsung PM9A3", 6e9),
        ("4x pm9a3", "4x Samsung PM9A3", 24e9),
        ("2x d7-ps1010-x4", "2x 4x Solidigm D7-PS1010", 51.8e9),
    ],
)
def test_a_set_that_was_measured_goes_before_that_many_of_one_drive(
    name: str, label: str, rate: float
) -> None:
    found, spread, _ = find_storage_rate(read_devices(), name)
    assert (found, spread.value) == (label, rate)


def test_no_drives_hold_nothing() -> None:
    with pytest.raises(CatalogError, match="0 drives hold nothing"):
        find_storage_rate(read_devices(), "0x pm9a3")


def test_kernels_of_a_gpu_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"kernels\.lost: there is no \[gpus\.lost\]"):
        _with(tmp_path, f"[kernels.lost]\n{KERNEL}attention = {{ '1024' = 1e14 }}\n")


def test_kernels_whose_range_falls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="gemm_low must not be above gemm_high"):
        _with(
            tmp_path,
            f"{NEW}[kernels.new]\nsource = 'lab'\ngemm_low = 2\ngemm_high = 1\nattention = {{ '1024' = 1 }}\n",
        )


@pytest.mark.parametrize("attention", ["{ '1024' = 1e14, '16384' = 4e14 }", "{ '777' = 1e14 }"])
def test_a_users_kernels_change_nothing_for_other_gpus(tmp_path: Path, attention: str) -> None:
    devices = _with(tmp_path, f"{NEW}[kernels.new]\n{KERNEL}attention = {attention}\n")
    shipped = read_devices()
    ours, _ = find_compute(devices, devices.find_gpu("RTX 4090"), "bfloat16")
    assert ours == find_compute(shipped, shipped.find_gpu("RTX 4090"), "bfloat16")[0]
    assert list(ours.attention) == [1024, 2048, 4096, 8192, 16_384]
    assert find_compute(devices, devices.find_gpu("new"), "bfloat16")[0].gemm.low == 5e14


def test_all_shipped_kernels_have_the_same_lengths() -> None:
    assert len({tuple(kernel.attention) for kernel in read_devices().kernels.values()}) == 1


@pytest.mark.parametrize(("gpu", "nominal"), [("b300-sxm", 128e9), ("gb200", 64e9)])
def test_a_nominal_host_link_is_discounted_and_said(gpu: str, nominal: float) -> None:
    devices = read_devices()
    link, notices = find_link(devices, devices.find_gpu(gpu))
    assert link is not None
    assert link.value == LINK_SHARE * nominal
    assert len(notices) == 1
    assert notices[0].endswith("0.84 of its nominal rate, unmeasured")


@pytest.mark.parametrize("name", ["float8", "fp8_e4m3", "FP8", "float8_e4m3fn"])
def test_float8_has_several_names_and_one_rate(name: str) -> None:
    devices = read_devices()
    gpu = devices.find_gpu("H100")
    assert find_compute(devices, gpu, name) == find_compute(devices, gpu, "fp8")
    model = build_model(resolve_model("llama-3.1-8b"), Setting("H100", dtype=name, bytes_per_s=1e9), devices)
    assert model.weight_bytes == 1.0


def test_memory_that_is_unknown_is_said_since_nothing_was_checked(tmp_path: Path) -> None:
    devices = _with(tmp_path, NEW)
    model = build_model(resolve_model("llama-3.1-70b"), Setting("new", bytes_per_s=1e9), devices)
    assert "the memory of New is unknown: whether the weights fit was not checked" in model.notices
    known = build_model(resolve_model("llama-3.1-8b"), Setting("H100", bytes_per_s=1e9), devices)
    assert not any("memory" in notice for notice in known.notices)


def test_an_unverified_memory_is_said_and_a40_has_its_own() -> None:
    devices = read_devices()
    small = build_model(resolve_model("llama-3.2-1b"), Setting("T4", bytes_per_s=1e9), devices)
    assert any(notice.startswith("t4: memory_bytes is unverified: 1.6e+10") for notice in small.notices)
    with pytest.raises(CatalogError, match="do not fit into its 48 GB"):
        build_model(resolve_model("llama-3.1-70b"), Setting("A40", bytes_per_s=1e9), devices)
