"""A sweep with a suffix: its proofs, its reasons and its words are those of the next tokens, not of whole prefixes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Crossing, Estimate, SweetSpot
from bench.estimate.tiers import make_tiers
from bench.record.notices import Notice
from bench.record.plan import Plan, SimulationSpec
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.report.figures.crossover_figure import caption
from bench.report.figures.labels import format_spot as format_beside
from bench.report.html import render_report, spot_grid, tier_grid, tile_answers
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import storage_name
from bench.report.text.main_answer import is_sound
from bench.report.text.sentence import describe_answer, format_arms, format_repeats, sentence, short_answer
from tests.helpers.sweeps import make_analysis, make_notice, make_run, make_samples, make_spot
from tests.helpers.tier_sweeps import DISK, MEMORY, OBJECTS, make_tier_run, make_tier_samples

SAMPLES = make_samples(num_rounds=2, num_samples=2)
ANALYSIS = make_analysis(SAMPLES)
START = (
    "For Qwen3-8B (bfloat16) on NVIDIA H200, loading from Samsung PM1743 by posix (best layout) "
    "over posix-direct (cold page cache), "
)
FAR = replace(OBJECTS, bytes_per_s=0.5e9)  # never faster than recompute
MEASURED = "measured 512 to 32,768 tokens, 2 rounds × 2 samples"


def say(**changes: object) -> str:
    return sentence(make_run(), SAMPLES, ANALYSIS, spot=make_spot(**changes))


def test_a_crossover_is_said_with_all_it_depends_on() -> None:
    assert describe_answer(make_run(), SAMPLES, ANALYSIS) == (
        START + "loading the whole prefix is faster than recomputing it beyond C* = 7,208 tokens "
        f"(95 % interval 6,890 to 7,545 tokens, {MEASURED})."
    )


def test_load_always_wins_names_no_number() -> None:
    assert say(verdict="load_always_wins", crossings=()) == (
        START + "loading the whole prefix is faster than recomputing it at every measured length, "
        f"so no C* lies in the range ({MEASURED})."
    )


def test_recompute_always_wins_names_no_number() -> None:
    assert say(verdict="recompute_always_wins", crossings=()) == (
        START + "loading the whole prefix is never faster than recomputing it at any measured length, "
        f"so no C* lies in the range ({MEASURED})."
    )


def test_several_crossings_are_said_in_order_with_their_directions() -> None:
    crossings = (
        Crossing(Estimate(700.0, 650.0, 760.0), (512, 1024), load_wins_beyond=True),
        Crossing(Estimate(9000.0, 8200.0, 9900.0), (8192, 16384), load_wins_beyond=False),
    )
    assert say(verdict="multiple_crossings", crossings=crossings) == (
        START + "there are 2 crossings C*: loading wins beyond 700 tokens (95 % interval 650 to 760 tokens), "
        f"then recomputing wins beyond 9,000 tokens (95 % interval 8,200 to 9,900 tokens) ({MEASURED})."
    )


def test_inconclusive_says_why() -> None:
    assert say(verdict="inconclusive", crossings=(), reason="rounds disagree at every length") == (
        START + f"no C* can be named, because rounds disagree at every length ({MEASURED})."
    )


def test_p_star_is_never_called_c_star() -> None:
    said = say(kind="marginal")
    assert "loading the next KV chunk is faster than computing it beyond P* = 7,208 tokens" in said
    assert "C*" not in said


def test_a_tail_names_its_statistic() -> None:
    assert "beyond C* (p95 load) = 7,208 tokens" in say(statistic="p95")
    assert short_answer(make_spot(statistic="p95")) == "C* (p95 load) = 7,208 tokens"


def test_a_crossing_without_an_interval_says_so() -> None:
    said = say(crossings=(Crossing(Estimate(7208.4), (4096, 8192), load_wins_beyond=True),))
    assert "= 7,208 tokens (no 95 % interval: too few rounds, measured" in said


def test_an_extrapolated_crossing_is_said_after_the_verdict_and_as_what_it_is() -> None:
    crossing = Crossing(Estimate(90000.0), (32768, 32768), load_wins_beyond=True, extrapolated=True)
    said = say(verdict="recompute_always_wins", crossings=(crossing,))
    assert said.endswith(
        "so no C* lies in the range; the fitted curves cross at 90,000 tokens, an extrapolation "
        f"({MEASURED})."
    )


def test_load_may_win_only_below() -> None:
    crossing = Crossing(Estimate(7208.4, 7e3, 8e3), (4096, 8192), load_wins_beyond=False)
    assert "is faster than recomputing it only below C* = 7,208 tokens" in say(crossings=(crossing,))
    falling = make_spot(crossings=(crossing,))
    assert short_answer(falling) == "C* = 7,208 tokens (load wins below)"
    assert format_beside(falling) == "C* = 7,208 (load wins below)"
    rising = Crossing(Estimate(20e3), (16384, 32768), load_wins_beyond=True)
    several = make_spot(verdict="multiple_crossings", crossings=(crossing, rising))
    assert short_answer(several) == "C*: load wins below 7,208 and beyond 20,000 tokens"


def test_cold_in_a_virtual_machine_is_cold_in_guest() -> None:
    run = make_run(storage={"name": "ext4 on vda (virtio)", "in_guest": True})
    assert (
        "ext4 on vda (virtio) by posix (best layout) over posix-direct (cold in guest page cache)"
        in describe_answer(run, SAMPLES, ANALYSIS)
    )


def test_a_read_limit_is_part_of_the_storage() -> None:
    run = make_run(plan=Plan(model="qwen3-8b", limit_bytes_per_s=2e9))
    assert "loading from Samsung PM1743 limited to 2.00 GB/s by posix (best layout)" in describe_answer(
        run, SAMPLES, ANALYSIS
    )


def test_scaled_layers_are_said() -> None:
    every = [replace(s, outcome=replace(s.outcome, measured_layers=4, total_layers=36)) for s in SAMPLES]
    assert "2 samples, recompute and first-token steps scaled from 4 of 36 layers)." in describe_answer(
        make_run(), every, ANALYSIS
    )
    shallow = [
        replace(s, outcome=replace(s.outcome, measured_layers=4)) if s.case.arm == "recompute" else s
        for s in SAMPLES
    ]
    assert "2 samples, recompute scaled from 4 of 36 layers)." in describe_answer(
        make_run(), shallow, ANALYSIS
    )


def test_notices_that_the_interval_says_already_do_not_make_the_answer_suspect() -> None:
    spot = make_spot(notices=(Notice(kind="few_rounds", detail="2 rounds"),))
    points = tuple(replace(point, notices=("few_rounds", "noisy_load")) for point in ANALYSIS.points)
    notices = (
        Notice(kind="few_rounds", series="load-1", detail="2 rounds"),
        Notice(kind="noisy_load", series="load-1", detail="at 512 tokens"),
        Notice(kind="other", detail="text"),
    )
    analysis = replace(ANALYSIS, spots=(spot,), points=points, notices=notices)
    assert describe_answer(make_run(), SAMPLES, analysis).endswith("; suspect: other).")


def test_only_samples_that_were_proved_cold_tell_the_path_of_a_cold_series() -> None:
    settings = {"backend": "posix", "preset": "best", "cache_state": "direct"}
    info = make_run().series["load-1"].model_copy(update={"settings": settings})
    run = make_run(series={**make_run().series, "load-1": info})
    stray = replace(SAMPLES[-1].outcome, cache_state="unverified", data_path="posix-buffered")
    said = describe_answer(run, [*SAMPLES, replace(SAMPLES[-1], outcome=stray)], ANALYSIS)
    assert "over posix-direct (cold page cache)" in said


def test_suspect_notices_are_said_and_harmless_ones_are_not() -> None:
    run = make_run(notices=(make_notice(), Notice(kind="half_line", detail="dropped")))
    assert describe_answer(run, SAMPLES, ANALYSIS).endswith("2 samples; suspect: drift_load).")


def test_without_any_load_series_the_sentence_says_that_nothing_can_be_said() -> None:
    run = make_run(series={})
    said = describe_answer(run, [], replace(ANALYSIS, points=(), spots=(), fits=()))
    assert said == (
        "For Qwen3-8B (bfloat16) on NVIDIA H200 with Samsung PM1743, nothing can be said: "
        "no load series was measured (0 rounds × 0 samples)."
    )


@pytest.mark.parametrize(
    "verdict", ["crossover", "load_always_wins", "recompute_always_wins", "inconclusive"]
)
def test_it_is_one_sentence_on_one_line(verdict: str) -> None:
    run = make_run(model_name="evil\n\x1b[2Jmodel")
    changes = {} if verdict == "crossover" else {"crossings": ()}
    said = sentence(run, SAMPLES, ANALYSIS, spot=make_spot(verdict=verdict, **changes))
    assert said.endswith(".") and "\n" not in said and "\x1b" not in said and ". " not in said


def test_what_was_noticed_of_another_series_does_not_make_this_one_suspect() -> None:
    ways = (MEMORY, FAR)
    unknown = Notice(kind="server_caches_unknown", series="s3/best", detail="server's caches unknown")
    run = make_tier_run(ways).model_copy(update={"notices": (unknown,)})
    samples = make_tier_samples(ways)
    analysis = analyse(run, samples)
    assert suspect_codes(run, samples, analysis, series="hostmem/best") == ()
    assert suspect_codes(run, samples, analysis, series="s3/best")[0] == "server_caches_unknown"
    assert not is_sound(run, samples, analysis)  # the run holds what cannot be trusted
    assert is_sound(make_tier_run(ways), samples, analysis)


def test_host_memory_is_not_said_to_be_the_drive_or_limited() -> None:
    run = make_tier_run((MEMORY, DISK), limit_bytes_per_s=1e8)
    assert storage_name(run, "hostmem/best") == "host memory"
    assert storage_name(run, "posix/best") == "Samsung PM1743 limited to 100 MB/s"


def test_a_check_that_did_not_pass_makes_the_answer_suspect_without_any_notice() -> None:
    ways = (MEMORY, FAR)
    samples = make_tier_samples(ways)
    analysis = analyse(make_tier_run(ways), samples)
    run = make_tier_run(ways).model_copy(update={"checks": {"answer:s3/best": {"passed": False}}})
    assert "check_failed" in suspect_codes(run, samples, analysis, series="s3/best")
    assert suspect_codes(run, samples, analysis, series="hostmem/best") == ()
    assert not is_sound(run, samples, analysis)
    assert is_sound(make_tier_run(ways), samples, analysis)


def _run(suffix_tokens: int = 256) -> RunRecord:
    """Disk and memory, the disk asked to be read past the page cache."""
    run = make_tier_run((DISK, MEMORY), suffix_tokens=suffix_tokens)
    disk = run.series["posix/best"]
    disk = disk.model_copy(update={"settings": {**disk.settings, "cache_state": "direct"}})
    return run.model_copy(update={"series": {**run.series, "posix/best": disk}})


def _samples(spoilt: Callable[[Sample], bool] = lambda _: False, suffix_tokens: int = 256) -> list[Sample]:
    return [
        replace(sample, outcome=replace(sample.outcome, cache_state="warm"))
        if sample.case.series == "posix/best" and spoilt(sample)
        else sample
        for sample in make_tier_samples((DISK, MEMORY), suffix_tokens=suffix_tokens)
    ]


def _marginal(analysis: Analysis) -> SweetSpot:
    (found,) = [s for s in analysis.spots if (s.series, s.kind) == ("posix/best", "marginal")]
    return found


def test_what_was_left_out_of_the_next_tokens_is_said_of_p_star() -> None:
    run, samples = _run(), _samples(lambda sample: sample.round == 0)
    analysis = analyse(run, samples)
    assert _marginal(analysis).verdict == "crossover"
    (said,) = _marginal(analysis).notices
    assert (said.kind, said.series) == ("not_cold", "posix/best")
    assert said.detail.startswith("4 of 24")
    assert "; suspect: not_cold" in describe_answer(run, samples, analysis)
    assert (
        f"posix, best layout: {said.detail}" in tier_grid(run, make_tiers(run, samples, analysis)).footnotes
    )
    assert not is_sound(run, samples, analysis)


def test_a_length_that_is_seldom_usable_is_said_of_p_star() -> None:
    run = _run()
    samples = _samples(lambda sample: sample.case.prefix_tokens == 1000 and sample.round < 5)
    notices = _marginal(analyse(run, samples)).notices
    assert any("1000" in notice.detail for notice in notices if notice.kind == "seldom_usable")


def test_without_any_load_that_counts_that_is_the_reason_and_not_recompute() -> None:
    run, samples = _run(), _samples(lambda _: True)
    analysis = analyse(run, samples)
    assert _marginal(analysis).reason == "none of 24 load samples counts"
    assert "no P* of the next 256 tokens can be named, because none of 24 load samples counts" in (
        describe_answer(run, samples, analysis)
    )
    assert _marginal(analysis).notices[0].detail.startswith("24 of 24 samples")


def test_of_an_arm_without_a_sample_the_other_is_not_blamed() -> None:
    run, samples = _run(), _samples()
    alone = [sample for sample in samples if sample.case.arm == "recompute"]
    assert _marginal(analyse(run, alone)).reason == "no load samples"
    loads = [sample for sample in samples if sample.case.arm == "load"]
    assert _marginal(analyse(run, loads)).reason == "no recompute samples"


def test_c_star_is_not_said_to_lack_samples_where_it_was_not_asked() -> None:
    analysis = analyse(_run(), _samples())
    reasons = {spot.reason for spot in analysis.spots if (spot.kind, spot.statistic) == ("whole", "p50")}
    assert reasons == {"only the next 256 tokens were timed, no whole prefixes"}


def test_arms_of_different_rounds_have_no_round_in_common() -> None:
    samples = [s for s in _samples() if (s.case.arm == "recompute") == (s.round < 3)]
    assert _marginal(analyse(_run(), samples)).reason.endswith(
        "no round measured both arms at the same length"
    )


@pytest.mark.parametrize(
    ("suffix_tokens", "said"),
    [
        (0, ("loading the next KV chunk", "computing it")),
        (256, ("loading the next 256 tokens", "computing them")),
        (1024, ("loading the next 1,024 tokens", "computing them")),
        (1000, ("loading the next 1,000 tokens (loaded in whole KV chunks of 256)", "computing them")),
        (64, ("loading the next 64 tokens (loaded in whole KV chunks of 256)", "computing them")),
        (1, ("loading the next token (loaded in whole KV chunks of 256)", "computing it")),
    ],
)
def test_p_star_is_said_of_the_tokens_that_were_timed(suffix_tokens: int, said: tuple[str, str]) -> None:
    assert format_arms(_run(suffix_tokens), "posix/best") == said


def test_a_simulated_drive_gives_the_tokens_alone() -> None:
    run = _run().model_copy(update={"plan": Plan(model="m", suffix_tokens=64, simulation=SimulationSpec())})
    assert format_arms(run, "posix/best")[0] == "loading the next 64 tokens"


def test_sentence_caption_table_and_page_name_the_suffix() -> None:
    run, samples = _run(1000), _samples(suffix_tokens=1000)
    analysis = analyse(run, samples)
    said = "the next 1,000 tokens (loaded in whole KV chunks of 256)"
    answer = describe_answer(run, samples, analysis)
    assert f"loading {said} is faster than computing them beyond P* = 2,5" in answer
    assert "KV chunk is" not in answer
    assert f"times of {said}; " in caption(run, samples, analysis)
    assert f"P* of {said}" in {row[1] for row in spot_grid(run, analysis).rows}
    assert any(f"load of {said} by posix" in holds for _, holds in tile_answers(run, analysis))
    page = render_report(run, samples, analysis)
    assert f"beyond which loading {said} is cheaper than computing them." in page


CROSSING = Crossing(Estimate(7208.0), (4096, 8192), load_wins_beyond=True)


def _thinned() -> list[Sample]:
    """Six rounds of three samples, but two rounds of load at 4,096 tokens and two samples of recompute there."""
    return [
        s
        for s in make_samples()
        if s.case.prefix_tokens != 4096 or (s.round < 2 if s.case.arm == "load" else s.sample < 2)
    ]


def test_equal_rounds_and_samples_are_said_once() -> None:
    assert format_repeats(make_run(), make_samples()) == "6 rounds × 3 samples"
    assert format_repeats(make_run(), make_samples(), crossings=(CROSSING,)) == "6 rounds × 3 samples"
    assert format_repeats(make_run(), make_samples(num_rounds=1, num_samples=1)) == "1 round × 1 sample"
    assert format_repeats(make_run(), []) == "0 rounds × 0 samples"


def test_lengths_that_differ_give_a_range_and_a_crossing_its_own_lengths() -> None:
    run, samples = make_run(), _thinned()
    assert format_repeats(run, samples) == "2 to 6 rounds × 2 to 3 samples"
    # the rounds without load at 4,096 tokens have 2,048 and 8,192 around the crossing
    near = format_repeats(run, samples, crossings=(CROSSING,))
    assert near == "6 rounds × 2 to 3 samples around the crossing"
    far = replace(CROSSING, tokens=Estimate(12_000.0))
    assert format_repeats(run, samples, crossings=(far,)) == "6 rounds × 3 samples around the crossing"
    assert format_repeats(run, samples, crossings=(far, far)).endswith(" around the crossings")


def test_rounds_that_lie_on_one_side_of_the_crossing_tell_nothing_of_it() -> None:
    between = replace(CROSSING, tokens=Estimate(2950.0))
    samples = [s for s in make_samples() if s.case.prefix_tokens in {2048, 4096} or s.round < 1]
    said = format_repeats(make_run(), samples, crossings=(between,))
    assert said == "6 rounds × 3 samples around the crossing"
    assert (
        format_repeats(make_run(), samples, crossings=(CROSSING,))
        == "1 round × 3 samples around the crossing"
    )
    outside = replace(CROSSING, extrapolated=True)
    assert format_repeats(make_run(), samples, crossings=(outside,)) == "1 to 6 rounds × 3 samples"


def test_samples_that_do_not_count_and_rounds_of_one_arm_alone_are_not_counted() -> None:
    samples = [
        replace(s, outcome=replace(s.outcome, verified=False)) if s.case.arm == "load" and s.round == 0 else s
        for s in make_samples(num_rounds=4)
        if s.case.arm == "load" or s.round != 1
    ]
    assert format_repeats(make_run(), samples) == "2 rounds × 3 samples"


def test_a_series_has_its_own_rounds() -> None:
    run = make_tier_run((MEMORY, DISK))
    samples = [s for s in make_tier_samples((MEMORY, DISK)) if s.case.series != DISK.series or s.round < 4]
    assert format_repeats(run, samples, series={DISK.series}) == "4 rounds × 1 sample"
    assert format_repeats(run, samples, series={MEMORY.series}) == "6 rounds × 1 sample"
    analysis = analyse(run, samples)
    assert "4 to 6 rounds × 1 sample" in caption(run, samples, analysis)
    assert ", 6 rounds × 1 sample)" in describe_answer(run, samples, analysis)


def test_samples_of_another_question_are_not_counted() -> None:
    samples = [*make_tier_samples((DISK,)), *make_tier_samples((DISK,), num_rounds=3, suffix_tokens=64)]
    assert format_repeats(make_tier_run((DISK,)), samples) == "6 rounds × 1 sample"
    assert format_repeats(make_tier_run((DISK,), suffix_tokens=64), samples) == "3 rounds × 1 sample"
