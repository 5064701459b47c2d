"""Tiers of published rows: the rate that their words certainly mean, host memory, or the reason for neither."""

import pytest

from bench.predict.rowtier import Tier, drive_name, read_tier, say_unstated


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
    assert read_tier(words, None) == Tier(bytes_per_s)


@pytest.mark.parametrize("words", ["NVMe 48 Gb/s", "48 Gbps", "NVMe, 48000 Mbit/s", "48 Gbits/s measured"])
def test_a_rate_in_bits_is_an_eighth_in_bytes(words: str) -> None:
    assert read_tier(words, None) == Tier(6e9, in_bits=True)


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
    assert read_tier(words, None) == Tier()
    assert says in say_unstated(words)


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
    assert read_tier(words, None) == Tier(in_memory=True)


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
    assert read_tier(words, 12.5) == Tier(12.5e9)


@pytest.mark.parametrize("words", ["NVMe", "", "Ceph RGW S3 over network", "200 Gb/s Ethernet"])
def test_words_without_a_rate_that_was_reached_say_nothing(words: str) -> None:
    assert read_tier(words, None) == Tier()


def test_the_kind_of_a_drive_is_no_part_of_its_name() -> None:
    assert [drive_name(words) for words in ("NVMe PM9A3", "PM9A3 SSD", "NVMe")] == ["PM9A3", "PM9A3", ""]
