from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, HybridCurve, HybridPoint
from bench.record.notices import Notice
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.report.html import notice_lines
from bench.report.notice_text import suspect_codes
from bench.report.text.hybrid_text import describe_hybrids, suspects_of
from bench.report.text.main_answer import is_sound, loads_are_sound
from bench.report.text.sentence import describe_undecided
from tests.helpers.tier_sweeps import MEMORY, NEVER, Way, make_tier_run, make_tier_samples

WAYS = (MEMORY, NEVER)  # both decided at every length


def _asked_direct(ways: Sequence[Way] = WAYS) -> RunRecord:
    """The run, its second way asked to be read past the page cache."""
    run, name = make_tier_run(ways), ways[1].series
    info = run.series[name]
    info = info.model_copy(update={"settings": {**info.settings, "cache_state": "direct"}})
    return run.model_copy(update={"series": {**run.series, name: info}})


def _spoil(samples: Sequence[Sample], num_rounds: int) -> list[Sample]:
    """The second way's samples of so many rounds without proof."""
    return [
        replace(s, outcome=replace(s.outcome, cache_state="unverified"))
        if s.case.series == NEVER.series and s.round < num_rounds
        else s
        for s in samples
    ]


def test_a_run_whose_ways_are_all_decided_is_sound() -> None:
    samples = make_tier_samples(WAYS)
    assert is_sound(_asked_direct(), samples, analyse(_asked_direct(), samples))


@pytest.mark.parametrize("num_rounds", [1, 6])
def test_another_way_without_proof_makes_the_run_unsound(num_rounds: int) -> None:
    run, samples = _asked_direct(), _spoil(make_tier_samples(WAYS), num_rounds)
    analysis = analyse(run, samples)
    assert not is_sound(run, samples, analysis)
    assert not loads_are_sound(run, samples, analysis)


def test_another_way_that_is_inconclusive_makes_the_run_unsound_and_its_reason_is_said() -> None:
    run, samples = make_tier_run(WAYS), make_tier_samples(WAYS)
    few = [s for s in samples if s.case.series != NEVER.series or s.round < 2]
    analysis = analyse(run, few)
    assert not is_sound(run, few, analysis)
    assert describe_undecided(run, analysis) == (
        "Load by nixl, best layout: no C* can be named, because "
        "fewer than 3 rounds measured both arms at any length: no interval.",
    )
    assert describe_undecided(run, analyse(run, samples)) == ()


def test_another_way_that_drifts_makes_the_run_unsound() -> None:
    run = make_tier_run(WAYS)
    samples = [
        replace(s, outcome=replace(s.outcome, seconds=s.outcome.seconds * (1 + 0.1 * s.round)))
        if s.case.series == NEVER.series
        else s
        for s in make_tier_samples(WAYS)
    ]
    analysis = analyse(run, samples)
    assert {spot.verdict for spot in analysis.spots if spot.kind == "whole" and spot.statistic == "p50"} == {
        "load_always_wins",
        "recompute_always_wins",
    }
    assert not is_sound(run, samples, analysis)


def _with_hybrid(*notices: str, skipped: str | None = None) -> tuple[RunRecord, list[Sample], Analysis]:
    run, samples = make_tier_run(WAYS), make_tier_samples(WAYS)
    point = HybridPoint(1000, 6, 6, None, 0.5, "load", None, notices)
    curve = HybridCurve("hybrid/hostmem/best", "hostmem/best", (point,), skipped)
    return run, samples, replace(analyse(run, samples), hybrids=(curve,))


def test_a_suspect_hybrid_makes_the_run_unsound_and_a_skipped_or_noisy_one_does_not() -> None:
    assert not is_sound(*_with_hybrid("not_cold"))
    assert is_sound(*_with_hybrid("few_rounds"))
    assert is_sound(*_with_hybrid(skipped="a few layers cannot stand for the model"))


def test_a_way_that_was_skipped_is_no_fault() -> None:
    run, samples = make_tier_run(WAYS), make_tier_samples((MEMORY,))
    info = run.series[NEVER.series]
    skipped = info.model_copy(update={"settings": {**info.settings, "skipped": "not here"}})
    assert not is_sound(run, samples, analyse(run, samples))
    run = run.model_copy(update={"series": {**run.series, NEVER.series: skipped}})
    assert is_sound(run, samples, analyse(run, samples))


def test_a_way_that_broke_in_its_check_is_a_fault_though_it_counts_as_skipped() -> None:
    run, samples = make_tier_run(WAYS), make_tier_samples((MEMORY,))
    info = run.series[NEVER.series]
    skipped = info.model_copy(update={"settings": {**info.settings, "skipped": "gone"}})
    broke = Notice(
        kind="series_failed", series=NEVER.series, detail="its check failed, so it was left out: gone"
    )
    run = run.model_copy(update={"series": {**run.series, NEVER.series: skipped}, "notices": (broke,)})
    assert not loads_are_sound(run, samples, analyse(run, samples))


def test_what_was_noticed_of_a_hybrid_by_name_is_said_of_it_and_of_no_load() -> None:
    run, samples, analysis = _with_hybrid()
    (curve,) = analysis.hybrids
    series = {**run.series, curve.series: run.series["hostmem/best"].model_copy(update={"arm": "hybrid"})}
    wrong = Notice(kind="wrong_answer", series=curve.series, detail="the logits check fails: by 3")
    unchecked = Notice(kind="answer_unchecked", series="hostmem/best", detail="the preflight had no time")
    run = run.model_copy(update={"series": series, "notices": (wrong, unchecked)})
    assert suspects_of(run, curve) == ("wrong_answer",)
    assert "(suspect: wrong_answer)" in describe_hybrids(run, analysis)[0]
    assert suspect_codes(run, samples, analysis, series="hostmem/best") == ("answer_unchecked",)
    lines = {line.code: line.message for line in notice_lines(run, samples, analysis)}
    assert lines["wrong_answer"] == wrong.text
    failed = run.model_copy(update={"notices": (), "checks": {f"answer:{curve.series}": {"passed": False}}})
    assert suspects_of(failed, curve) == ("check_failed",)


def test_every_message_of_a_code_is_said_and_each_once() -> None:
    run, samples = make_tier_run(WAYS), make_tier_samples(WAYS)
    messages = [f"{way.series}: skipped in round {number}" for way in WAYS for number in (1, 2, 2)]
    run = run.model_copy(update={"notices": tuple(Notice(kind="round_stopped", detail=m) for m in messages)})
    (line,) = (
        line for line in notice_lines(run, samples, analyse(run, samples)) if line.code == "round_stopped"
    )
    assert line.message == "; ".join(dict.fromkeys(messages))


def test_without_any_way_to_load_nothing_is_sound() -> None:
    run = make_tier_run(())
    assert not is_sound(run, [], analyse(run, []))


def test_a_harmless_notice_of_the_run_is_no_fault_and_a_suspect_one_is() -> None:
    run, samples = make_tier_run(WAYS), make_tier_samples(WAYS)
    for kind, suspect in (("drive_shared", True), ("budget_left", False), ("never heard of", True)):
        noticed = run.model_copy(update={"notices": (Notice(kind=kind, detail="y"),)})
        assert is_sound(noticed, samples, analyse(noticed, samples)) is not suspect
