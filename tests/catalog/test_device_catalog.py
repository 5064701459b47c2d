"""The catalogues of GPUs, drives, links and kernel rates."""

import tomllib
from pathlib import Path

import pytest

from bench.catalog.devices.datasheet import Figure, pick_figure
from bench.catalog.devices.device_catalog import SHIPPED, TABLES, read_devices
from bench.catalog.models.fields import CatalogError


def test_every_shipped_figure_names_a_source_that_its_file_lists() -> None:
    for name in SHIPPED:
        tables = tomllib.loads((TABLES / name).read_text())
        sources = tables.pop("sources")
        cited = set()
        for entry in (entry for section in tables.values() for entry in section.values()):
            cited |= {entry["source"]} if "source" in entry else set()
            for value in entry.values():
                for figure in value if isinstance(value, list) else [value]:
                    cited |= {figure["source"]} if isinstance(figure, dict) and "value" in figure else set()
        assert cited == set(sources), name


def test_the_h100_has_its_dense_peaks_and_a_pcie_5_link() -> None:
    gpu = read_devices().find_gpu("NVIDIA H100 80GB HBM3")
    assert gpu.key == "h100-sxm"
    assert [figure.value for figure in gpu.bf16_flops_per_s] == [989e12]
    assert [figure.value for figure in gpu.fp8_flops_per_s] == [1978e12]
    assert gpu.link == "pcie5-x16"


def test_a_sourced_figure_goes_before_an_unverified_one() -> None:
    figures = (Figure(value=8e12, source="unverified"), Figure(value=7.7e12, source="a data sheet"))
    assert pick_figure(figures) == figures[1]
    assert pick_figure(figures[:1]) == figures[0]
    assert not figures[0].verified


def test_an_unknown_figure_stays_unknown() -> None:
    assert pick_figure(read_devices().find_storage("R6101").read_bytes_per_s) is None


def test_links_have_the_rates_of_their_encoding() -> None:
    links = read_devices().links
    assert links["pcie5-x16"].bytes_per_s[0].value == pytest.approx(32e9 / 8 * 16 * 128 / 130)
    assert links["pcie3-x4"].bytes_per_s[0].value == pytest.approx(8e9 / 8 * 4 * 128 / 130)


def test_kernel_rates_are_of_known_gpus_and_below_their_peak() -> None:
    devices = read_devices()
    assert set(devices.kernels) <= set(devices.gpus)
    for key, kernel in devices.kernels.items():
        peak = devices.gpus[key].bf16_flops_per_s[0].value
        assert kernel.gemm_low < kernel.gemm_high < peak
        assert max(kernel.attention.values()) < peak


@pytest.mark.parametrize(
    ("name", "says"),
    [("H100SMX", "near it: h100-sxm"), ("zzz", "known: a100-sxm-80gb")],
    ids=["near", "far"],
)
def test_an_unknown_gpu_is_refused_in_one_line_that_names_others(name: str, says: str) -> None:
    with pytest.raises(CatalogError, match=says) as caught:
        read_devices().find_gpu(name)
    assert "\n" not in str(caught.value)


def test_a_network_is_a_storage_and_a_host_link_is_none() -> None:
    devices = read_devices()
    assert devices.find_storage("100 Gb/s Ethernet").key == "ethernet-100g"
    with pytest.raises(CatalogError, match="pcie5-x16"):
        devices.find_storage("pcie5-x16")


def test_a_file_of_the_user_adds_devices_and_vouches_for_bare_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[sources]\nlab = "our lab, 2026"\n[gpus.x1]\nname = "X1"\nbf16_flops_per_s = 1e15\n'
        'memory_bytes_per_s = { value = 2e12, source = "lab" }\nlink = "pcie5-x16"\n'
        '[ssds.pm9a3]\nname = "our PM9A3"\nmeasured_read_bytes_per_s = 5e9\n'
    )
    devices = read_devices(file)
    assert devices.find_gpu("x1").bf16_flops_per_s == (Figure(value=1e15, source="mine.toml"),)
    assert devices.find_gpu("X1").memory_bytes_per_s[0].source == "our lab, 2026"
    assert devices.find_storage("pm9a3").name == "our PM9A3"
    assert "h100-sxm" in devices.gpus


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gpus.x]\nbf16_flops_per_s = -1\n", "gpus.x: field bf16_flops_per_s: -1 is not above 0"),
        (
            "[gpus.x]\nbf16_tflops = 3\n",
            "gpus.x: field bf16_tflops: there is no such field; allowed: aliases",
        ),
        ('[gpus.x]\nlink = "pcie9"\n', "'pcie9' is in no catalogue of links"),
        ("[gpu.x]\n", "table \\[gpu\\] is none of gpus"),
        ("gpus = 3\n", "\\[gpus\\] must hold tables"),
        ("[gpus", "not valid TOML"),
        ('[gpus.x]\nmemory_bytes = {value=2, low=3, source="s"}\n', "low, value and high must rise"),
        (
            '[gpus.x]\nmemory_bytes = {value=2, high=inf, source="s"}\n',
            "field memory_bytes \\(high\\): inf is not finite",
        ),
        (
            '[gpus.x]\nmemory_bytes_per_s = "fast"\n',
            "field memory_bytes_per_s: 'fast' is not a number such as",
        ),
        ("[gpus.x]\nname = 3\n", "gpus.x: field name: 3 is not a text in quotes"),
        (
            "[gpus.x]\nlink_bytes_per_s = { value = 2, high = -1 }\n",
            "field link_bytes_per_s \\(high\\): -1 is not above 0",
        ),
        ("[ssds.x]\nnum_drives = 1.5\n", "field num_drives: 1.5 is not a whole number"),
        ("[kernels.x]\ngemm_low=1\ngemm_high=2\nsource='a'\nattention={}\n", "field attention"),
    ],
    ids=[
        "negative",
        "unknown-field",
        "unknown-link",
        "unknown-table",
        "no-table",
        "broken",
        "low-above",
        "high-infinite",
        "no-figure",
        "no-text",
        "negative-bound",
        "no-whole-number",
        "empty-kernel",
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(text)
    with pytest.raises(CatalogError, match=says):
        read_devices(file)


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"none\.toml: No such file"):
        read_devices(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "h100-sxm"),
        ("H100 SXM5", "h100-sxm"),
        ("H100-SXM5-80GB", "h100-sxm"),
        ("H100-80GB-HBM3", "h100-sxm"),
        ("NVIDIA H100 SXM5 80 GB", "h100-sxm"),
        ("NVIDIA H100 PCIe 80GB", "h100-pcie"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-PCIE-80GB", "a100-pcie-80gb"),
        ("H200 141GB", "h200-sxm"),
        ("NVIDIA L40S 48GB", "l40s"),
        ("H100 94 GB", "h100-94gb"),
        ("Tesla T4", "t4"),
    ],
)
def test_a_gpu_is_found_by_what_its_name_can_only_mean(name: str, key: str) -> None:
    assert read_devices().find_gpu(name).key == key


@pytest.mark.parametrize(
    "name",
    [
        "A100-SXM4-40GB",
        "A100 40GB",
        "H100 NVL 94GB",
        "H100 80GB HBM2e",
        "GH200",
        "H100 SXM5 96GB",
        "NVIDIA GPU",
        "SXM5",
        "H100 " + "9" * 9000 + "GB",
    ],
    ids=lambda name: name[:20],
)
def test_a_part_that_differs_is_not_taken_for_another(name: str) -> None:
    with pytest.raises(CatalogError, match="is in no catalogue"):
        read_devices().find_gpu(name)
