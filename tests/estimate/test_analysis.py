import dataclasses
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.estimate.analysis import analyse
from bench.estimate.intervals import AnalysisError
from bench.estimate.results import Analysis, SweetSpot
from bench.estimate.sweet_spots import round_up
from bench.estimate.valid_samples import FAULTS
from bench.record.plan import Plan
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Case, Outcome, Sample
from bench.report.frames import crossover_frame, summary_frame
from tests.helpers.simulated_sweeps import Noise, Setting, Truth, draw_samples

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)


def make_run(**load_settings: object) -> RunRecord:
    return RunRecord(
        run_id="t",
        started_utc="2026-01-01T00:00:00Z",
        plan=Plan(model="simulated"),
        model_name="simulated",
        kv_bytes_per_token=1000,
        chunk_tokens=256,
        series={
            "recompute": SeriesInfo(arm="recompute", label="recompute"),
            "load": SeriesInfo(arm="load", label="load", settings=dict(load_settings)),
        },
    )


def draw(
    truth: Truth = Truth(),  # noqa: B008
    noise: Noise = Noise(0.02, sample=0.01),  # noqa: B008
    *,
    lengths: tuple[int, ...] = LENGTHS,
    num_rounds: int = 8,
    num_samples: int = 5,
    seed: int = 1,
) -> list[Sample]:
    setting = Setting(num_samples=num_samples)
    return draw_samples(
        [lengths] * num_rounds, truth, noise, setting=setting, rng=np.random.default_rng(seed)
    )


def change(sample: Sample, **values: object) -> Sample:
    return dataclasses.replace(sample, outcome=dataclasses.replace(sample.outcome, **values))  # type: ignore[arg-type]


def spot(analysis: Analysis, kind: str = "whole", statistic: str = "p50") -> SweetSpot:
    (found,) = [s for s in analysis.spots if (s.kind, s.statistic) == (kind, statistic)]
    return found


def test_a_clear_crossover_is_found_with_interval_bracket_and_exported_chunk() -> None:
    found = spot(analyse(make_run(), draw()))
    assert found.verdict == "crossover"
    (crossing,) = found.crossings
    assert crossing.bracket == (1024, 2048)
    assert crossing.tokens.low is not None and crossing.tokens.high is not None
    assert crossing.tokens.low < 1760.4 < crossing.tokens.high
    assert found.measured_range == (256, 8192)
    assert found.export_tokens == 1792
    assert set(found.sensitivity) == {"0.5x", "0.8x", "1.25x", "2x"}


def test_points_hold_paired_ratio_rate_and_break_even() -> None:
    point = next(
        p for p in analyse(make_run(), draw(noise=Noise(0, sample=0))).points if p.prefix_tokens == 4096
    )
    assert point.recompute_s is not None and point.load_s is not None and point.ratio is not None
    recompute_s = 0.02 + 2e-5 * 4096 + 4e-9 * 4096**2
    assert point.recompute_s.value == pytest.approx(recompute_s)
    assert point.load_s.value == pytest.approx(0.05 + 0.04096)
    assert point.ratio.value == pytest.approx(recompute_s / 0.09096)
    assert (point.num_rounds, point.num_samples, point.num_bytes) == (8, 80, 4_096_000)
    assert point.bytes_per_s is not None
    assert point.bytes_per_s.value == pytest.approx(4_096_000 / 0.04096)
    assert point.break_even_bytes_per_s == pytest.approx(4_096_000 / (recompute_s - 0.05))
    assert point.load_p95_s == pytest.approx(0.09096)
    assert point.load_p99_s is None  # 40 samples are not 100


def _timed(seconds: dict[str, list[list[float]]], lengths: tuple[int, ...] = (256,)) -> list[Sample]:
    """Samples of both arms, of each the seconds round by round, the same at every length."""
    return [
        Sample(number, 0, repetition, 0.0, Case(arm, arm, length), Outcome(one))  # type: ignore[arg-type]
        for arm, rounds in seconds.items()
        for number, samples in enumerate(rounds)
        for length in lengths
        for repetition, one in enumerate(samples)
    ]


