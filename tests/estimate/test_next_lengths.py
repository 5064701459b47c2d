"""Which lengths a sweep measures next, and when it is done."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from bench.estimate.intervals import AnalysisError
from bench.estimate.next_lengths import (
    RefineState,
    choose_lengths,
    coarse_grid,
    next_lengths,
    predict_cost_s,
    should_stop,
)
from bench.estimate.round_curves import RoundCurve, curve_of
from bench.record.plan import Plan
from bench.record.progress import End, Progress
from bench.record.run import RunRecord, SeriesInfo
from tests.helpers.simulated_sweeps import Noise, Setting, Truth, draw_samples, measure_round

ALLOWED = tuple(range(256, 8193, 256))
GRID = (256, 512, 1024, 2048, 4096, 8192)
CROSSING = Truth()  # at 1760 tokens
ALWAYS = Truth((1.0, 1e-3, 0.0), (0.01, 1e-5))


def _progress(
    truth: Truth,
    rounds: list[tuple[int, ...]],
    *,
    left_s: float = 1e6,
    loads: tuple[str, ...] = ("load",),
    **settings: object,
) -> Progress:
    run = RunRecord(
        run_id="t",
        started_utc="2026-01-01T00:00:00Z",
        plan=Plan.model_validate({"model": "m", **settings}),
        model_name="M",
        kv_bytes_per_token=1000,
        chunk_tokens=256,
        series={"load": SeriesInfo(arm="load", label="load")},
    )
    samples = draw_samples(
        rounds,
        truth,
        Noise(0.01, sample=0.01),
        setting=Setting(num_samples=2),
        rng=np.random.default_rng(0),
    )
    return Progress(
        run=run,
        samples=samples,
        loads=loads,
        allowed=ALLOWED,
        cost_s={tokens: tokens / 1000 for tokens in ALLOWED},
        rounds_done=len(rounds),
        budget_left_s=left_s,
        startup_s=1.0,
    )


def _chosen(progress: Progress) -> tuple[int, ...]:
    """Lengths of the next round, of which there is one."""
    chosen = choose_lengths(progress)
    assert not isinstance(chosen, End) and chosen
    return chosen


def test_a_sweep_begins_with_short_lengths_of_the_coarse_grid() -> None:
    assert choose_lengths(_progress(CROSSING, [])) == (256, 512, 1024, 2048)


def test_lengths_that_were_named_are_measured_as_named() -> None:
    progress = _progress(CROSSING, [(512, 4096)], tokens=(512, 4096))
    assert choose_lengths(progress) == progress.allowed


def test_after_the_coarse_rounds_the_crossing_is_bracketed() -> None:
    chosen = _chosen(_progress(CROSSING, [GRID, GRID]))
    assert any(1024 < tokens < 1760 for tokens in chosen)
    assert any(1760 < tokens < 4096 for tokens in chosen)
    assert 8192 not in chosen


def test_it_is_done_when_the_crossing_is_known_well_enough() -> None:
    assert choose_lengths(_progress(CROSSING, [GRID] * 6, precision=0.5)) == End(
        "every crossover is within ±50 % (--precision; a smaller value continues)"
    )


def test_it_goes_on_while_the_crossing_is_not_known_well_enough() -> None:
    assert max(_chosen(_progress(CROSSING, [GRID] * 6, precision=0.001))) < 8192


def test_arms_that_never_cross_are_measured_on_the_whole_grid_until_the_budget_is_spent() -> None:
    assert choose_lengths(_progress(ALWAYS, [GRID] * 20)) == GRID


@pytest.mark.parametrize("truth", [CROSSING, ALWAYS])
def test_a_number_of_rounds_that_was_asked_for_is_kept(truth: Truth) -> None:
    assert choose_lengths(_progress(truth, [GRID] * 3, num_rounds=3, precision=0.001)) == End(
        "all 3 rounds of --rounds are measured"
    )
    assert _chosen(_progress(truth, [GRID] * 2, num_rounds=3, precision=0.001))


def test_a_way_to_load_that_broke_neither_asks_for_lengths_nor_keeps_a_sweep_from_its_end() -> None:
    def with_broken(rounds: list[tuple[int, ...]], *, live: bool, precision: float) -> tuple[int, ...] | End:
        loads = ("load", "broken") if live else ("load",)
        progress = _progress(CROSSING, rounds, loads=loads, precision=precision)
        broken = SeriesInfo(arm="load", label="broken")
        run = progress.run.model_copy(update={"series": {**progress.run.series, "broken": broken}})
        return choose_lengths(replace(progress, run=run))

    alone = _chosen(_progress(CROSSING, [GRID] * 3))
    assert with_broken([GRID] * 3, live=True, precision=0.1) == tuple(sorted({*GRID, *alone}))
    assert with_broken([GRID] * 3, live=False, precision=0.1) == alone
    assert not isinstance(with_broken([GRID] * 6, live=True, precision=0.5), End)
    assert isinstance(with_broken([GRID] * 6, live=False, precision=0.5), End)


def test_lengths_refused_since_they_were_measured_are_not_chosen_again() -> None:
    progress = _progress(CROSSING, [GRID, GRID, (512, 1024, 1536, 2048)])
    assert max(_chosen(progress)) == 2048
    assert max(_chosen(replace(progress, allowed=ALLOWED[:7]))) == 1792


@pytest.mark.parametrize("lengths", [(1000,), (100, 120), (300, 1000)])
def test_lengths_that_were_named_need_be_no_multiples_of_a_chunk(lengths: tuple[int, ...]) -> None:
    for allowed in (lengths, lengths[:1]):  # all, and what is left after a longer one was refused
        for rounds in (0, 3):
            progress = replace(_progress(CROSSING, [lengths] * rounds, tokens=lengths), allowed=allowed)
            assert choose_lengths(progress) == allowed


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_round_that_does_not_fit_into_the_budget_is_told_from_one_that_is_not_wanted(rounds: int) -> None:
    end = choose_lengths(_progress(CROSSING, [GRID] * rounds, left_s=1.1))  # 1 s of it until it measures
    assert isinstance(end, End)
    assert end.wanted == _chosen(_progress(CROSSING, [GRID] * rounds))
    assert _progress(CROSSING, []).cost_s[end.wanted[0]] > 0.1


def test_one_length_is_measured_again_where_it_fits_and_no_more_does() -> None:
    # 256 tokens cost 0.256 s, more than 60 % of what is left
    assert _chosen(_progress(CROSSING, [(256, 512)], left_s=1.3)) == (256,)


def test_a_simulation_ends_after_forty_rounds() -> None:
    progress = _progress(CROSSING, [GRID] * 40, precision=0.001, simulation={})
    assert choose_lengths(progress) == End("a simulation ends after 40 rounds")


GRID_REFINE = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
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
    assert coarse_grid(make()) == GRID_REFINE
    assert coarse_grid(make(min_tokens=300, max_tokens=5000)) == (512, 1024, 2048, 4864)
    assert coarse_grid(make(max_tokens=1500)) == (256, 512, 1280)
    assert coarse_grid(make(max_tokens=300)) == (256,)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(AnalysisError, match="no multiple of 256 tokens between 300 and 400"):
        make(min_tokens=300, max_tokens=400)


def test_the_first_round_leaves_out_the_most_costly_lengths_and_the_second_adds_them() -> None:
    assert next_lengths(make()) == GRID_REFINE[:6]
    assert next_lengths(make(measure([GRID_REFINE[:6]]))) == GRID_REFINE


def test_the_second_round_takes_only_what_the_budget_allows() -> None:
    costs = {n: n / 256 for n in GRID_REFINE[:6]}  # 1, 2, 4, 8, 16, 32 s; then 128 s and 512 s by the square
    state = make(measure([GRID_REFINE[:6]]), cost_s=costs, remaining_s=300.0)
    assert next_lengths(state) == GRID_REFINE[:7]
    assert next_lengths(dataclasses.replace(state, remaining_s=10.0)) == GRID_REFINE[:3]
    assert next_lengths(dataclasses.replace(state, remaining_s=0.5)) == ()


def test_costs_are_interpolated_between_known_lengths_and_grow_as_the_square_beyond() -> None:
    state = make(cost_s={256: 1.0, 1024: 4.0})
    assert predict_cost_s(state, 512) == pytest.approx(2.0)
    assert predict_cost_s(state, 2048) == pytest.approx(16.0)
    assert predict_cost_s(make(), 2048) == 0.0


def test_later_rounds_bracket_the_crossing_closely_in_chunk_steps() -> None:
    lengths = next_lengths(make(measure([GRID_REFINE[:6], GRID_REFINE])))
    low, high = max(n for n in lengths if n < 1760), min(n for n in lengths if n > 1760)
    assert low % 256 == high % 256 == 0
    assert high / low <= 2048 / 1280
    assert not [n for n in lengths if n > high and n < 16384]


def test_the_bracket_is_kept_while_the_crossing_stays_inside() -> None:
    rounds = [GRID_REFINE[:6], GRID_REFINE]
    rounds.append(next_lengths(make(measure(rounds))))
    for _ in range(2):
        rounds.append(next_lengths(make(measure(rounds))))
    assert rounds[-1] == rounds[-2]


def test_more_noise_makes_a_wider_bracket() -> None:
    def width(noise: Noise) -> float:
        lengths = next_lengths(make(measure([GRID_REFINE, GRID_REFINE], noise=noise)))
        return min(n for n in lengths if n > 1760) / max(n for n in lengths if n < 1760)

    assert width(Noise(0.08)) > width(QUIET)


def test_both_of_two_crossings_are_bracketed() -> None:
    truth = Truth((0.2, 1e-5, 4e-9), (0.02, 1e-4))  # crosses at 2219 and 20281
    lengths = next_lengths(make(measure([GRID_REFINE, GRID_REFINE], truth)))
    for crossing in (2219, 20281):
        low = max(n for n in lengths if n < crossing)
        high = min(n for n in lengths if n > crossing)
        assert high / low < 2


def test_without_a_crossing_the_undecided_lengths_are_measured_again() -> None:
    calm = [{float(n): 0.5 for n in GRID_REFINE} for _ in range(4)]
    for number, values in enumerate(calm):
        values[512.0] = 0.3 * (-1) ** number + 0.2
    curves = tuple(curve_of(values) for values in calm)
    assert 512 in next_lengths(make(curves))
    assert 8192 not in next_lengths(make(curves))


def test_a_coarse_length_that_was_tried_three_times_in_vain_is_not_tried_again() -> None:
    curves = measure([GRID_REFINE[1:], GRID_REFINE[1:]])
    assert 256 in next_lengths(make(curves, tried={256: 2}))
    assert 256 not in next_lengths(make(curves, tried={256: 3}))


def test_rounds_that_share_no_length_still_give_lengths_for_the_next() -> None:
    curves = (curve_of({512.0: -0.1}), curve_of({512.0: -0.12}), curve_of({1024.0: 0.1}))
    assert {512, 1024} <= set(next_lengths(make(curves)))


def test_it_stops_when_precise_but_not_before_six_rounds() -> None:
    bracket = (512, 1024, 1536, 2048)
    assert not should_stop(make(measure([GRID_REFINE, GRID_REFINE, *[bracket] * 3])))
    assert should_stop(make(measure([GRID_REFINE, GRID_REFINE, *[bracket] * 4])))
    assert not should_stop(make(measure([GRID_REFINE, GRID_REFINE, *[bracket] * 4]), precision=0.001))


def test_it_stops_after_the_planned_rounds_or_when_the_budget_is_spent() -> None:
    assert should_stop(make(measure([GRID_REFINE] * 8, noise=Noise(0.3)), precision=0.001))
    assert should_stop(make(measure([GRID_REFINE]), remaining_s=0.0))
    assert should_stop(make(measure([GRID_REFINE] * 3), num_rounds=3))


def test_it_goes_on_while_one_of_two_series_is_open() -> None:
    clear = measure([GRID_REFINE] * 6)
    tied = measure([GRID_REFINE] * 6, Truth((0.02, 2e-5, 0.0), (0.02, 2e-5)), Noise(0.05))
    assert should_stop(make(clear))
    assert not should_stop(dataclasses.replace(make(clear), curves=(clear, tied)))


def test_lengths_that_were_refused_since_are_not_asked_for_again() -> None:
    crossing = measure([GRID_REFINE[:6], GRID_REFINE, GRID_REFINE])  # at 1760
    tied = measure(
        [GRID_REFINE[:6], GRID_REFINE, GRID_REFINE], Truth((0.02, 2e-5, 0.0), (0.02, 2e-5)), Noise(0.05)
    )
    beyond = measure([GRID_REFINE] * 3, Truth((0.02, 2e-5, 0.0), (0.3, 1e-5)))  # crosses at 28000
    for curves in (crossing, tied, beyond):
        assert max(next_lengths(make(curves))) > 1536
        for longest in (1536, 1024, 256):
            chosen = next_lengths(make(curves, max_tokens=longest))
            assert chosen and max(chosen) <= longest


def test_a_bracket_whose_upper_end_was_refused_ends_at_the_longest_length_left() -> None:
    curves = measure([GRID_REFINE, GRID_REFINE, (512, 1024, 1536, 2048)])
    assert next_lengths(make(curves)) == (512, 1024, 1536, 2048)
    tried = {1792: 3}  # else it would be measured as a coarse length
    assert next_lengths(make(curves, max_tokens=1792, tried=tried)) == (512, 1024, 1280, 1792)


def test_when_every_open_length_was_refused_the_coarse_ones_get_surer() -> None:
    calm = [{float(n): 0.5 for n in GRID_REFINE} for _ in range(4)]
    for number, values in enumerate(calm):
        values[8192.0] = 0.3 * (-1) ** number + 0.2
    curves = tuple(curve_of(values) for values in calm)
    assert 8192 in next_lengths(make(curves))
    assert next_lengths(make(curves, max_tokens=4096)) == GRID_REFINE[:5]
