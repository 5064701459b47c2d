from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from bench.arms.model.build import (
    UnsupportedArchitectureError,
    build_model,
    describe_model,
    find_layers,
    read_config,
)
from bench.arms.model.depth_scaling import (
    Depth,
    DepthPlan,
    NothingHeldOutError,
    ScalingCheck,
    check_scaling,
    choose_layers,
    plan_depths,
    time_depths,
)
from bench.arms.model.memory import MemoryShortError, keep_freed_memory, require_memory
from bench.arms.model.weights import POOL_ELEMENTS, WeightsError, fill_normal
from bench.catalog.models.geometry import LayerKind
from tests.helpers.architectures import BASE, CONFIGS, build_small

FULL, SLIDING, MOE = LayerKind("full"), LayerKind("sliding"), LayerKind("full", moe=True)


def choose(kinds: list[LayerKind], available_bytes: int, choice: str) -> tuple[int, ...]:
    return choose_layers(
        kinds, [100] * len(kinds), fixed_bytes=50, available_bytes=available_bytes, choice=choice
    )


def test_auto_builds_everything_in_half_of_the_memory_and_a_few_layers_otherwise() -> None:
    assert choose([FULL] * 8, 1700, "auto") == tuple(range(8))
    assert choose([FULL] * 8, 1699, "auto") == (0, 1, 2, 3)
    assert choose([FULL] * 8, 10**9, "fit") == (0, 1, 2, 3)
    assert choose([FULL] * 8, 1, "all") == tuple(range(8))


def test_two_layers_are_enough_where_they_are_larger_than_a_cache() -> None:
    sizes = [200 * 2**20] * 8
    assert choose_layers([FULL] * 8, sizes, fixed_bytes=50, available_bytes=2**40, choice="fit") == (0, 1)


def test_fewer_layers_of_each_kind_are_built_where_memory_is_short() -> None:
    kinds = [FULL, *[MOE] * 7]
    assert choose(kinds, 10**9, "fit") == (0, 1, 2, 3, 4)
    assert choose(kinds, 700, "fit") == (0, 1, 2)
    assert choose(kinds, 250, "fit") == (0, 1)
    with pytest.raises(MemoryShortError, match="one layer of each of 2 kinds"):
        choose(kinds, 249, "fit")


def test_every_kind_of_layer_is_chosen_by_its_place_in_the_real_model() -> None:
    assert choose([SLIDING] * 5 + [FULL] + [SLIDING] * 5 + [FULL], 10**9, "fit") == (0, 1, 2, 3, 5, 11)


def test_seconds_add_up_by_kind() -> None:
    plan = DepthPlan((Depth((), "0"), Depth((0, 1), "a"), Depth((2,), "b")), (0.0, 10.0, 3.0), 23)
    assert plan.seconds({"0": 1.0, "a": 3.0, "b": 2.0}) == 1 + 10 * 2 + 3 * 1
    assert plan.seconds({"0": 1.0, "a": 0.9, "b": 2.0}) == 1 + 0 + 3 * 1  # no kind takes negative time


def test_a_mixed_model_gets_one_depth_for_each_kind() -> None:
    plan = plan_depths(build_small("deepseek_v3", layers=[0, 1, 2]))
    assert [(depth.label, depth.positions) for depth in plan.depths] == [
        ("0", ()),
        ("full:1", (0,)),
        ("full+moe:2", (1, 2)),
    ]
    assert plan.repeats == (0.0, 1.0, 1.5)
    assert plan.scaled and plan.measured_layers == 2 and plan.total_layers == 4


def test_a_whole_model_is_not_scaled_unless_asked() -> None:
    built = build_small("qwen3")
    assert plan_depths(built).depths == (Depth((0, 1, 2, 3), "4"),)
    assert [depth.label for depth in plan_depths(built, scaled=True).depths] == ["0", "4"]