def test_both_arms_count_the_median_of_their_samples_in_a_round() -> None:
    (point,) = analyse(
        make_run(), _timed({"recompute": [[1.0, 2.0, 9.0]] * 6, "load": [[9.0, 1.0, 2.0]] * 6})
    ).points
    assert point.recompute_s is not None and point.load_s is not None and point.ratio is not None
    assert point.recompute_s.value == pytest.approx(2.0)
    assert point.load_s.value == pytest.approx(2.0)
    assert point.ratio.value == pytest.approx(1.0)


def test_what_slows_both_arms_of_a_round_alike_leaves_the_verdict() -> None:
    factors = (1.0, 32.0, 2.0, 16.0, 4.0, 8.0)
    seconds = {"recompute": [[1.2 * factor] for factor in factors], "load": [[factor] for factor in factors]}
    assert spot(analyse(make_run(), _timed(seconds, (256, 512)))).verdict == "load_always_wins"


def test_mfu_divides_by_the_gemm_rate_of_the_same_round() -> None:
    samples = []
    for number, rate in enumerate((1e12, 2e12, 4e12)):
        samples.append(Sample(number, 0, 0, 0.0, Case("gemm", "gemm", 0), Outcome(1.0, flops_per_s=rate)))
        samples.append(
            Sample(number, 1, 0, 0.0, Case("recompute", "recompute", 256), Outcome(0.5, flops=0.25 * rate))
        )
        samples.append(Sample(number, 2, 0, 0.0, Case("load", "load", 256), Outcome(0.5)))
    (point,) = analyse(make_run(), samples).points
    assert point.mfu == pytest.approx(0.5)
    (bare,) = analyse(make_run(), [s for s in samples if s.case.arm != "gemm"]).points
    assert bare.mfu is None


def test_the_exported_value_is_rounded_up_to_whole_chunks() -> None:
    assert round_up(1757.0, 256) == 1792
    assert round_up(1792.0, 256) == 1792
    assert round_up(1792.1, 256) == 2048


def test_samples_that_were_not_proved_cold_are_left_out_and_counted() -> None:
    samples = [change(s, cache_state="warm") if s.case.arm == "load" and s.round == 0 else s for s in draw()]
    found = spot(analyse(make_run(cache_state="cold"), samples))
    assert found.verdict == "crossover"
    assert found.notices[0].kind == "not_cold"
    assert found.notices[0].detail.startswith("30 of 240 samples")


@pytest.mark.parametrize("state", ["warm", "unverified", None])
def test_nothing_labelled_cold_comes_from_samples_without_proof(state: str | None) -> None:
    samples = [change(s, cache_state=state) if s.case.arm == "load" else s for s in draw()]
    analysis = analyse(make_run(cache_state="direct"), samples)
    assert {s.verdict for s in analysis.spots} == {"inconclusive"}
    assert spot(analysis).reason == "none of 240 load samples counts"
    assert all(p.load_s is None for p in analysis.points)


def test_a_series_that_asked_for_warm_is_labelled_warm() -> None:
    samples = [change(s, cache_state="warm") if s.case.arm == "load" else s for s in draw()]
    found = spot(analyse(make_run(cache_state="warm"), samples))
    assert found.verdict == "crossover"
    assert found.notices[0].kind == "warm"


def test_wrong_bytes_never_count() -> None:
    samples = [change(s, verified=False) if s.case.arm == "load" and s.sample == 0 else s for s in draw()]
    found = spot(analyse(make_run(), samples))
    assert found.notices[0].kind == "wrong_bytes"
    assert found.notices[0].detail.startswith("48 of 240 samples")


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_impossible_seconds_stop_the_analysis_with_their_place(seconds: float) -> None:
    samples = draw()
    samples[7] = change(samples[7], seconds=seconds)
    case = samples[7].case
    with pytest.raises(
        AnalysisError, match=f"{case.arm} {case.series} at {case.prefix_tokens} tokens, round 1"
    ):
        analyse(make_run(), samples)


def test_no_samples_at_all_is_inconclusive() -> None:
    analysis = analyse(make_run(), [])
    assert {s.verdict for s in analysis.spots} == {"inconclusive"}
    assert spot(analysis).reason == "no recompute samples"
    assert len(crossover_frame(analysis)) == 3
    assert summary_frame(analysis).empty


def test_a_load_series_without_samples_is_named_beside_one_that_has_them() -> None:
    run = make_run()
    run = run.model_copy(update={"series": {**run.series, "gds": SeriesInfo(arm="load", label="gds")}})
    whole = {s.series: s for s in analyse(run, draw()).spots if (s.kind, s.statistic) == ("whole", "p50")}
    assert whole["load"].verdict == "crossover"
    assert (whole["gds"].verdict, whole["gds"].reason) == ("inconclusive", "no load samples")


