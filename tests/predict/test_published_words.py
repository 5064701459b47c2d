"""Words of published rows that say load, a part of a prefix, or doubt."""

import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.fields import CatalogError
from bench.predict.rowdoubts import find_doubts
from bench.predict.rownames import find_model, named_weights
from bench.predict.rowtier import RowTier, drive_name, format_unstated, read_tier


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("batch size of 8", "batch size of 8"),
        ("batch_size=8", "batch_size=8"),
        ("batch-size 8", "batch-size 8"),
        ("bs 8", "bs 8"),
        ("bs=16", "bs=16"),
        ("8 req/s", "req/s"),
        ("8 requests per second", "requests per second"),
        ("2 rps", "rps"),
        ("0.5 QPS", "QPS"),
        ("concurrency of 16", "concurrency of 16"),
        ("max_concurrency = 16", "concurrency = 16"),
        ("16-way concurrency", "16-way concurrency"),
        ("11 concurrent requests", "11 concurrent"),
        ("in production", "production"),
    ],
)
def test_several_requests_at_once_are_load(words: str, found: str) -> None:
    (said,) = find_doubts(words)
    assert said.startswith(f"measured under load ({found})")


@pytest.mark.parametrize(
    "words",
    [
        "batch size of 1",
        "batch_size=1",
        "bs 1",
        "concurrency of 1",
        "concurrency: 1",
        "1 concurrent request",
        "vLLM production-stack",
        "idle machine, not under load",
        "fio bs=64k",
        "fio bs=1 MiB",
        "mean of 50 prompts",
        "100% hit",
        "hit rate: 100 %",
        "0% hits",
        "reuse 100.0%",
    ],
)
def test_one_request_is_no_load_and_all_or_nothing_no_part(words: str) -> None:
    assert list(find_doubts(words)) == []


@pytest.mark.parametrize("words", ["50% hit", "hit rate: 99.5 %", "reuse 10%", "hit ratio 1100%"])
def test_a_share_that_is_neither_all_nor_nothing_is_a_part(words: str) -> None:
    (said,) = find_doubts(words)
    assert said.startswith("only a part of the prefix was reused (")


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


@pytest.mark.parametrize(
    ("words", "bytes_per_s"),
    [
        ("NVMe 4.8 GB/s", 4.8e9),
        ("NVMe Crucial P3 (1.65 GB/s measured)", 1.65e9),
        ("500 MB/s", 500e6),
        ("3 GiB/s", 3 * 2**30),
        ("NVMe, 200MiB/s", 200 * 2**20),
        ("NVMe at 2 GBps", 2e9),
        ("14 GB/s spec, 5.2 GB/s measured", 5.2e9),
        ("5.2 GB/s measured (14 GB/s by its data sheet)", 5.2e9),
        ("NVMe on PCIe 5.0 x4, 12 GB/s", 12e9),
        ("CPU DRAM 20 GB/s", 20e9),
        ("NVMe-oF 100 Gb/s, 9.2 GB/s measured", 9.2e9),
        ("NVMe 48 Gb/s (6 GB/s)", 6e9),
    ],
)
def test_one_plain_rate_is_taken(words: str, bytes_per_s: float) -> None:
    assert read_tier(words, None) == RowTier(bytes_per_s)


