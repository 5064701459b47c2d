"""Seconds with and without loading, on curves whose answers can be computed by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.predict.curve import FloatArray, MeasuredCurve
from bench.reuse.savings import CostCurves, request_costs, total_costs


def square(tokens: FloatArray) -> FloatArray:
    """1 s at 1000 tokens, growing with the square."""
    return (tokens / 1000) ** 2


def line(tokens: FloatArray) -> FloatArray:
    """0.5 s per 1000 tokens: crosses `square` at 500 tokens."""
    return tokens / 2000


CURVES = CostCurves(recompute_s=square, load_s=line)
INPUTS = np.array([1000, 1000, 2000, 300])
HITS = np.array([0, 400, 1000, 300])


def test_each_strategy_costs_what_the_formula_says() -> None:
    costs = request_costs(INPUTS, HITS, curves=CURVES)
    assert costs["recompute_s"].tolist() == pytest.approx([1.0, 1.0, 4.0, 0.09])
    assert costs["free_hit_s"].tolist() == pytest.approx([1.0, 0.84, 3.0, 0.0])
    assert costs["always_load_s"].tolist() == pytest.approx([1.0, 0.84 + 0.2, 3.5, 0.15])
    assert costs["beyond_crossover_s"].tolist() == pytest.approx([1.0, 1.0, 3.5, 0.09])
    assert costs["loaded"].tolist() == [False, False, True, False]
    assert costs.attrs["origin"] == "modelled"


def test_a_given_crossover_decides_even_where_it_is_wrong() -> None:
    costs = request_costs(INPUTS, HITS, curves=CURVES, crossover_tokens=300)
    assert costs["loaded"].tolist() == [False, True, True, True]
    assert costs["beyond_crossover_s"].tolist() == costs["always_load_s"].tolist()


def test_totals_say_what_is_saved_and_how_long_the_gpus_compute() -> None:
    totals = total_costs(request_costs(INPUTS, HITS, curves=CURVES), num_gpus=8).set_index("strategy")
    base_s = 6.09
    assert totals["seconds"].to_dict() == pytest.approx(
        {
            "recompute": base_s,
            "free_hit": 4.84,
            "always_load": 5.69,
            "beyond_crossover": 5.59,
            "where_faster": 5.59,
        }
    )
    assert totals["saved_s"].to_dict() == pytest.approx(
        {"recompute": 0.0, "free_hit": 1.25, "always_load": 0.4, "beyond_crossover": 0.5, "where_faster": 0.5}
    )
    assert totals.loc["beyond_crossover", "saved_share"] == pytest.approx(0.5 / base_s)
    assert totals.loc["always_load", "gpu_saved_s"] == pytest.approx(8 * 1.25)
    assert totals.loc["beyond_crossover", "gpu_saved_s"] == pytest.approx(8 * 1.0)
    assert totals["extrapolated_share"].tolist() == [0.0] * 5
    assert totals.attrs["origin"] == "modelled"


def test_a_full_hit_still_costs_the_first_token_step_once() -> None:
    def step(tokens: FloatArray) -> FloatArray:
        return np.full_like(tokens, 0.03)

    def load(tokens: FloatArray) -> FloatArray:
        return line(tokens) + 0.03

    curves = CostCurves(recompute_s=square, load_s=load, first_token_s=step)
    costs = request_costs(np.array([1000, 1000]), np.array([1000, 500]), curves=curves)
    assert costs["free_hit_s"].tolist() == pytest.approx([0.03, 0.75])
    assert costs["always_load_s"].tolist() == pytest.approx([0.53, 1.0])


def test_a_hit_below_the_crossover_is_loaded_where_the_prompt_goes_on_behind_it() -> None:
    """L(h) holds the first-token step, T(h) does not: C* charges the load with a step that is due anyway."""

    def step(tokens: FloatArray) -> FloatArray:
        return np.full_like(tokens, 0.2)

    curves = CostCurves(
        recompute_s=lambda tokens: tokens / 1000,
        load_s=lambda tokens: 0.2 + tokens / 4000,
        first_token_s=step,
    )
    crossover = 200 / 0.75  # h / 1000 = 0.2 + h / 4000
    costs = request_costs(
        np.array([1000, 200]), np.array([200, 200]), curves=curves, crossover_tokens=crossover
    )
    assert costs["loaded"].tolist() == [False, False]
    assert costs["faster"].tolist() == [True, False]
    assert costs["beyond_crossover_s"].tolist() == pytest.approx([1.0, 0.2])
    # 0.05 s to bring 200 tokens in and 0.8 s for the rest; a whole hit would take 0.05 s and the step
    assert costs["where_faster_s"].tolist() == pytest.approx([0.85, 0.2])


def test_a_step_slower_than_the_whole_prompt_is_not_taken() -> None:
    slow_step = CostCurves(recompute_s=square, load_s=line, first_token_s=lambda tokens: tokens + 1.0)
    costs = request_costs(np.array([1000]), np.array([1000]), curves=slow_step)
    assert costs["free_hit_s"].tolist() == [1.0]


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1)), min_size=1, max_size=20),
    st.floats(1e-9, 1e-2),
)
def test_choosing_is_never_slower_than_either_and_never_faster_than_free(
    requests: list[tuple[int, float]], load_s_per_token: float
) -> None:
    inputs = np.array([tokens for tokens, _ in requests])
    hits = np.array([int(tokens * share) for tokens, share in requests])
    curves = CostCurves(recompute_s=square, load_s=lambda tokens: tokens * load_s_per_token)
    costs = request_costs(inputs, hits, curves=curves)
    fastest_s = costs[["recompute_s", "always_load_s"]].min(axis=1)
    assert costs["beyond_crossover_s"].tolist() == fastest_s.tolist()
    assert costs["where_faster_s"].tolist() == fastest_s.tolist()
    assert (costs["free_hit_s"] <= costs["always_load_s"]).all()


def test_rows_outside_the_measured_lengths_say_so() -> None:
    curves = CostCurves(recompute_s=square, load_s=line, measured_range=(100, 1000))
    costs = request_costs(np.array([1000, 1001, 99, 500]), np.array([0, 0, 0, 50]), curves=curves)
    assert costs["extrapolated"].tolist() == [False, True, True, True]
    assert total_costs(costs)["extrapolated_share"].tolist() == [0.75] * 5


@pytest.mark.parametrize("hits", [[11], [-1]])
def test_more_hits_than_input_are_refused(hits: list[int]) -> None:
    with pytest.raises(ValueError, match="between 0 and the input tokens"):
        request_costs(np.array([10]), np.array(hits), curves=CURVES)


def test_a_measured_curve_goes_through_its_points_and_keeps_a_power_law() -> None:
    curve = MeasuredCurve((100, 200, 400, 800), (0.01, 0.04, 0.16, 0.64))
    at = np.array([0.0, 50.0, 100.0, 300.0, 800.0, 1600.0])
    assert curve(at).tolist() == pytest.approx([0.0, 0.0025, 0.01, 0.09, 0.64, 2.56])


def test_a_measured_curve_never_falls_between_or_beyond_rising_points() -> None:
    curve = MeasuredCurve((64, 128, 4096, 8192), (0.05, 0.05, 0.06, 3.0))
    seconds = curve(np.arange(1, 20_000, dtype=np.float64))
    assert (np.diff(seconds) >= -1e-12).all()


@pytest.mark.parametrize(
    ("tokens", "seconds", "message"),
    [
        ((1,), (1.0,), "two or more points"),
        ((1, 2), (1.0,), "two or more points"),
        ((2, 1), (1.0, 2.0), "lengths must rise"),
        ((0, 1), (1.0, 2.0), "lengths must rise from 1"),
        ((1, 2), (0.0, 2.0), "seconds must be positive"),
        ((1, 2), (1.0, float("nan")), "seconds must be positive"),
    ],
)
def test_points_that_make_no_curve_are_refused(
    tokens: tuple[int, ...], seconds: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        MeasuredCurve(tokens, seconds)


def test_a_hit_ratio_alone_promises_more_than_loading_keeps() -> None:
    curve = MeasuredCurve((256, 4096), (0.004, 0.2))
    costs = request_costs(
        np.array([4096] * 3),
        np.array([512, 2048, 4096]),
        curves=CostCurves(recompute_s=curve, load_s=lambda tokens: 0.02 + tokens / 40_000),
    )
    saved = total_costs(costs).set_index("strategy")["saved_s"]
    assert isinstance(saved, pd.Series)
    assert saved["free_hit"] > saved["beyond_crossover"] > saved["always_load"]
