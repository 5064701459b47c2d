"""The decision on threads, depth and request size, on simulated drives whose optimum is known."""

import math
import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import settings as of
from hypothesis import strategies as st

from bench.measure.tuning.tuning_rule import (
    Choice,
    PassResult,
    Rates,
    TuningGrid,
    axis_settings,
    chance_of,
    decide,
    find_gains,
    neighbours,
    search_settings,
    survivors,
)
from bench.measure.worker.tuning_reads import NoSearchError, unless_failed
from bench.record.read_setting import ReadSetting

MIB = 2**20
LIMIT_S = 14.4  # 8 % of three minutes
READ_S = 0.1  # of the default, and half as much again for eviction and checks
DRIFT_S = 3.0  # in which the drive's level forgets itself


def at(num_threads: int, in_flight: int = 1, request_mib: float = 4) -> ReadSetting:
    return ReadSetting(num_threads=num_threads, in_flight=in_flight, request_bytes=int(request_mib * MIB))


def space_of(*, several: bool) -> TuningGrid:
    allowed = frozenset(
        at(threads, in_flight, request)
        for threads in (1, 2, 4, 8, 16, 32, 64)
        for in_flight in ((1, 2, 4, 8, 16, 32) if several else (1,))
        for request in (0.25, 0.5, 1, 2, 4, 8, 16)
        if threads * in_flight <= 256 and threads * (in_flight + 1) * request <= 512
    )
    axes = (("num_threads",), ("in_flight",), ("request_bytes",))
    return TuningGrid(at(4, 4 if several else 1), allowed, axes)


def drive_of(seed: int) -> Callable[[ReadSetting], float]:
    """Bytes per second without noise: a bandwidth, a latency, what one thread can copy, a price of many threads."""
    made = random.Random(seed)
    most, latency_s = 10 ** made.uniform(8.5, 10.2), 10 ** made.uniform(-4.3, -2.3)
    of_thread, crowding = 10 ** made.uniform(8.7, 10), made.choice([0, 0, 0.02, 0.1])

    def rate(setting: ReadSetting) -> float:
        in_flight = setting.queue_depth * setting.request_bytes / latency_s
        from_drive = (most**-4 + in_flight**-4) ** -0.25
        crowded = 1 - crowding * max(0.0, math.log2(setting.num_threads / 8))
        return min(setting.num_threads * of_thread, from_drive) * crowded

    return rate


def run_search(
    space: TuningGrid, rate: Callable[[ReadSetting], float], *, seed: int, noise: float, drift: float
) -> ReadSetting:
    """The setting that a search of LIMIT_S chooses on a drive whose level wanders while it is read."""
    luck = random.Random(seed)
    num_bytes = rate(space.default) * READ_S
    now_s = level = 0.0

    def read_pass(wanted: tuple[ReadSetting, ...]) -> PassResult:
        nonlocal now_s, level
        rates: dict[ReadSetting, float] = {}
        for setting in wanted:
            if now_s >= LIMIT_S:
                break
            rates[setting] = rate(setting) * math.exp(level + noise * luck.gauss(0, 1))
            took_s = num_bytes / rates[setting] + READ_S / 2
            kept = math.exp(-took_s / DRIFT_S)
            level = level * kept + drift * math.sqrt(1 - kept**2) * luck.gauss(0, 1)
            now_s += took_s
        return PassResult(rates, max(0.0, 1 - now_s / LIMIT_S))

    return search_settings(space, read_pass, seed=seed).setting


@pytest.mark.parametrize("several", [False, True], ids=["one-in-flight", "several-in-flight"])
@pytest.mark.parametrize(
    ("noise", "drift"), [(0.03, 0.1), (0.05, 0.25), (0.1, 0.35)], ids=["calm", "usual", "wild"]
)
def test_of_200_drives_95_percent_are_read_within_3_percent_of_their_best(
    several: bool, noise: float, drift: float
) -> None:
    space = space_of(several=several)
    near = 0
    for seed in range(200):
        rate = drive_of(seed)
        chosen = run_search(space, rate, seed=seed, noise=noise, drift=drift)
        near += rate(chosen) >= 0.97 * max(map(rate, space.allowed))
    assert near >= 190


