from dataclasses import replace

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Crossing, Estimate
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.report.figures.labels import say_spot as say_beside
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import storage_name
from bench.report.text.main_answer import is_sound
from bench.report.text.sentence import describe_answer, sentence, short_answer
from tests.sweeps import make_analysis, make_notice, make_run, make_samples, make_spot
from tests.tier_sweeps import DISK, MEMORY, OBJECTS, make_tier_run, make_tier_samples

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
    assert say_beside(falling) == "C* = 7,208 (load wins below)"
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
    spot = make_spot(notices=("few_rounds: 2 rounds, so the interval supposes near-normal noise",))
    points = tuple(replace(point, notices=("few_rounds", "noisy_load")) for point in ANALYSIS.points)
    notices = ("load-1: few_rounds: 2 rounds, so", "load-1: noisy_load at 512 tokens", "other: text")
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
    run = make_run(notices=(make_notice(), Notice(code="half_line", message="dropped", suspect=False)))
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
    unknown = Notice(code="server_caches_unknown", message="s3/best: server's caches unknown")
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