def test_arms_that_never_met_in_a_round_are_inconclusive() -> None:
    samples = [s for s in draw() if (s.case.arm == "load") == (s.round % 2 == 0)]
    found = spot(analyse(make_run(), samples))
    assert (found.verdict, found.reason) == (
        "inconclusive",
        "no round measured both arms at the same length",
    )


@pytest.mark.parametrize(("lengths", "num_rounds"), [((1024,), 8), (LENGTHS, 1), ((1024,), 1)])
def test_one_length_or_one_round_is_inconclusive(lengths: tuple[int, ...], num_rounds: int) -> None:
    analysis = analyse(make_run(), draw(lengths=lengths, num_rounds=num_rounds))
    assert spot(analysis).verdict == "inconclusive"
    assert spot(analysis).crossings == ()


def test_two_recompute_series_are_refused() -> None:
    samples = draw(num_rounds=1)
    other = dataclasses.replace(samples[0], case=Case("recompute", "other", 256))
    with pytest.raises(AnalysisError, match=r"2 recompute series \(other, recompute\)"):
        analyse(make_run(), [*samples, other])


def test_a_crossing_beyond_the_range_is_said_to_be_extrapolated_and_never_exported() -> None:
    found = spot(analyse(make_run(), draw(lengths=(128, 256, 512, 1024))))
    assert found.verdict == "recompute_always_wins"
    (crossing,) = found.crossings
    assert crossing.extrapolated
    assert crossing.tokens.low is None
    assert crossing.tokens.value == pytest.approx(1760, rel=0.25)
    assert found.export_tokens is None
    assert any(notice.kind == "extrapolated" for notice in found.notices)


def test_neighbours_a_power_of_two_apart_are_noticed_and_nearer_ones_are_not() -> None:
    coarse = spot(analyse(make_run(), draw()))
    (said,) = [notice for notice in coarse.notices if notice.kind == "coarse_bracket"]
    assert "1024 and 2048 tokens" in said.detail
    fine = spot(analyse(make_run(), draw(lengths=(1024, 1536, 2048, 4096))))
    assert not any(notice.kind == "coarse_bracket" for notice in fine.notices)


def test_a_step_that_no_fit_can_follow_is_noticed() -> None:
    samples = [
        change(s, seconds=s.outcome.seconds * 3) if s.case == Case("load", "load", 2048) else s
        for s in draw()
    ]
    found = spot(analyse(make_run(), samples))
    assert any(notice.kind == "fit_disagrees" for notice in found.notices)


def test_slow_loads_raise_the_crossover_of_the_p95() -> None:
    samples = draw(noise=Noise(0.01, sample=0.01))
    slow = [
        change(s, seconds=s.outcome.seconds * 1.5) if s.case.arm == "load" and s.sample == s.round % 5 else s
        for s in samples
    ]
    analysis = analyse(make_run(), slow)
    median, tail = spot(analysis), spot(analysis, statistic="p95")
    assert median.verdict == tail.verdict == "crossover"
    assert tail.crossings[0].tokens.value > 1.3 * median.crossings[0].tokens.value
    # 1.5 (0.05 + 1e-5 n) = 0.02 + 2e-5 n + 4e-9 n^2
    assert tail.crossings[0].tokens.low is not None and tail.crossings[0].tokens.high is not None
    assert tail.crossings[0].tokens.low < 3135 < tail.crossings[0].tokens.high


def test_p95_says_how_many_samples_it_lacks_and_p99_needs_a_hundred() -> None:
    few = analyse(make_run(), draw(num_rounds=3))
    assert spot(few, statistic="p95").reason == (
        "0 lengths have 20 load samples in rounds of both arms; needs at least 2"
    )
    assert not [s for s in few.spots if s.statistic == "p99"]
    many = analyse(make_run(), draw(num_samples=13))
    assert spot(many, statistic="p99").verdict == "crossover"