def test_of_drives_that_the_default_reads_at_less_than_95_percent_most_gain_most() -> None:
    space = space_of(several=False)
    far = [seed for seed in range(1000) if rated(space, seed) < 0.95][:100]
    shares = [
        (drive_of(seed)(run_search(space, drive_of(seed), seed=seed, noise=0.05, drift=0.25)), seed)
        for seed in far
    ]
    reached = [rate / max(map(drive_of(seed), space.allowed)) for rate, seed in shares]
    assert sum(share >= 0.97 for share in reached) >= 85
    assert sorted(rated(space, seed) for seed in far)[50] < 0.7


def rated(space: TuningGrid, seed: int) -> float:
    """What the default gives of the best."""
    rate = drive_of(seed)
    return rate(space.default) / max(map(rate, space.allowed))


def test_where_all_settings_are_alike_noise_alone_seldom_leaves_the_default() -> None:
    space = space_of(several=False)
    left = sum(
        run_search(space, lambda setting: 1e9, seed=seed, noise=0.1, drift=0.35) != space.default
        for seed in range(200)
    )
    assert left <= 16  # 5 % of the duels, and 200 trials of luck


@of(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    several=st.booleans(),
    failing=st.floats(0, 0.6),
    passes=st.integers(1, 60),
)
def test_a_search_ends_with_an_allowed_setting_whatever_reads_give(
    seed: int, several: bool, failing: float, passes: int
) -> None:
    space, luck = space_of(several=several), random.Random(seed)
    done, seen = 0, set[ReadSetting]()

    def read_pass(wanted: tuple[ReadSetting, ...]) -> PassResult:
        nonlocal done
        done += 1
        assert wanted and len(set(wanted)) == len(wanted) and set(wanted) <= space.allowed
        rates = {one: luck.lognormvariate(20, 2) for one in wanted if luck.random() > failing}
        seen.update(rates)
        return PassResult(rates, max(0.0, 1 - done / passes))

    choice = search_settings(space, read_pass, seed=seed)
    assert choice.setting in seen | {space.default}
    assert choice.reason
    assert done <= passes + 12  # a first pass goes outwards, setting by setting


def _passes(space: TuningGrid, *, seed: int) -> list[object]:
    """The settings of every pass, then the choice."""
    found: list[object] = []

    def read_pass(wanted: tuple[ReadSetting, ...]) -> PassResult:
        found.append(wanted)
        return PassResult({one: one.num_threads * 1e8 for one in wanted}, 1 - len(found) / 200)

    choice = search_settings(space, read_pass, seed=seed)
    return [*found, choice]


def test_the_same_seed_and_rates_give_the_same_search_and_another_seed_another_order() -> None:
    space = space_of(several=False)
    assert _passes(space, seed=3) == _passes(space, seed=3)
    assert _passes(space, seed=3) != _passes(space, seed=4)


def test_a_challenger_must_win_beyond_chance_and_by_2_percent() -> None:
    def passes(*ratios: float) -> list[Rates]:
        return [{at(4): 1e9, at(8): ratio * 1e9} for ratio in ratios]

    def chosen(*ratios: float) -> ReadSetting:
        return decide(passes(*ratios), at(4), challenger=at(8)).setting

    assert chosen(1.1, 1.2, 1.1, 1.3, 1.2) == at(8)
    assert chosen(2.0, 2.0, 2.0, 2.0) == at(4)  # four reads are too few
    assert chosen(1.1, 1.2, 0.8, 1.3, 1.2) == at(4)  # chance 5/32
    assert chosen(*[1.01, 1.011, 1.012, 1.013] * 5) == at(4)  # sure, and not worth it
    assert chosen(0.9, 0.8, 0.9, 0.7, 0.8) == at(4)
    said = decide(passes(1.1, 1.2, 1.1, 1.3, 1.2), at(4), challenger=at(8)).reason
    assert said == "against the default +20% in the median and faster in 5 of 5 paired reads"


