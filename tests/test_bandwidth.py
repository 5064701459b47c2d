import pytest

from bench.analyse.bandwidth import (
    break_even_bytes_per_s,
    find_sensitivity,
    fixed_seconds,
    scale_bandwidth,
)
from bench.arms.case import Outcome


def test_the_fixed_part_is_first_token_step_and_opening() -> None:
    outcomes = [Outcome(1.0, open_s=0.01, first_token_s=0.05), Outcome(1.0, open_s=0.03, first_token_s=0.05)]
    assert fixed_seconds(outcomes, 9.0) == pytest.approx(0.07)
    assert fixed_seconds([Outcome(1.0)], 0.02) == 0.02


def test_break_even_is_the_rate_at_which_both_arms_tie() -> None:
    rate = break_even_bytes_per_s(10**9, recompute_s=0.6, fixed_s=0.1)
    assert rate == pytest.approx(2e9)
    assert rate is not None
    assert 0.1 + 10**9 / rate == pytest.approx(0.6)


def test_no_rate_ties_with_a_recompute_faster_than_the_fixed_costs() -> None:
    assert break_even_bytes_per_s(10**9, recompute_s=0.05, fixed_s=0.1) is None
    assert break_even_bytes_per_s(None, recompute_s=1.0, fixed_s=0.1) is None


def test_scaling_leaves_the_fixed_part_alone() -> None:
    assert scale_bandwidth({256: {0: 1.1}}, {256: {0: 0.1}}, 2.0) == {256: {0: pytest.approx(0.6)}}


def test_more_bandwidth_lowers_the_crossing_and_less_raises_it() -> None:
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    recompute = {n: {r: 0.02 + 2e-5 * n + 4e-9 * n * n for r in range(2)} for n in lengths}
    load = {n: {r: 0.05 + 1e-5 * n for r in range(2)} for n in lengths}
    fixed = {n: {r: 0.05 for r in range(2)} for n in lengths}
    found = find_sensitivity(recompute, load, fixed)
    # roots of 4e-9 n^2 + (2e-5 - 1e-5 / scale) n - 0.03
    assert found == {
        "0.5x": pytest.approx(2738.6, rel=0.01),
        "0.8x": pytest.approx(1957.1, rel=0.01),
        "1.25x": pytest.approx(1622.5, rel=0.01),
        "2x": pytest.approx(1443.0, rel=0.01),
    }