def test_marginal_crossover_comes_from_slopes_and_says_so() -> None:
    # slopes: 1e-5 + 2 x 4e-9 n = 3e-5 at n = 2500; whole: 4e-9 n^2 - 2e-5 n = 0 at n = 5000
    truth = Truth((0.02, 1e-5, 4e-9), (0.02, 3e-5))
    analysis = analyse(make_run(), draw(truth, Noise(0.005, sample=0.005)))
    whole, marginal = spot(analysis), spot(analysis, "marginal")
    assert whole.crossings[-1].tokens.value == pytest.approx(5000, rel=0.05)
    assert marginal.verdict == "crossover"
    assert marginal.reason == "from slopes between neighbouring measured lengths"
    # the next chunk of 256 tokens costs as much as the slope at its middle
    assert marginal.crossings[0].tokens.value == pytest.approx(2500 - 128, rel=0.05)


def test_one_slope_gives_no_marginal_crossover_and_no_winner_at_a_length_that_nobody_measured() -> None:
    marginal = spot(analyse(make_run(), draw(lengths=(512, 1024))), "marginal")
    assert (marginal.verdict, marginal.measured_range) == ("inconclusive", None)
    assert marginal.reason.endswith(
        "only one pair of lengths has a slope, and P* needs two (more --tokens, or a longer --budget)"
    )


def test_marginal_crossover_is_measured_directly_when_there_is_a_suffix() -> None:
    samples = [dataclasses.replace(s, case=dataclasses.replace(s.case, suffix_tokens=512)) for s in draw()]
    found = spot(analyse(make_run(), samples + draw(seed=2)), "marginal")
    assert found.reason == "measured directly with a suffix"
    assert found.crossings[0].tokens.value == pytest.approx(1760, rel=0.06)


def test_a_case_that_drifts_over_the_rounds_is_noticed() -> None:
    samples = [
        change(s, seconds=s.outcome.seconds * (1 + 0.05 * s.round)) if s.case.arm == "load" else s
        for s in draw(noise=Noise(0.002, sample=0.002))
    ]
    analysis = analyse(make_run(), samples)
    (said,) = [notice for notice in analysis.notices if notice.kind == "drift_reading"]
    assert (said.series, said.detail) == ("load", f"at {', '.join(map(str, LENGTHS))} tokens")
    assert not any(notice.kind == "drift_recompute" for notice in analysis.notices)


def test_noisy_and_few_rounds_are_noticed() -> None:
    noisy = analyse(make_run(), draw(noise=Noise(0.3)))
    codes = {code for point in noisy.points for code in point.notices}
    assert codes & {"noisy_load", "noisy_reading", "noisy_first_token"} and "noisy_recompute" in codes
    few = analyse(make_run(), draw(num_rounds=4))
    assert all("few_rounds" in point.notices for point in few.points)
    assert any(notice.kind == "few_rounds" and "4 rounds" in notice.detail for notice in spot(few).notices)


def test_a_length_without_an_interval_is_not_told_what_its_interval_supposes() -> None:
    assert not any("few_rounds" in p.notices for p in analyse(make_run(), draw(num_rounds=2)).points)
    assert all("few_rounds" in p.notices for p in analyse(make_run(), draw(num_rounds=3)).points)


def test_fits_are_given_for_both_arms() -> None:
    recompute, load = analyse(make_run(), draw(noise=Noise(0, sample=0))).fits
    assert recompute.coefficients == (pytest.approx(0.02), pytest.approx(2e-5), pytest.approx(4e-9))
    assert load.coefficients == (pytest.approx(0.05), pytest.approx(1e-5))


def test_a_scaled_depth_is_marked() -> None:
    samples = [
        change(s, measured_layers=4, total_layers=32) if s.case.arm == "recompute" else s for s in draw()
    ]
    assert all(point.recompute_scaled for point in analyse(make_run(), samples).points)


def test_tables_name_the_unit_of_every_figure_and_the_kind_of_every_crossover() -> None:
    analysis = analyse(make_run(), draw())
    summary, crossover = summary_frame(analysis), crossover_frame(analysis)
    units = ("_s", "_tokens", "_bytes", "_bytes_per_s", "_ratio")
    names = {
        "series",
        "num_rounds",
        "num_samples",
        "recompute_scaled",
        "load_scaled",
        "load_fraction",
        "better_arm",
        "notices",
    }
    assert [c for c in summary.columns if not c.endswith(units) and c not in names] == []
    assert len(summary) == len(LENGTHS)
    assert sorted(set(crossover["kind"])) == ["marginal", "whole"]
    row = crossover[(crossover["kind"] == "whole") & (crossover["statistic"] == "p50")].iloc[0]
    assert row["crossover_low_tokens"] < row["crossover_tokens"] < row["crossover_high_tokens"]
    assert row["export_tokens"] == 1792
    assert math.isfinite(row["crossover_at_2x_bandwidth_tokens"])