@pytest.mark.parametrize("words", ["NVMe 48 Gb/s", "48 Gbps", "NVMe, 48000 Mbit/s", "48 Gbits/s measured"])
def test_a_rate_in_bits_is_an_eighth_in_bytes(words: str) -> None:
    assert read_tier(words, None) == RowTier(6e9, in_bits=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("NVMe 48 gb/s", "'NVMe 48 gb/s' may be in bits or in bytes: give what was reached in load_bw_"),
        ("48 gbps", "may be in bits or in bytes"),
        ("S3 over 25 Gb/s", "is the line rate of a link: give what was reached in load_bw_"),
        ("NVMe", "the bandwidth of 'NVMe' is not stated"),
        ("", "the bandwidth of 'the storage' is not stated"),
    ],
)
def test_a_tier_without_a_rate_says_what_is_missing(words: str, says: str) -> None:
    assert read_tier(words, None) == RowTier()
    assert says in format_unstated(words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("4x NVMe, 48 Gb/s", "'4x'"),
        ("40-48 Gb/s", "'40-48 Gb/s'"),
        ("4x NVMe, 7 GB/s each", "'each'|'4x'"),
        ("4 x NVMe, 7 GB/s", "'4 x'"),
        ("NVMe 7 GB/s x 4", "'x 4'"),
        ("8 drives, 7 GB/s", "'8 drives'"),
        ("7 GB/s per drive", "'per'"),
        ("5-7 GB/s", "'5-7 GB/s'"),
        ("5 – 7 GB/s", "'5 – 7 GB/s'"),
        ("5 to 7 GB/s", "'5 to 7 GB/s'"),
        ("5 GB/s to 7 GB/s", "several rates"),
        ("<5 GB/s", "'<'"),
        ("up to 5 GB/s", "'up to'"),
        ("under 5 GB/s", "'under 5 GB/s'"),
        ("5 GB/s or more", "'5 GB/s or more'"),
        ("~5 GB/s", "'~'"),
        ("5 ± 1 GB/s", "'±'"),
        ("12,5 GB/s", "',5 GB/s'"),
        ("7 GB/s read, 3 GB/s write", "several rates"),
        ("14 GB/s spec 5.2 GB/s measured", "several rates"),
        ("14 GB/s spec", "by its data sheet"),
        ("0 GB/s", "'0 GB/s'"),
        ("9" * 100_000 + " GB/s", "999 GB/s"),
    ],
    ids=lambda words: words[:20],
)
def test_a_rate_that_is_not_certain_is_none_and_says_why(words: str, says: str) -> None:
    found = read_tier(words, None)
    assert (found.bytes_per_s, found.in_memory) == (None, False)
    assert any(part in found.doubt for part in says.split("|"))
    assert found.doubt.endswith("give it in load_bw_gbps_decimal")


@pytest.mark.parametrize(
    "words",
    [
        "CPU DRAM, PCIe5",
        "DRAM",
        "CPU memory",
        "host memory",
        "host RAM",
        "system memory",
        "pinned host memory",
    ],
)
def test_the_memory_of_the_host_has_many_names(words: str) -> None:
    assert read_tier(words, None) == RowTier(in_memory=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("DRAM-less NVMe 1.65 GB/s", "-less"),
        ("DRAM + SSD", "+"),
        ("DRAM/SSD", "/"),
        ("DRAM and disk", "disk"),
        ("remote DRAM over RDMA 25 GB/s", "remote"),
        ("CPU memory of another node", "another"),
        ("GPU DRAM", "GPU DRAM"),
    ],
)
def test_memory_beside_something_else_is_not_that_of_the_host(words: str, says: str) -> None:
    found = read_tier(words, None)
    assert (found.bytes_per_s, found.in_memory) == (None, False)
    assert f"is not the memory of the host alone ({says!r})" in found.doubt


@pytest.mark.parametrize("words", ["4x NVMe, 7 GB/s each", "CPU DRAM", "DRAM + SSD", "12,5 GB/s", "NVMe", ""])
def test_the_column_goes_before_all_words(words: str) -> None:
    assert read_tier(words, 12.5) == RowTier(12.5e9)


@pytest.mark.parametrize("words", ["NVMe", "", "Ceph RGW S3 over network", "200 Gb/s Ethernet"])
def test_words_without_a_rate_that_was_reached_say_nothing(words: str) -> None:
    assert read_tier(words, None) == RowTier()


def test_the_kind_of_a_drive_is_no_part_of_its_name() -> None:
    assert [drive_name(words) for words in ("NVMe PM9A3", "PM9A3 SSD", "NVMe")] == ["PM9A3", "PM9A3", ""]
