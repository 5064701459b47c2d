"""Names of models and GPUs as people publish them."""

import pytest

from bench.analyse.rownames import find_model
from bench.catalog.devices import read_devices
from bench.catalog.fields import CatalogError


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama 3.1 8B Instruct", "llama-3.1-8b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Mistral-7B-v0.3", "mistral-7b"),
        ("gemma-3-12b-pt", "gemma-3-12b"),
        ("DeepSeek-V2-Lite-Chat", "deepseek-v2-lite"),
    ],
)
def test_a_tuned_version_is_the_model_that_it_was_tuned_from(name: str, key: str) -> None:
    found = find_model(name)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "name",
    [
        "Mixtral-8x7B-Instruct-v0.2",
        "Llama-3.1-8B-Instruct-FP8",
        "Qwen2.5-7B-Instruct-1M",
        "Phi-4-mini-instruct",
        "someone/Llama-3.1-8B-Instruct",
        "-instruct",
        "",
    ],
)
def test_another_version_is_another_model(name: str) -> None:
    assert find_model(name) is None


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
