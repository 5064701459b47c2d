"""Sizes, rates and durations of every verb have their unit, and what a drive is written is told from what counts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import call_bench

TRACE = Path(__file__).parent / "traces" / "mooncake_conversation_400.jsonl"
SIZE = "size --model llama-3.3-70b --throughput 12000 --requests-per-s 20"
WHOLE = f"{SIZE} --input-tokens 8000 --hit-ratio 0.6"
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    def run_command(command: str) -> tuple[int, str, str]:
        finished = call_bench(*command.split(), cwd=Path.cwd())
        return finished.returncode, finished.stdout, finished.stderr

    return run_command


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{SIZE} --trace {TRACE} --capacity 3000", "'3000' is not a size: it has no unit; write 3000B"),
        (f"{WHOLE} --retention 24", "'24' is not a duration: it has no unit; write 24s, 24m or 24h"),
        (f"{WHOLE} --drive-capacity 7.68 --dwpd 1", "'7.68' is not a size: it has no unit"),
        (f"{WHOLE} --drive-capacity 7.68TB --tbw 14", "'14' is not a size: it has no unit"),
        (f"{WHOLE} --drive-capacity 7.68TB --drive-read 12", "'12' is not a rate"),
        ("capacity --model qwen3-8b --dram 64", "'64' is not a size: it has no unit"),
        ("capacity --model qwen3-8b --gpu-memory 80", "'80' is not a size: it has no unit"),
        ("longctx qwen3-8b --bandwidth 10,50", "'10' is not a rate"),
        ("predict --model qwen3-8b --gpu H100 --bandwidth 10", "'10' is not a rate"),
        ("sweep qwen3-8b --budget 180", "'180' is not a duration: it has no unit"),
        ("sweep qwen3-8b --request 4096", "'4096' is not a size: it has no unit"),
        ("sweep qwen3-8b --working-set 8", "'8' is not a size: it has no unit"),
        ("sweep qwen3-8b --limit 100", "'100' is not a rate"),
        (f"reuse {TRACE} --tier gpu=1e6 --tier ssd=1e7:3", "or a rate like 3GB/s"),
        ("reuse --generate users=1,rounds=1,gap=1", "is not a duration such as 500ms or 1s"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bare_number_is_no_size_rate_or_duration_of_any_verb(run: Run, command: str, said: str) -> None:
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_a_rate_in_bits_is_an_eighth_in_bytes(run: Run) -> None:
    predicted = [
        run(f"predict --model qwen3-8b --gpu H100 --bandwidth {rate}") for rate in ("80Gbps", "10GB/s")
    ]
    assert predicted[0] == predicted[1]
    assert predicted[0][0] == 0


def _drives(run: Run, amplification: str) -> dict[str, dict[str, object]]:
    command = f"{WHOLE} --drive-capacity 7.68TB --dwpd 1 --write-amplification {amplification} --json"
    return {row["quantity"]: row for row in json.loads(run(command)[1])["drives"]}


def test_what_the_host_writes_is_told_from_what_counts_against_the_rating(run: Run) -> None:
    once, twice = _drives(run, "1"), _drives(run, "2")
    per_day = 20 * 3200 * 327_680 * 86_400 / 7.68e12
    assert once["drives"]["value"] == 236
    assert once["drive writes per day"]["value"] == pytest.approx(per_day / 236)
    assert "counted against the rating" not in once
    assert twice["drives"]["value"] == 472
    assert twice["drive writes per day"]["value"] == pytest.approx(per_day / 472)
    assert "by the host" in str(twice["drive writes per day"]["formula"])
    assert twice["counted against the rating"]["value"] == pytest.approx(2 * per_day / 472)
    assert "write amplification of 2" in str(twice["counted against the rating"]["formula"])
    assert twice["years to the rated writes"]["value"] == pytest.approx(5 / (2 * per_day / 472))
