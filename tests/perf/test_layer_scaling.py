"""Scaling a few layers to the real depth against the whole model, in pairs: how far off is it?"""

import time
from random import Random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.arms.model.depth_scaling import plan_depths, time_depths
from bench.arms.prefill import draw_tokens
from tests.perf.devices import has_bfloat16, open_bench
from tests.perf.pairs import measure_ratios, write_ratio

NUM_PAIRS = 7


@pytest.mark.parametrize("model", ["qwen3-0.6b", "qwen3-1.7b"])
@pytest.mark.parametrize("tokens", [512, 2048, 4096])
def test_scaled_layers_against_the_whole_model(benchmark: BenchmarkFixture, model: str, tokens: int) -> None:
    dtype = "bfloat16" if has_bfloat16() else "float32"
    bench = open_bench(model, dtype, tokens=tokens, layers="all")
    prefill = bench.prefill(tokens)
    ids = draw_tokens(bench.built, tokens, seed=0)
    whole, scaled = plan_depths(bench.built), plan_depths(bench.built, scaled=True)
    chance = Random(0)

    def time_once() -> float:
        began_s = time.monotonic()
        prefill.forward(ids)
        return time.monotonic() - began_s

    time_once()
    ratio, pairs = benchmark.pedantic(
        lambda: measure_ratios(
            lambda: time_depths(bench.built, whole, time_once=time_once, random=chance).seconds,
            lambda: time_depths(bench.built, scaled, time_once=time_once, random=chance).seconds,
            num_pairs=NUM_PAIRS,
        ),
        rounds=1,
        iterations=1,
    )
    benchmark.extra_info.update(ratio=ratio.value, low=ratio.low, high=ratio.high)
    write_ratio(
        f"layer-scaling-{model}-{dtype}-{tokens}",
        ratio,
        pairs,
        tokens=tokens,
        dtype=dtype,
        measured_layers=scaled.measured_layers,
        total_layers=scaled.total_layers,
    )