def test_ten_thousand_samples_are_analysed_in_under_two_seconds() -> None:
    samples = draw(lengths=tuple(range(256, 256 * 64, 1024)), num_samples=40)
    assert len(samples) == 10_240
    start_s = time.process_time()
    analyse(make_run(), samples)
    assert time.process_time() - start_s < 2.0


def crossing_of(truth: Truth, scale: float = 1.0) -> float:
    samples = [
        change(
            s,
            seconds=s.outcome.seconds * scale,
            first_token_s=s.outcome.first_token_s and s.outcome.first_token_s * scale,
        )
        for s in draw(truth, num_rounds=6, num_samples=1)
    ]
    found = spot(analyse(make_run(), samples))
    return found.crossings[0].tokens.value if found.verdict == "crossover" else math.nan


@settings(max_examples=15, deadline=None)
@given(st.floats(1.05, 1.6))
def test_the_crossover_falls_when_load_gets_faster(factor: float) -> None:
    assert crossing_of(Truth(load_s=(0.05 / factor, 1e-5 / factor))) < crossing_of(Truth())


@settings(max_examples=15, deadline=None)
@given(st.floats(1.05, 1.9))
def test_the_crossover_rises_when_recompute_gets_faster(factor: float) -> None:
    faster = Truth(recompute_s=(0.02 / factor, 2e-5 / factor, 4e-9 / factor))
    assert crossing_of(faster) > crossing_of(Truth())


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([1e-9, 1e-3, 1e3, 60.0, 7.3]))
def test_the_answer_does_not_depend_on_the_unit_of_time(scale: float) -> None:
    assert crossing_of(Truth(), scale) == pytest.approx(crossing_of(Truth()), rel=1e-9)


def test_samples_that_nobody_checked_and_samples_above_their_limit_do_not_count() -> None:
    run = make_run(cache_state="direct")
    sound = [
        change(sample, cache_state="direct", verified=True) if sample.case.arm == "load" else sample
        for sample in draw()
    ]
    assert not any(notice.kind in FAULTS for notice in spot(analyse(run, sound)).notices)
    for fault, values in (
        ("unchecked_bytes", {"verified": None}),
        ("above_limit", {"notices": ("above_limit",)}),
    ):
        spoiled = [
            change(sample, **values) if sample.case.arm == "load" and sample.round == 0 else sample
            for sample in sound
        ]
        (found,) = [notice for notice in spot(analyse(run, spoiled)).notices if notice.kind == fault]
        assert found.detail.startswith("30 of 240")


def test_a_length_at_which_most_rounds_gave_nothing_usable_is_left_out_and_said() -> None:
    run, shortest = make_run(cache_state="direct"), LENGTHS[0]
    samples = [
        change(sample, cache_state="direct", verified=True) if sample.case.arm == "load" else sample
        for sample in draw()
    ]
    rounds = sorted({sample.round for sample in samples})
    assert len(rounds) == 8

    def spoil(num_rounds: int) -> list[Sample]:
        spoilt = {"arm": "load", "prefix_tokens": shortest}
        return [
            change(sample, notices=("above_limit",))
            if sample.round in rounds[:num_rounds]
            and all(getattr(sample.case, name) == value for name, value in spoilt.items())
            else sample
            for sample in samples
        ]

    kept = spot(analyse(run, spoil(4)))
    assert kept.measured_range == (shortest, LENGTHS[-1])
    left_out = spot(analyse(run, spoil(5)))
    assert left_out.measured_range == (LENGTHS[1], LENGTHS[-1])
    assert any(str(shortest) in n.detail for n in left_out.notices if n.kind == "seldom_usable")


def test_a_marginal_run_has_its_points_at_the_next_tokens() -> None:
    run = make_run()
    samples = [
        dataclasses.replace(sample, case=dataclasses.replace(sample.case, suffix_tokens=64))
        for sample in draw()
    ]
    analysis = analyse(run, samples)
    assert [point.prefix_tokens for point in analysis.points] == list(LENGTHS)
    assert spot(analysis, "marginal").verdict == "crossover"
