"""Real sweeps of one case, two by two, one right after the other: do their intervals overlap?

The case crosses on a plain disk, within half a minute: two layers that are hardly more than attention with
many heads, so that recompute is cheap beside the KV it makes, and chunks read by one thread as SGLang does.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from bench.estimate.analysis import analyse
from bench.estimate.results import SweetSpot
from bench.record.atomic_write import write_text_safely
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from tests.perf.pairs import PERF_RESULTS

NUM_PAIRS = 10
MIN_OVERLAPS = 9
BUDGET = "30s"
LAYOUT = "sglang-layer-first"
CHUNK_TOKENS = 16  # lengths well below the crossing can be measured, too
SHAPE = {
    "model_type": "qwen3",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def _sweep(config: Path, results: Path, seed: int) -> SweetSpot:
    """C* of one sweep by the command line."""
    settings = [
        "--dtype",
        "float32",
        "--layout",
        LAYOUT,
        "--chunk-tokens",
        str(CHUNK_TOKENS),
        "--budget",
        BUDGET,
        "--seed",
        str(seed),
        "--layers",
        "all",
    ]
    finished = subprocess.run(
        [sys.executable, "-m", "bench", "sweep", str(config), *settings, "--results", str(results)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert finished.returncode in {0, 3}, finished.stderr
    folder = Path(finished.stdout.strip().splitlines()[-1])
    analysis = analyse(read_run(folder), read_samples(folder)[0])
    return next(spot for spot in analysis.spots if (spot.kind, spot.statistic) == ("whole", "p50"))


def _interval(spot: SweetSpot) -> tuple[float, float] | None:
    if len(spot.crossings) != 1:
        return None
    tokens = spot.crossings[0].tokens
    return None if tokens.low is None or tokens.high is None else (tokens.low, tokens.high)


def _overlap(first: tuple[float, float] | None, second: tuple[float, float] | None) -> bool:
    if first is None or second is None:
        return False
    return max(first[0], second[0]) <= min(first[1], second[1])


def test_intervals_of_two_sweeps_overlap(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    config = tmp_path / "two-layers.json"
    config.write_text(json.dumps(SHAPE))

    def repeat() -> list[dict[str, object]]:
        found = []
        for number in range(NUM_PAIRS):
            began_s = time.monotonic()
            spots = [_sweep(config, tmp_path / "results", seed=2 * number + side) for side in (0, 1)]
            pair = {
                "verdicts": [spot.verdict for spot in spots],
                "crossover_tokens": [
                    spot.crossings[0].tokens.value if spot.crossings else None for spot in spots
                ],
                "intervals_tokens": [_interval(spot) for spot in spots],
                "overlap": _overlap(*(_interval(spot) for spot in spots)),
                "seconds": time.monotonic() - began_s,
            }
            print(f"\npair {number}: {pair}", flush=True)
            found.append(pair)
        return found

    pairs = benchmark.pedantic(repeat, rounds=1, iterations=1)
    overlaps = sum(bool(pair["overlap"]) for pair in pairs)
    benchmark.extra_info.update(overlaps=overlaps, pairs=NUM_PAIRS)
    content = {
        "name": "repeated-sweeps",
        "overlaps": overlaps,
        "num_pairs": NUM_PAIRS,
        "budget": BUDGET,
        "layout": LAYOUT,
        "chunk_tokens": CHUNK_TOKENS,
        "pairs": pairs,
    }
    PERF_RESULTS.mkdir(parents=True, exist_ok=True)
    write_text_safely(PERF_RESULTS / "repeated-sweeps.json", json.dumps(content, indent=1) + "\n")
    assert overlaps >= MIN_OVERLAPS
