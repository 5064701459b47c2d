"""The recompute arm against the machine's own matrix rate: same dtype, same shapes, in pairs."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.record.sample import Case
from tests.perf.devices import has_bfloat16, open_bench
from tests.perf.pairs import measure_ratios, write_ratio

NUM_PAIRS = 8


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("tokens", [512, 2048])
def test_prefill_of_qwen3_8b_layers_against_gemm(
    benchmark: BenchmarkFixture, dtype: str, tokens: int
) -> None:
    """Ratio of rates: (flops/s of the whole prefill) / (flops/s of its matrices alone)."""
    if dtype == "bfloat16" and not has_bfloat16():
        pytest.skip("this device has no hardware for bfloat16")
    bench = open_bench("qwen3-8b", dtype, tokens=tokens, layers="fit")
    recompute = bench.recompute_arm(bench.prefill(tokens), seed=0)
    gemm = bench.gemm_arm(seed=0)
    prefill, product = Case("recompute", "recompute", tokens), Case("gemm", "gemm", tokens)

    def prefill_s_per_flop() -> float:
        outcome = recompute.run(prefill)
        assert outcome.flops is not None
        return outcome.seconds / outcome.flops

    def product_s_per_flop() -> float:
        outcome = gemm.run(product)
        assert outcome.flops_per_s is not None
        return 1.0 / outcome.flops_per_s

    prefill_s_per_flop()
    product_s_per_flop()
    ratio, pairs = benchmark.pedantic(
        lambda: measure_ratios(prefill_s_per_flop, product_s_per_flop, num_pairs=NUM_PAIRS),
        rounds=1,
        iterations=1,
    )
    benchmark.extra_info.update(ratio=ratio.value, low=ratio.low, high=ratio.high)
    write_ratio(f"recompute-qwen3-8b-{dtype}-{tokens}-against-gemm", ratio, pairs, tokens=tokens, dtype=dtype)
