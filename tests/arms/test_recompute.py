import time
from collections.abc import Iterator

import pytest
import torch

from bench.arms.gemm import GemmArm
from bench.arms.model.attention_kernel import observe_attention
from bench.arms.model.build import BuiltModel
from bench.arms.model.fused_norms import speed_up_norms
from bench.arms.model.memory import MemoryShortError
from bench.arms.prefill import FirstTokenStep, Prefill, draw_tokens, prefill_over
from bench.arms.recompute import RecomputeArm
from bench.record.sample import Case
from kvio.loading.blocks import KVBlocks
from tests.helpers.architectures import build_small, layout_of

CPU = torch.device("cpu")


class TickingClock:
    """Every look at it advances the time by the layers that ran since, and one second."""

    def __init__(self, built: BuiltModel) -> None:
        self.now, self.tokens = 0.0, []
        for layer in built.model.model.layers:
            layer.register_forward_hook(self._count)

    def _count(self, layer: object, args: tuple[torch.Tensor, ...], output: object) -> None:
        self.now += 0.5
        self.tokens.append(args[0].shape[1])

    def now_s(self) -> float:
        self.now += 0.5
        return self.now


def set_up(name: str, **options: object) -> tuple[BuiltModel, Prefill, TickingClock]:
    built = build_small(name, **options)
    prefill = prefill_over(built, KVBlocks(layout_of(name, built), 64, CPU))
    return built, prefill, TickingClock(built)


def flops(num_tokens: int, past_tokens: int) -> float:
    return 1000.0 * num_tokens + past_tokens


def test_a_whole_model_is_timed_in_one_forward() -> None:
    _, prefill, clock = set_up("qwen3")
    arm = RecomputeArm(prefill, now_s=clock.now_s, flops=flops)
    case = Case("recompute", "r", 20)
    arm.warm_up(case)
    arm.prepare(case)
    outcome = arm.run(case)
    assert outcome.seconds == 2.5  # 4 layers of 0.5 s, and 0.5 s between two looks at the clock
    assert outcome.flops == 20_000.0
    assert outcome.attention_kernel == "sdpa-flash-cpu"
    assert (outcome.measured_layers, outcome.total_layers, outcome.depth_s) == (4, 4, None)
    assert outcome.first_token_s is None
    assert outcome.notices == ()


def test_a_few_layers_are_scaled_to_the_real_depth() -> None:
    _, prefill, clock = set_up("qwen3", layers=[0, 1])
    outcome = RecomputeArm(prefill, now_s=clock.now_s, flops=flops).run(Case("recompute", "r", 20))
    assert outcome.depth_s == {"0": 0.5, "2": 1.5}
    assert outcome.seconds == 2.5
    assert (outcome.measured_layers, outcome.total_layers) == (2, 4)


def test_a_warm_up_runs_every_depth_once_and_once_more_to_see_its_kernel() -> None:
    _, prefill, clock = set_up("qwen3", layers=[0, 1])
    arm = RecomputeArm(prefill, now_s=clock.now_s, flops=flops)
    arm.warm_up(Case("recompute", "r", 20))
    assert clock.tokens == [20] * 4
    arm.warm_up(Case("recompute", "r", 20))
    assert clock.tokens == [20] * 6


def test_every_clock_runs_until_the_device_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    built, prefill, clock = set_up("qwen3")

    def finish(device: torch.device) -> None:
        clock.now += 8.0

    for module in ("recompute", "prefill", "gemm"):
        monkeypatch.setattr(f"bench.arms.{module}.synchronize", finish)
    recompute = RecomputeArm(prefill, now_s=clock.now_s, flops=flops)
    assert recompute.run(Case("recompute", "r", 20)).seconds == 10.5
    assert FirstTokenStep(prefill, now_s=clock.now_s).time(20) == 10.5
    gemm = GemmArm([(4, 8)], dtype=built.dtype, device=CPU, now_s=clock.now_s)
    assert gemm.run(Case("gemm", "gemm", 20)).seconds == 8.5


def test_layers_of_several_kinds_are_scaled_each_by_its_own_count() -> None:
    _, prefill, clock = set_up("gemma3", layers=[0, 1, 5])
    outcome = RecomputeArm(prefill, now_s=clock.now_s, flops=flops).run(Case("recompute", "r", 20))
    assert outcome.depth_s == {"0": 0.5, "sliding:2": 1.5, "full:1": 1.0}
    assert outcome.seconds == 3.5  # 5 sliding and 1 full


def test_a_prefill_in_chunks_never_runs_more_tokens_at_once() -> None:
    _, prefill, clock = set_up("qwen3", layers=[0])
    arm = RecomputeArm(prefill, now_s=clock.now_s, flops=flops, prefill_chunk=8)
    arm.run(Case("recompute", "r", 20))
    assert clock.tokens == [8, 8, 4]


def test_a_suffix_is_timed_after_its_prefix_without_running_the_prefix() -> None:
    _, prefill, clock = set_up("qwen3", layers=[0])
    arm = RecomputeArm(prefill, now_s=clock.now_s, flops=flops)
    case = Case("recompute", "r", 40, suffix_tokens=16)
    arm.prepare(case)
    outcome = arm.run(case)
    assert clock.tokens == [16]
    assert outcome.flops == 16_040.0
    assert prefill.cache.get_seq_length() == 40
    values = prefill.cache.attending[0].planes[0][:40]
    assert abs(float(values.std()) - 1) < 0.1


