"""Ratios from interleaved pairs: the only comparison that a noisy machine allows."""

import json
import random
from collections.abc import Callable
from pathlib import Path

from bench.estimate.intervals import summarise_positive
from bench.estimate.results import Estimate
from bench.record.atomic_write import write_text_safely

PERF_RESULTS = Path(__file__).parents[2] / "results" / "perf"


def measure_ratios(
    ours_s: Callable[[], float], theirs_s: Callable[[], float], *, num_pairs: int, seed: int = 0
) -> tuple[Estimate, list[tuple[float, float]]]:
    """Median of theirs/ours (above 1 ours is faster) with its 95 % interval, and the seconds of each pair.

    The two of a pair follow each other in random order; each function gives its own seconds.
    """
    chance = random.Random(seed)
    pairs = []
    for _ in range(num_pairs):
        if chance.random() < 0.5:
            mine_s, other_s = ours_s(), theirs_s()
        else:
            other_s, mine_s = theirs_s(), ours_s()
        pairs.append((mine_s, other_s))
    ratio = summarise_positive([other_s / mine_s for mine_s, other_s in pairs])
    assert ratio is not None
    return ratio, pairs


def write_ratio(name: str, ratio: Estimate, pairs: list[tuple[float, float]], **conditions: object) -> None:
    """Keep a comparison in results/perf, with all its pairs."""
    PERF_RESULTS.mkdir(parents=True, exist_ok=True)
    content = {
        "name": name,
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "pairs_s": pairs,
        **conditions,
    }
    write_text_safely(PERF_RESULTS / f"{name}.json", json.dumps(content, indent=1) + "\n")
    print(f"\n{name}: {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] over {len(pairs)} pairs")
