"""Words of published rows that say load, a part of a prefix, or doubt."""

import pytest

from bench.predict.rowdoubts import find_doubts


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
