import dataclasses

import numpy as np
import pytest

from bench.estimate.intervals import AnalysisError
from bench.estimate.next_lengths import (
    RefineState,
    coarse_grid,
    next_lengths,
    predict_cost_s,
    should_stop,
)
from bench.estimate.round_curves import RoundCurve, curve_of
from tests.simulate import Noise, Setting, Truth, measure_round

GRID = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
QUIET = Noise(0.01, sample=0.01)
TRUTH = Truth()  # crosses at 1760


def make(curves: tuple[RoundCurve, ...] = (), **changes: object) -> RefineState:
    state = RefineState(
        curves=(curves,),
        step_tokens=256,
        min_tokens=256,
        max_tokens=32768,
        num_rounds=8,
        precision=0.10,
        rounds_done=len(curves),
    )
    return dataclasses.replace(state, **changes)  # type: ignore[arg-type]


def measure(
    rounds: list[tuple[int, ...]],
    truth: Truth = TRUTH,
    noise: Noise = QUIET,
) -> tuple[RoundCurve, ...]:
    rng = np.random.default_rng(5)
    return tuple(measure_round(r, truth, noise, setting=Setting(), rng=rng)[0] for r in rounds)


def test_the_coarse_grid_is_powers_of_two_of_the_shortest_and_the_longest_length() -> None:
    assert coarse_grid(make()) == GRID
    assert coarse_grid(make(min_tokens=300, max_tokens=5000)) == (512, 1024, 2048, 4864)
    assert coarse_grid(make(max_tokens=1500)) == (256, 512, 1280)
    assert coarse_grid(make(max_tokens=300)) == (256,)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(AnalysisError, match="no multiple of 256 tokens between 300 and 400"):
        make(min_tokens=300, max_tokens=400)


def test_the_first_round_leaves_out_the_most_costly_lengths_and_the_second_adds_them() -> None:
    assert next_lengths(make()) == GRID[:6]
    assert next_lengths(make(measure([GRID[:6]]))) == GRID


def test_the_second_round_takes_only_what_the_budget_allows() -> None:
    costs = {n: n / 256 for n in GRID[:6]}  # 1, 2, 4, 8, 16, 32 s; then 128 s and 512 s by the square
    state = make(measure([GRID[:6]]), cost_s=costs, remaining_s=300.0)
    assert next_lengths(state) == GRID[:7]
    assert next_lengths(dataclasses.replace(state, remaining_s=10.0)) == GRID[:3]
    assert next_lengths(dataclasses.replace(state, remaining_s=0.5)) == ()


def test_costs_are_interpolated_between_known_lengths_and_grow_as_the_square_beyond() -> None:
    state = make(cost_s={256: 1.0, 1024: 4.0})
    assert predict_cost_s(state, 512) == pytest.approx(2.0)
    assert predict_cost_s(state, 2048) == pytest.approx(16.0)
    assert predict_cost_s(make(), 2048) == 0.0


def test_later_rounds_bracket_the_crossing_closely_in_chunk_steps() -> None:
    lengths = next_lengths(make(measure([GRID[:6], GRID])))
    low, high = max(n for n in lengths if n < 1760), min(n for n in lengths if n > 1760)
    assert low % 256 == high % 256 == 0
    assert high / low <= 2048 / 1280
    assert not [n for n in lengths if n > high and n < 16384]


def test_the_bracket_is_kept_while_the_crossing_stays_inside() -> None:
    rounds = [GRID[:6], GRID]
    rounds.append(next_lengths(make(measure(rounds))))
    for _ in range(2):
        rounds.append(next_lengths(make(measure(rounds))))
    assert rounds[-1] == rounds[-2]


def test_more_noise_makes_a_wider_bracket() -> None:
    def width(noise: Noise) -> float:
        lengths = next_lengths(make(measure([GRID, GRID], noise=noise)))
        return min(n for n in lengths if n > 1760) / max(n for n in lengths if n < 1760)

    assert width(Noise(0.08)) > width(QUIET)


