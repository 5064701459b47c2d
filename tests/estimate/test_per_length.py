"""What counts as drift over the rounds, against simulated rounds whose truth is known."""

import math

import numpy as np
import pytest

from bench.estimate.intervals import Floats
from bench.estimate.per_length import drifts, find_doubts
from bench.estimate.tail_latency import MIN_SAMPLES, pair_table, tail_band
from bench.estimate.valid_samples import Table
from bench.record.sample import Outcome

STEADY_TRIALS = 1000
TRIALS = 200


def _share(shape: Floats, noise: float, *, trials: int, slow: float = 0.0) -> float:
    """Share of simulated cases that are said to drift; `slow` is the share of rounds that are 2-3 times too slow."""
    rng = np.random.default_rng([len(shape), int(1000 * noise)])
    logs = shape + rng.normal(0.0, noise, (trials, len(shape)))
    logs += np.where(rng.random(logs.shape) < slow, np.log(rng.uniform(2, 3, logs.shape)), 0.0)
    return sum(drifts(case.tolist()) for case in logs) / trials


@pytest.mark.parametrize("num_rounds", [6, 8, 12, 30])
@pytest.mark.parametrize(("noise", "slow"), [(0.05, 0.0), (0.2, 0.0), (0.04, 0.06)])
def test_steady_rounds_are_seldom_said_to_drift(num_rounds: int, noise: float, slow: float) -> None:
    assert _share(np.zeros(num_rounds), noise, trials=STEADY_TRIALS, slow=slow) <= 0.01


@pytest.mark.parametrize("noise", [0.03, 0.05])
@pytest.mark.parametrize("change", [0.8, 1.22])
def test_a_fifth_slower_or_faster_little_by_little_is_found(noise: float, change: float) -> None:
    assert _share(np.linspace(0.0, math.log(change), 30), noise, trials=TRIALS) >= 0.9


@pytest.mark.parametrize(("num_rounds", "after"), [(8, 2), (8, 4), (8, 6), (30, 2), (30, 10), (30, 26)])
def test_half_the_speed_all_at_once_is_found(num_rounds: int, after: int) -> None:
    shape = np.where(np.arange(num_rounds) < after, 0.0, math.log(2))
    assert _share(shape, 0.05, trials=TRIALS) >= 0.98


def test_a_change_that_is_sure_but_small_is_none() -> None:
    assert not drifts(np.linspace(0.0, 0.09, 30).tolist())
    assert drifts(np.linspace(0.0, 0.11, 30).tolist())
    assert not drifts([0.0] * 4 + [0.09] * 4)
    assert drifts([0.0] * 4 + [0.11] * 4)


def test_rounds_that_are_all_alike_or_few_do_not_drift() -> None:
    assert not drifts([1.0] * 8)
    assert not drifts([0.0, 0.1, 0.2, 0.3, 0.4])
    assert not drifts([])


@pytest.mark.parametrize("place", range(8))
def test_one_slow_round_is_no_drift(place: int) -> None:
    logs = [0.01 * (number % 3) for number in range(8)]
    logs[place] = 1.0
    assert not drifts(logs)


STEADY = dict.fromkeys(range(8), 1.0)
NOISE = (1.0, 1.3, 0.8, 1.2, 0.7, 1.1, 0.9, 1.4)
SLOWER = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)


def doubts(
    reading: tuple[float, ...] | None, step: tuple[float, ...] | None, *outcomes: Outcome
) -> tuple[str, ...]:
    """Of a load of 1 s reading and 1 s first-token step, times these; of steps that are None, nothing is known."""
    parts = [part or (1.0,) * 8 for part in (reading, step)]
    load_s = {number: sum(part[number] for part in parts) for number in range(8)}
    known = {} if step is None else dict(enumerate(step))
    return find_doubts(outcomes, STEADY, load_s, first_tokens_s=known, mfu=None)


@pytest.mark.parametrize(("swings", "word"), [(NOISE, "noisy"), (SLOWER, "drift")], ids=["noise", "drift"])
def test_what_varies_is_named_by_the_part_of_the_load_that_it_is_in(
    swings: tuple[float, ...], word: str
) -> None:
    often = tuple(2 * value for value in swings)
    calm = (1.0,) * 8
    assert {code for code in doubts(often, calm) if code.startswith(word)} == {f"{word}_reading"}
    assert {code for code in doubts(calm, often) if code.startswith(word)} == {f"{word}_first_token"}
    assert {code for code in doubts(often, None) if code.startswith(word)} == {f"{word}_load"}
    assert doubts(calm, calm) == ()


def test_one_slow_round_of_a_part_does_not_take_the_blame_for_what_the_other_does() -> None:
    calm, one_slow = (1.0,) * 8, (1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.0)
    often = tuple(2 * value for value in SLOWER)
    assert "drift_first_token" in doubts(one_slow, often)
    assert "drift_load" in doubts(SLOWER, SLOWER)  # both did
    assert doubts(one_slow, calm) == ()


def test_bytes_that_went_to_others_are_noticed_from_a_quarter_of_the_samples_on() -> None:
    def sample(device_bytes: int | None, process_bytes: int | None) -> Outcome:
        return Outcome(seconds=1.0, device_bytes=device_bytes, process_bytes=process_bytes)

    calm = (1.0,) * 8
    alone, shared = sample(1_000_000, 1_000_000), sample(1_200_000, 1_000_000)
    assert doubts(calm, calm, *[shared] * 2, *[alone] * 6) == ("drive_shared",)
    assert doubts(calm, calm, shared, *[alone] * 7) == ()
    # of a GPU's own reads the process knows nothing, of memory the drive
    assert doubts(calm, calm, sample(1_000_000, 0), sample(None, 1_000_000), sample(1_000_000, None)) == ()


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