def test_the_chance_of_paired_gains_is_that_of_signed_ranks() -> None:
    assert chance_of([0.1, 0.2, 0.3, 0.4, 0.5]) == 1 / 32
    assert chance_of([-0.1, 0.2, 0.3, 0.4, 0.5]) == 2 / 32
    assert chance_of([0.0, 0.0, 0.0]) == 1.0


def test_a_level_that_drifts_between_passes_cancels() -> None:
    passes: list[Mapping[ReadSetting, float]] = [{at(4): 1e9, at(8): 1.5e9}, {at(4): 4e9, at(8): 6e9}]
    gains = find_gains(passes, [at(4), at(8)], incumbent=at(4))
    assert gains == {at(4): 0.0, at(8): pytest.approx(math.log(1.5))}


def test_the_hopeless_go_after_one_pass_and_the_slower_half_after_two() -> None:
    running = [at(1), at(2), at(4), at(8), at(16)]
    first = {at(1): 0.3e9, at(2): 0.9e9, at(4): 1e9, at(8): 1.1e9, at(16): 1.2e9}
    after = survivors([first], running, incumbent=at(4))
    assert after == [at(2), at(4), at(8), at(16)]
    assert survivors([first, first], after, incumbent=at(4)) == [at(4), at(8), at(16)]
    failed = {setting: rate for setting, rate in first.items() if setting != at(16)}
    assert survivors([first, failed], after, incumbent=at(4)) == [at(4), at(8)]


def test_axes_run_through_a_setting_and_neighbours_are_one_step_away() -> None:
    space = space_of(several=False)
    assert [one.num_threads for one in axis_settings(space, at(4), ("num_threads",))] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
    ]
    assert set(neighbours(space, at(4))) == {at(4), at(2), at(8), at(4, 1, 2), at(4, 1, 8)}
    fixed = TuningGrid(
        at(4, 4), frozenset({at(4, 4), at(8, 2), at(16, 1), at(16, 4)}), (("num_threads", "in_flight"),)
    )
    assert set(axis_settings(fixed, at(4, 4), fixed.axes[0])) == fixed.allowed


DEFAULT = ReadSetting(num_threads=4, in_flight=1, request_bytes=2**22)
FAST = ReadSetting(num_threads=32, in_flight=1, request_bytes=2**22)
SPACE = TuningGrid(DEFAULT, frozenset({DEFAULT, FAST}), (("num_threads",),))
WHY = "chunk: Too many open files"


def test_the_duel_ends_when_one_of_the_two_does_not_work_any_more() -> None:
    """The challenger is eight times as fast, and in the midst of the duel it fails."""
    passes = 0

    def read_pass(wanted: tuple[ReadSetting, ...]) -> PassResult:
        nonlocal passes
        passes += 1
        rates = {one: 1e9 * one.num_threads for one in wanted if passes < 20 or one == DEFAULT}
        return PassResult(rates, 0.9)

    search_settings(SPACE, read_pass, seed=1)
    assert passes == 20


def test_what_was_chosen_and_has_failed_gives_way_to_the_default() -> None:
    chosen = Choice(FAST, "against the default +90%")
    assert unless_failed(chosen, DEFAULT, failed={}) == chosen
    found = unless_failed(chosen, DEFAULT, failed={FAST: WHY})
    assert found == Choice(DEFAULT, f"the default: 32 threads, 32 in flight, 4 MiB requests failed: {WHY}")
    with pytest.raises(NoSearchError, match="Too many open files"):
        unless_failed(chosen, DEFAULT, failed={FAST: WHY, DEFAULT: WHY})
    with pytest.raises(NoSearchError, match="Too many open files"):
        unless_failed(Choice(DEFAULT, ""), DEFAULT, failed={DEFAULT: WHY})
