"""A sweep with a suffix: its proofs, its reasons and its words are those of the next tokens, not of whole prefixes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, SweetSpot
from bench.estimate.tiers import make_tiers
from bench.record.plan import Plan, SimulationSpec
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.report.figures.crossover_figure import caption
from bench.report.html import render_report, spot_grid, tier_grid, tile_answers
from bench.report.text.main_answer import is_sound
from bench.report.text.sentence import describe_answer, say_arms
from tests.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples


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
    said = "4 of 24 samples were not proved cold or direct as asked and are left out"
    assert _marginal(analysis).verdict == "crossover"
    assert _marginal(analysis).notices == (f"not_cold: {said}",)
    assert "; suspect: not_cold" in describe_answer(run, samples, analysis)
    assert f"posix, best layout: {said}" in tier_grid(run, make_tiers(run, samples, analysis)).footnotes
    assert not is_sound(run, samples, analysis)


def test_a_length_that_is_seldom_usable_is_said_of_p_star() -> None:
    run = _run()
    samples = _samples(lambda sample: sample.case.prefix_tokens == 1000 and sample.round < 5)
    notices = _marginal(analyse(run, samples)).notices
    assert "seldom_usable: 1000 tokens are not judged" in notices


def test_without_any_load_that_counts_that_is_the_reason_and_not_recompute() -> None:
    run, samples = _run(), _samples(lambda _: True)
    analysis = analyse(run, samples)
    assert _marginal(analysis).reason == "none of 24 load samples counts"
    assert "no P* of the next 256 tokens can be named, because none of 24 load samples counts" in (
        describe_answer(run, samples, analysis)
    )
    assert _marginal(analysis).notices[0].startswith("not_cold: 24 of 24 samples")


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
    assert say_arms(_run(suffix_tokens), "posix/best") == said


def test_a_simulated_drive_gives_the_tokens_alone() -> None:
    run = _run().model_copy(update={"plan": Plan(model="m", suffix_tokens=64, simulation=SimulationSpec())})
    assert say_arms(run, "posix/best")[0] == "loading the next 64 tokens"


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
