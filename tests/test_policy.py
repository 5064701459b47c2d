"""Which lengths a sweep measures next, and when it is done."""

from dataclasses import replace

import numpy as np
import pytest

from bench.estimate.next_lengths import choose_lengths
from bench.record.plan import Plan
from bench.record.progress import End, Progress
from bench.record.run import RunRecord, SeriesInfo
from tests.simulate import Noise, Setting, Truth, draw_samples

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
        "every crossover is known to ±50 %, as --precision asked (a smaller one goes on)"
    )


def test_it_goes_on_while_the_crossing_is_not_known_well_enough() -> None:
    assert max(_chosen(_progress(CROSSING, [GRID] * 6, precision=0.001))) < 8192


def test_arms_that_never_cross_are_measured_on_the_whole_grid_until_the_budget_is_spent() -> None:
    assert choose_lengths(_progress(ALWAYS, [GRID] * 20)) == GRID


@pytest.mark.parametrize("truth", [CROSSING, ALWAYS])
def test_a_number_of_rounds_that_was_asked_for_is_kept(truth: Truth) -> None:
    assert choose_lengths(_progress(truth, [GRID] * 3, num_rounds=3, precision=0.001)) == End(
        "the rounds that --rounds asked for, 3, are measured"
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