def test_depths_run_in_random_order_and_leave_the_model_whole() -> None:
    built = build_small("qwen3", layers=[0, 1])
    plan = plan_depths(built)
    random, orders = Random(0), set()
    seen: list[int] = []

    def look() -> float:
        seen.append(len(find_layers(built.model)[1]))
        return float(seen[-1])

    for _ in range(20):
        assert time_depths(built, plan, time_once=look, random=random).seconds == 4.0
        orders.add(tuple(seen))
        seen.clear()
    assert orders == {(0, 2), (2, 0)}
    assert len(find_layers(built.model)[1]) == built.model.config.num_hidden_layers == 2


def test_a_layer_that_gets_dearer_with_depth_shows_as_scaling_error() -> None:
    built = build_small("qwen3")

    def linear() -> float:
        return 1.0 + 0.5 * built.model.config.num_hidden_layers

    def square() -> float:
        return 1.0 + 0.5 * built.model.config.num_hidden_layers**2

    exact = check_scaling(built, time_once=linear, random=Random(0))
    assert (exact.layers, exact.predicted_s, exact.measured_s) == (4, 3.0, 3.0)
    wrong = check_scaling(built, time_once=square, random=Random(0))
    assert wrong.is_beyond(0.1) and not exact.is_beyond(0.1)
    assert wrong.relative_error == pytest.approx(5 / 9 - 1)


def test_a_kind_of_which_no_layer_is_built_cannot_be_scaled() -> None:
    with pytest.raises(ValueError, match=r"no full\+moe layer is built"):
        plan_depths(build_small("deepseek_v3", layers=[0]))


def test_a_kind_with_a_single_layer_stands_for_itself_in_the_check() -> None:
    built = build_small("deepseek_v3", layers=[0, 1, 2])  # one dense layer, two with experts
    check = check_scaling(
        built, time_once=lambda: 1.0 + built.model.config.num_hidden_layers, random=Random(0)
    )
    assert (check.layers, check.predicted_s, check.measured_s) == (3, 4.0, 4.0)


def test_scaling_cannot_be_checked_with_one_layer_of_a_kind() -> None:
    with pytest.raises(NothingHeldOutError, match="one layer of each kind"):
        check_scaling(build_small("qwen3", layers=[0]), time_once=lambda: 1.0, random=Random(0))


@pytest.mark.parametrize(
    ("errors", "beyond"),
    [
        ((0.11, 0.3, 0.12), True),
        ((-0.11, -0.3, -0.12), True),
        ((0.11, 0.3, 0.09), False),
        ((0.3, 0.3, -0.3), False),
    ],
)
def test_an_error_of_scaling_is_beyond_a_limit_where_every_round_is(
    errors: tuple[float, ...], beyond: bool
) -> None:
    assert ScalingCheck(4, 1.2, 1.0, errors).is_beyond(0.1) is beyond