def test_the_first_token_step_runs_one_token_and_is_scaled_too() -> None:
    built, prefill, clock = set_up("qwen3", layers=[0, 1])
    prefill.cache.randomize(0)
    assert FirstTokenStep(prefill, now_s=clock.now_s).time(33) == 2.5
    assert set(clock.tokens) == {1}
    assert prefill.cache.get_seq_length() == 32  # the tokens that it attends to besides its own
    tokens = draw_tokens(built, 33, seed=4)
    expected = prefill.forward(tokens)
    logits = FirstTokenStep(prefill, now_s=clock.now_s).logits(tokens)
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "kernel"), [("qwen3", "sdpa-flash-cpu"), ("gpt_oss", "eager"), ("deepseek_v3", "sdpa-math")]
)
def test_the_attention_kernel_is_the_one_that_ran(name: str, kernel: str) -> None:
    _, prefill, clock = set_up(name, layers=[0, 1])
    arm = RecomputeArm(prefill, now_s=clock.now_s, flops=flops)
    case = Case("recompute", "r", 20)
    arm.warm_up(case)
    outcome = arm.run(case)
    assert outcome.attention_kernel == kernel
    assert ("attention_unfused" in outcome.notices) == (kernel in {"eager", "sdpa-math"})


@pytest.mark.parametrize(("name", "kernel"), [("qwen3", "sdpa-flash-cpu"), ("deepseek_v3", "sdpa-math")])
def test_a_length_warmed_up_at_a_shorter_one_still_names_its_kernel(name: str, kernel: str) -> None:
    _, prefill, clock = set_up(name, layers=[0, 1])
    arm = RecomputeArm(prefill, now_s=clock.now_s, flops=flops)
    arm.warm_up(Case("recompute", "r", 8))
    case = Case("recompute", "r", 20)
    arm.prepare(case)
    outcome = arm.run(case)
    assert outcome.attention_kernel == kernel
    assert ("attention_unfused" in outcome.notices) == (kernel in {"eager", "sdpa-math"})


def test_no_attention_is_no_kernel() -> None:
    assert observe_attention(lambda: torch.ones(2) + 1, implementation="sdpa") == "none"


def test_notices_of_the_model_reach_every_sample() -> None:
    _, prefill, clock = set_up("gpt_oss", layers=[0, 1])
    outcome = RecomputeArm(prefill, now_s=clock.now_s, flops=flops).run(Case("recompute", "r", 20))
    assert outcome.notices == ("attention_unfused", "moe_random_routing")


def test_gemm_reports_the_rate_of_its_shapes() -> None:
    ticks: Iterator[float] = iter((0.0, 0.5, 1.0, 3.0))
    arm = GemmArm([(8, 4), (4, 8)], dtype=torch.float32, device=CPU, now_s=lambda: next(ticks))
    case = Case("gemm", "g", 100)
    arm.warm_up(case)
    outcome = arm.run(case)
    assert outcome.seconds == 2.0
    assert outcome.flops == 2 * 100 * 64
    assert outcome.flops_per_s == 6400.0
    arm.close()
    arm.close()


@pytest.mark.parametrize(("name", "num_norms"), [("qwen3", 17), ("gemma2", 17), ("gpt_oss", 9), ("opt", 0)])
def test_every_rms_norm_that_is_understood_is_replaced_once(name: str, num_norms: int) -> None:
    assert speed_up_norms(build_small(name).model) == num_norms


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["qwen3", "gemma3", "qwen3_next"])
def test_a_replaced_norm_computes_what_the_librarys_does(name: str, dtype: torch.dtype) -> None:
    norm = build_small(name, layers=[3], dtype=dtype).model.model.layers[0].input_layernorm
    values = torch.randn(1, 9, 64, generator=torch.Generator().manual_seed(0)).to(dtype) * 3
    expected = type(norm).forward(norm, values)
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(norm(values), expected, atol=tolerance, rtol=tolerance)


def test_a_norm_that_computes_something_else_is_left_alone() -> None:
    class OtherRMSNorm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64))

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values.abs() * self.weight

    assert speed_up_norms(torch.nn.Sequential(OtherRMSNorm())) == 0


def test_a_length_whose_scores_do_not_fit_is_refused_before_it_runs() -> None:
    built = build_small("gpt_oss", layers=[0, 1])
    blocks = KVBlocks(layout_of("gpt_oss", built), 10**6, CPU)
    arm = RecomputeArm(prefill_over(built, blocks), now_s=lambda: 0.0, flops=flops)
    with pytest.raises(MemoryShortError, match=r"a forward of 1000000 tokens \(eager\) needs"):
        arm.warm_up(Case("recompute", "r", 10**6))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_a_fused_kernel_attends_and_the_clock_waits_for_the_device() -> None:
    cuda = torch.device("cuda")
    built = build_small("qwen3", dtype=torch.bfloat16, device=cuda)
    prefill = prefill_over(built, KVBlocks(layout_of("qwen3", built), 64, cuda))
    arm = RecomputeArm(prefill, now_s=time.perf_counter, flops=flops)
    case = Case("recompute", "r", 64)
    arm.warm_up(case)
    outcome = arm.run(case)
    assert outcome.attention_kernel in {"sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "flash_attention_2"}
    assert outcome.seconds > 0
