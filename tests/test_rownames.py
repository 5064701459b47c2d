"""Names of models and GPUs as people publish them."""

import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.fields import CatalogError
from bench.predict.rownames import find_model, named_weights


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
        ("DeepSeek-V3-0324", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3"),
        ("DeepSeek-V3.1-Base", "deepseek-v3"),
        ("DeepSeek-V3.1-Terminus", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen3-4B-Thinking-2507", "qwen3-4b"),
    ],
)
def test_a_tuned_version_is_the_model_that_it_was_tuned_from(name: str, key: str) -> None:
    found = find_model(name)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    ("name", "key", "weights"),
    [
        ("Qwen/Qwen3-8B-FP8", "qwen3-8b", "fp8"),
        ("Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8"),
        ("Qwen3-4B-Thinking-2507-FP8", "qwen3-4b", "fp8"),
        ("Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b", "4 bits"),
        ("Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "4 bits"),
        ("Qwen3-32B-INT4", "qwen3-32b", "4 bits"),
        ("Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "8-bit integers"),
        ("Qwen3-8B", "qwen3-8b", None),
    ],
)
def test_a_name_may_say_what_the_weights_were_converted_to(name: str, key: str, weights: str | None) -> None:
    found = find_model(name)
    assert found is not None
    assert (found.key, named_weights(name)) == (key, weights)


@pytest.mark.parametrize(
    "name",
    [
        "Mixtral-8x7B-Instruct-v0.2",
        "someone/Qwen3-8B-FP8",
        "DeepSeek-V3.2",
        "DeepSeek-R1-0528-Qwen3-8B",
        "Qwen3-8B-Instruct-2507",
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
