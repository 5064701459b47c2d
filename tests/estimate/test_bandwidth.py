import pandas as pd
import pytest

from bench.estimate.bandwidth import (
    break_even_bytes_per_s,
    find_sensitivity,
    fixed_seconds,
    scale_bandwidth,
)
from bench.estimate.results import Analysis, Estimate
from bench.record.sample import Outcome
from bench.report.frames import crossover_frame
from bench.report.html import sensitivity_grid
from tests.helpers.sweeps import make_run, make_spot


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
    recompute = {n: {r: 0.02 + 2e-5 * n + 4e-9 * n * n for r in range(6)} for n in lengths}
    load = {n: {r: 0.05 + 1e-5 * n for r in range(6)} for n in lengths}
    fixed = {n: {r: 0.05 for r in range(6)} for n in lengths}
    found = find_sensitivity(recompute, load, fixed)
    values = {scale: None if tokens is None else tokens.value for scale, tokens in found.items()}
    # roots of 4e-9 n^2 + (2e-5 - 1e-5 / scale) n - 0.03
    assert values == {
        "0.5x": pytest.approx(2738.6, rel=0.01),
        "0.8x": pytest.approx(1957.1, rel=0.01),
        "1.25x": pytest.approx(1622.5, rel=0.01),
        "2x": pytest.approx(1443.0, rel=0.01),
    }


def _sensitivity(num_rounds: int, *, spread: float = 0.0) -> dict[str, Estimate | None]:
    """Of curves that cross at 1,760 tokens, with rounds of load `spread` apart as a share."""
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    recompute = {n: dict.fromkeys(range(num_rounds), 0.02 + 2e-5 * n + 4e-9 * n * n) for n in lengths}
    load = {
        n: {r: (0.05 + 1e-5 * n) * (1 + spread * (r / num_rounds - 0.5)) for r in range(num_rounds)}
        for n in lengths
    }
    fixed = {n: dict.fromkeys(range(num_rounds), 0.05) for n in lengths}
    return find_sensitivity(recompute, load, fixed)


@pytest.mark.parametrize("num_rounds", [1, 2])
def test_a_round_or_two_decide_on_no_crossing_at_any_bandwidth(num_rounds: int) -> None:
    assert set(_sensitivity(num_rounds).values()) == {None}


def test_a_crossing_at_another_bandwidth_has_an_interval_over_rounds() -> None:
    found = _sensitivity(8, spread=0.2)["0.8x"]
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < 1957.1 < found.high
    assert found.high - found.low > 100


def test_of_several_crossings_none_is_named() -> None:
    lengths = (250, 500, 1000, 2000, 4000, 8000)
    load = {n: dict.fromkeys(range(6), 1.0) for n in lengths}
    recompute = {n: dict.fromkeys(range(6), 2.0 if n in {1000, 2000} else 0.5) for n in lengths}
    fixed = {n: dict.fromkeys(range(6), 1.0) for n in lengths}  # nothing is read: bandwidth changes nothing
    assert set(find_sensitivity(recompute, load, fixed).values()) == {None}


def test_the_page_says_the_interval_and_what_a_dash_means() -> None:
    spot = make_spot(sensitivity={"0.5x": Estimate(8650.0, 8100.0, 9200.0), "2x": None})
    grid = sensitivity_grid(make_run(), Analysis((), (spot,), ()))
    assert grid is not None
    assert grid.rows == (("posix, best layout", "C*", "8,650 [8,100–9,200]", "—"),)
    assert grid.footnotes == (
        "tokens [95 %]; — where the rounds decide on no single crossover in the measured range: "
        "there is none, there are several, or they disagree",
    )


def test_the_table_of_crossovers_has_the_ends_of_each_interval() -> None:
    spot = make_spot(sensitivity={"0.5x": Estimate(8650.0, 8100.0, 9200.0), "2x": None})
    row = crossover_frame(Analysis((), (spot,), ())).iloc[0]
    ends = [row[f"crossover_at_0.5x_bandwidth{end}_tokens"] for end in ("", "_low", "_high")]
    assert ends == [8650, 8100, 9200]
    assert pd.isna(row["crossover_at_2x_bandwidth_low_tokens"])