CPU = torch.device("cpu")


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_a_normally_constructed_model_with_the_same_weights(name: str) -> None:
    built = build_small(name, seed=3)
    twin = AutoModelForCausalLM.from_config(
        read_config(CONFIGS[name]), dtype=torch.float32, attn_implementation=built.attention
    ).eval()
    twin.load_state_dict(built.model.state_dict())
    tokens = torch.randint(211, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        ours = built.model(input_ids=tokens, use_cache=True).logits[0, -1]
        theirs = twin(input_ids=tokens, cache=DynamicCache(config=twin.config)).logits[0, -1]
    assert float(theirs.std()) > 0.3  # logits of a realistic size
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_matrices_are_normal_with_fan_in_scale_differ_by_layer_and_norms_are_one() -> None:
    layers = find_layers(build_small("qwen3").model)[1]
    first, second = (layer.mlp.down_proj.weight for layer in list(layers)[:2])
    assert abs(float(first.std()) * 96**0.5 - 1) < 0.05
    assert abs(float(first.mean())) < 0.01
    assert float((first - second).abs().mean()) > 0.05
    assert bool((layers[0].input_layernorm.weight == 1).all())


def test_the_seed_decides_the_weights() -> None:
    weights = [
        find_layers(build_small("qwen3", seed=seed).model)[1][0].mlp.up_proj.weight for seed in (1, 1, 2)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("name", CONFIGS)
def test_everything_in_a_model_follows_from_its_seed(name: str) -> None:
    torch.manual_seed(11)
    first = build_small(name).model.state_dict()
    torch.manual_seed(12)  # what others draw makes no difference
    second = build_small(name).model.state_dict()
    assert [key for key, tensor in first.items() if not torch.equal(tensor, second[key])] == []


def test_a_tensor_longer_than_the_pool_repeats_it_and_has_no_equal_rows() -> None:
    tensor = torch.empty(POOL_ELEMENTS // 1024 + 100, 1024)
    fill_normal(tensor, 0, number=1, std=0.5)
    assert abs(float(tensor.std()) - 0.5) < 0.01
    assert len({tuple(row[:4].tolist()) for row in tensor}) == tensor.shape[0]


def test_kept_layers_are_those_of_the_real_model() -> None:
    built = build_small("llama4", layers=[1, 3])
    layers = find_layers(built.model)[1]
    assert built.kinds == (LayerKind("chunked", moe=True), LayerKind("full", moe=True))
    assert [layer.self_attn.use_rope for layer in layers] == [1, 0]
    assert [layer.self_attn.layer_idx for layer in layers] == [0, 1]
    assert len(built.model_kinds) == 4


def test_kinds_and_sizes_are_known_before_anything_is_built() -> None:
    kinds, sizes, rest = describe_model(CONFIGS["deepseek_v3"])
    assert kinds == (LayerKind("full"), *[LayerKind("full", moe=True)] * 3)
    assert sizes[1] > sizes[0]
    assert rest == 2 * 211 * 64 + 64


def test_attention_falls_back_to_eager_only_with_a_notice() -> None:
    assert build_small("gpt_oss", layers=[0]).notices == ("attention_unfused", "moe_random_routing")
    assert build_small("qwen3", layers=[0]).notices == ()
    with pytest.raises(
        UnsupportedArchitectureError, match="Gemma2ForCausalLM does not run with attention=sdpa"
    ):
        build_small("gemma2", attention="sdpa")


def test_experts_run_grouped_where_the_library_can() -> None:
    assert build_small("qwen3_moe", layers=[0]).experts == "grouped_mm"
    assert build_small("qwen3", layers=[0]).experts is None


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(
        UnsupportedArchitectureError, match="model_type 'zebra', architecture 'ZebraForCausalLM'"
    ):
        build_model(
            {"model_type": "zebra", "architectures": ["ZebraForCausalLM"]}, dtype=torch.float32, device=CPU
        )


def test_an_unknown_model_type_of_a_known_architecture_runs_as_that() -> None:
    raw = CONFIGS["deepseek_v3"] | {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]}
    assert read_config(raw).model_type == "deepseek_v3"


def test_an_unknown_layer_type_is_refused_by_name() -> None:
    raw = BASE | {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv", "full_attention"]}
    with pytest.raises(UnsupportedArchitectureError, match="layer_types conv"):
        build_model(raw, dtype=torch.float32, device=CPU)


def test_a_model_that_does_not_fit_is_refused_before_it_is_built() -> None:
    with pytest.raises(MemoryShortError, match=r"needs \d+\.\d GiB on cpu, \d+\.\d GiB are free; try"):
        build_small("qwen3", reserve_bytes=2**50)
    require_memory(1, CPU, purpose="nothing")


def test_real_weights_need_safetensors_with_every_tensor(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no \*\.safetensors"):
        build_small("qwen3", weights=str(tmp_path))
    built = build_small("qwen3", seed=9)
    built.model.lm_head.weight = torch.nn.Parameter(built.model.lm_head.weight.clone())
    built.model.save_pretrained(tmp_path)
    again = build_small("qwen3", weights=str(tmp_path), layers=[0, 2])
    kept = find_layers(again.model)[1]
    assert torch.equal(kept[1].mlp.up_proj.weight, find_layers(built.model)[1][2].mlp.up_proj.weight)
    assert again.notices == ()


def test_freed_memory_can_be_kept_on_linux() -> None:
    assert keep_freed_memory() is True
