from random import Random

import pytest

from bench.arms.model.build import find_layers
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
from bench.arms.model.memory import MemoryShortError
from bench.catalog.models.geometry import LayerKind
from tests.architectures import build_small

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
