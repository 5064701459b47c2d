"""Scaling a few layers to the real depth against the whole model, in pairs: how far off is it?"""

import time
from random import Random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.arms.depth import plan_depths, time_depths
from bench.arms.prefill import draw_tokens
from bench.measure.checks import SLOW_DTYPE_RATIO, compare_rates
from bench.measure.plan import Plan
from bench.measure.setup import work_out
from bench.measure.workbench import Workbench, open_workbench
from tests.perf.pairs import measure_ratios, write_ratio

NUM_PAIRS = 7


def _open(model: str, dtype: str, tokens: int) -> Workbench:
    plan = Plan.model_validate({"model": model, "dtype": dtype, "layers": "all"})
    return open_workbench(work_out(plan), longest=tokens, now_s=time.monotonic, seed=0)


def _fast_dtype() -> str:
    """bfloat16 where the device has hardware for it, else float32."""
    rates = compare_rates(_open("qwen3-0.6b", "bfloat16", 64))
    return "bfloat16" if rates["bfloat16"] >= SLOW_DTYPE_RATIO * rates["float32"] else "float32"


@pytest.mark.parametrize("model", ["qwen3-0.6b", "qwen3-1.7b"])
@pytest.mark.parametrize("tokens", [512, 2048, 4096])
def test_scaled_layers_against_the_whole_model(benchmark: BenchmarkFixture, model: str, tokens: int) -> None:
    dtype = _fast_dtype()
    bench = _open(model, dtype, tokens)
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
