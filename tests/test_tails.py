import numpy as np
import pytest

from bench.estimate.tail_latency import MIN_SAMPLES, pair_table, tail_band
from bench.estimate.valid_samples import Table
from bench.record.sample import Outcome

LENGTHS = (1000, 2000)
RECOMPUTE = {tokens: {number: 1.0 + 0.1 * number for number in range(6)} for tokens in LENGTHS}


def _load(num_rounds: int, num_samples: int = 10) -> Table:
    return {
        tokens: {
            number: [Outcome(0.5 + 0.01 * i) for i in range(num_samples)] for number in range(num_rounds)
        }
        for tokens in LENGTHS
    }


def test_a_round_without_recompute_is_left_out_and_hides_none_of_its_noise() -> None:
    whole, interrupted = (tail_band(RECOMPUTE, _load(num), "p95") for num in (6, 7))
    assert whole is not None and interrupted is not None
    assert interrupted.values.shape == whole.values.shape
    assert np.array_equal(interrupted.values, whole.values)
    assert interrupted.widen == whole.widen
    _, low, high = interrupted.at(np.asarray(LENGTHS, dtype=float))
    assert float(np.min(high - low)) > 0.1  # recompute differs by half between rounds


def test_the_estimate_is_the_median_recompute_over_the_quantile_of_load() -> None:
    band = tail_band(RECOMPUTE, _load(7), "p95")
    assert band is not None
    tail = float(np.quantile([0.5 + 0.01 * i for i in range(10)] * 6, 0.95))
    assert band.values[0, 0] == pytest.approx(np.log(1.25) - np.log(tail))


def test_samples_of_unpaired_rounds_do_not_make_up_for_missing_ones() -> None:
    load = _load(3, num_samples=8)
    assert sum(map(len, load[1000].values())) >= MIN_SAMPLES["p95"]
    paired = {tokens: {0: 1.0, 1: 1.1} for tokens in LENGTHS}
    assert tail_band(paired, load, "p95") is None


def test_arms_of_different_rounds_share_nothing() -> None:
    assert pair_table({tokens: {9: 1.0} for tokens in LENGTHS}, _load(6)) == {}
    assert tail_band({tokens: {9: 1.0} for tokens in LENGTHS}, _load(6), "p95") is None