def test_both_of_two_crossings_are_bracketed() -> None:
    truth = Truth((0.2, 1e-5, 4e-9), (0.02, 1e-4))  # crosses at 2219 and 20281
    lengths = next_lengths(make(measure([GRID, GRID], truth)))
    for crossing in (2219, 20281):
        low = max(n for n in lengths if n < crossing)
        high = min(n for n in lengths if n > crossing)
        assert high / low < 2


def test_without_a_crossing_the_undecided_lengths_are_measured_again() -> None:
    calm = [{float(n): 0.5 for n in GRID} for _ in range(4)]
    for number, values in enumerate(calm):
        values[512.0] = 0.3 * (-1) ** number + 0.2
    curves = tuple(curve_of(values) for values in calm)
    assert 512 in next_lengths(make(curves))
    assert 8192 not in next_lengths(make(curves))


def test_a_coarse_length_that_was_tried_three_times_in_vain_is_not_tried_again() -> None:
    curves = measure([GRID[1:], GRID[1:]])
    assert 256 in next_lengths(make(curves, tried={256: 2}))
    assert 256 not in next_lengths(make(curves, tried={256: 3}))


def test_rounds_that_share_no_length_still_give_lengths_for_the_next() -> None:
    curves = (curve_of({512.0: -0.1}), curve_of({512.0: -0.12}), curve_of({1024.0: 0.1}))
    assert {512, 1024} <= set(next_lengths(make(curves)))


def test_it_stops_when_precise_but_not_before_six_rounds() -> None:
    bracket = (512, 1024, 1536, 2048)
    assert not should_stop(make(measure([GRID, GRID, *[bracket] * 3])))
    assert should_stop(make(measure([GRID, GRID, *[bracket] * 4])))
    assert not should_stop(make(measure([GRID, GRID, *[bracket] * 4]), precision=0.001))


def test_it_stops_after_the_planned_rounds_or_when_the_budget_is_spent() -> None:
    assert should_stop(make(measure([GRID] * 8, noise=Noise(0.3)), precision=0.001))
    assert should_stop(make(measure([GRID]), remaining_s=0.0))
    assert should_stop(make(measure([GRID] * 3), num_rounds=3))


def test_it_goes_on_while_one_of_two_series_is_open() -> None:
    clear = measure([GRID] * 6)
    tied = measure([GRID] * 6, Truth((0.02, 2e-5, 0.0), (0.02, 2e-5)), Noise(0.05))
    assert should_stop(make(clear))
    assert not should_stop(dataclasses.replace(make(clear), curves=(clear, tied)))


def test_lengths_that_were_refused_since_are_not_asked_for_again() -> None:
    crossing = measure([GRID[:6], GRID, GRID])  # at 1760
    tied = measure([GRID[:6], GRID, GRID], Truth((0.02, 2e-5, 0.0), (0.02, 2e-5)), Noise(0.05))
    beyond = measure([GRID] * 3, Truth((0.02, 2e-5, 0.0), (0.3, 1e-5)))  # crosses at 28000
    for curves in (crossing, tied, beyond):
        assert max(next_lengths(make(curves))) > 1536
        for longest in (1536, 1024, 256):
            chosen = next_lengths(make(curves, max_tokens=longest))
            assert chosen and max(chosen) <= longest


def test_a_bracket_whose_upper_end_was_refused_ends_at_the_longest_length_left() -> None:
    curves = measure([GRID, GRID, (512, 1024, 1536, 2048)])
    assert next_lengths(make(curves)) == (512, 1024, 1536, 2048)
    tried = {1792: 3}  # else it would be measured as a coarse length
    assert next_lengths(make(curves, max_tokens=1792, tried=tried)) == (512, 1024, 1280, 1792)


def test_when_every_open_length_was_refused_the_coarse_ones_get_surer() -> None:
    calm = [{float(n): 0.5 for n in GRID} for _ in range(4)]
    for number, values in enumerate(calm):
        values[8192.0] = 0.3 * (-1) ** number + 0.2
    curves = tuple(curve_of(values) for values in calm)
    assert 8192 in next_lengths(make(curves))
    assert next_lengths(make(curves, max_tokens=4096)) == GRID[:5]
