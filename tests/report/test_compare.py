from dataclasses import replace

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Crossing, Estimate
from bench.record.notices import Notice
from bench.report.compare import ComparedResult, DifferentMachinesError, compare, differing_facts
from bench.report.text.terminal import plain
from tests.helpers.sweeps import make_analysis, make_run, make_samples, make_spot
from tests.helpers.tier_sweeps import DISK, MEMORY, NEVER, make_tier_run, make_tier_samples

SAMPLES = make_samples(tokens=(4096, 8192), num_rounds=2, num_samples=1)
ANALYSIS = make_analysis(SAMPLES)


def result(**changes: object) -> ComparedResult:
    return ComparedResult(make_run(**changes), SAMPLES, ANALYSIS)


def test_spots_of_several_runs_stand_side_by_side() -> None:
    comparison = compare([result(), result(run_id="second", storage={"name": "NFS"})])
    assert len(comparison.rows) == 6
    assert [row[0] for row in comparison.rows] == ["20250102T030405-ab12"] * 3 + ["second"] * 3
    assert comparison.rows[3][2:] == (
        "NFS", "posix, best layout", "posix-direct", "cold", "C*", "crossover", "7,208 [6,890–7,545]",
        "512 to 32,768 tokens", "7,424", "all 36", "—",
    )  # fmt: skip


def test_runs_of_different_machines_are_refused_with_the_facts_that_differ() -> None:
    other = {
        "device_name": "NVIDIA A100",
        "cpu_model": "AMD EPYC 9654",
        "memory_bytes": 2**37 + 1,
        "usable_cores": 8.0,
        "kernel_release": "6.9.0",
    }
    with pytest.raises(DifferentMachinesError) as refusal:
        compare([result(), result(run_id="other", machine=other)])
    assert str(refusal.value) == (
        "these runs come from different machines "
        "(device_name: NVIDIA H200 in 20250102T030405-ab12 against NVIDIA A100 in other; "
        "usable_cores: — in 20250102T030405-ab12 against 8 in other); "
        "compare runs of one machine only"
    )


def test_facts_of_the_moment_do_not_make_another_machine() -> None:
    first, second = (
        {"device_name": "x", "noise": {"load_average": n}, "gpus": [{"name": "g", "sm_clock_mhz": n}]}
        for n in (1, 2)
    )
    assert differing_facts([make_run(machine=first), make_run(machine=second)]) == {}


def test_one_run_and_no_run_can_be_compared() -> None:
    assert len(compare([result()]).rows) == 3
    assert compare([]).rows == ()
    assert plain(compare([]).table()).startswith("run  model  storage")


def _read_with(num_threads: int, run_id: str) -> ComparedResult:
    run = make_run(run_id=run_id)
    info = run.series["load-1"]
    settings = {
        **info.settings,
        "num_threads": num_threads,
        "queue_depth": num_threads,
        "request_bytes": 4096,
    }
    return result(
        run_id=run_id, series={**run.series, "load-1": info.model_copy(update={"settings": settings})}
    )


def test_runs_that_read_with_other_settings_are_told_apart() -> None:
    comparison = compare([_read_with(4, "first"), _read_with(16, "second"), result(run_id="third")])
    assert comparison.remarks == (
        "load-1: the settings differ: "
        "first: chunk_tokens —, num_threads 4, queue_depth 4, request_bytes 4096; "
        "second: chunk_tokens —, num_threads 16, queue_depth 16, request_bytes 4096; "
        "third: chunk_tokens —, num_threads 8, queue_depth —, request_bytes —",
    )
    assert plain(comparison.table()).endswith(comparison.remarks[0])
    assert compare([_read_with(4, "first"), _read_with(4, "second")]).remarks == ()


def test_of_three_runs_the_one_that_differs_is_named_beside_its_fact() -> None:
    other = {**make_run().machine, "device_name": "NVIDIA A100"}
    with pytest.raises(DifferentMachinesError) as refusal:
        compare([result(run_id="a"), result(run_id="b", machine=other), result(run_id="c")])
    assert str(refusal.value) == (
        "these runs come from different machines (device_name: NVIDIA H200 in a, c against NVIDIA A100 in b); "
        "compare runs of one machine only"
    )


def test_memory_has_no_page_cache_and_a_drive_that_nobody_watched_is_unverified() -> None:
    run, samples = make_tier_run((MEMORY, DISK)), make_tier_samples((MEMORY, DISK))
    unseen = [replace(s, outcome=replace(s.outcome, cache_state=None)) for s in samples]
    rows = compare([ComparedResult(run, unseen, analyse(run, unseen))]).rows
    assert {(row[3], row[5]) for row in rows} == {
        ("hostmem, best layout", "—"),
        ("posix, best layout", "unverified"),
    }
    warm = [
        replace(s, outcome=replace(s.outcome, cache_state="warm")) for s in samples if s.case.arm == "load"
    ]
    warm += [s for s in samples if s.case.arm != "load"]
    asked = run.series[DISK.series]
    asked = asked.model_copy(update={"settings": {**asked.settings, "cache_state": "direct"}})
    run = run.model_copy(update={"series": {**run.series, DISK.series: asked}})
    rows = compare([ComparedResult(run, warm, analyse(run, warm))]).rows
    assert {row[5] for row in rows if row[3] == "posix, best layout"} == {"—"}  # none of it counts


def test_what_is_suspect_stands_in_the_rows_and_makes_the_comparison_unsound() -> None:
    assert compare([result(), result(run_id="second")]).is_sound
    wrong = result(run_id="second", notices=(Notice(kind="wrong_answer", detail="logits differ"),))
    comparison = compare([result(), wrong])
    assert {(row[0], row[-1]) for row in comparison.rows} == {
        ("20250102T030405-ab12", "—"),
        ("second", "wrong_answer"),
    }
    assert not comparison.is_sound


def test_a_way_that_is_inconclusive_makes_the_comparison_unsound() -> None:
    run, samples = make_tier_run((MEMORY, NEVER)), make_tier_samples((MEMORY, NEVER))
    assert compare([ComparedResult(run, samples, analyse(run, samples))]).is_sound
    few = [s for s in samples if s.case.series != NEVER.series or s.round < 2]
    assert not compare([ComparedResult(run, few, analyse(run, few))]).is_sound


def test_a_statistic_of_which_nothing_can_be_said_has_no_row_but_the_answer_has() -> None:
    run, samples = make_tier_run((MEMORY,)), make_tier_samples((MEMORY,), lengths=(1000,))
    rows = compare([ComparedResult(run, samples, analyse(run, samples))]).rows
    assert [(row[6], row[7]) for row in rows] == [("C*", "inconclusive")]


def test_revisions_are_said_with_twelve_digits() -> None:
    one, other = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "01234567"
    found = [result(run_id=name, software={"revision": said}) for name, said in (("a", one), ("b", other))]
    assert compare(found).remarks == (
        "the software differs: revision: 0123456789ab in a against fedcba987654 in b",
    )


def test_runs_of_scaled_and_of_whole_models_are_told_apart() -> None:
    shallow = [
        replace(s, outcome=replace(s.outcome, measured_layers=4)) if s.case.arm == "recompute" else s
        for s in SAMPLES
    ]
    scaled = ComparedResult(make_run(run_id="scaled"), shallow, ANALYSIS)
    comparison = compare([result(run_id="whole"), scaled])
    assert {(row[0], row[-2]) for row in comparison.rows} == {("whole", "all 36"), ("scaled", "4 of 36")}
    assert comparison.remarks == (
        "the runs differ in layers that ran: all 36 in whole against 4 of 36 in scaled",
    )


def test_runs_that_were_asked_other_questions_are_told_apart() -> None:
    plan = make_run().plan
    other = plan.model_copy(update={"suffix_tokens": 64, "prefill_chunk": 512, "attention": "eager"})
    comparison = compare([result(run_id="a"), result(run_id="b", plan=other)])
    assert comparison.remarks == (
        "the runs differ in suffix tokens: — in a against 64 in b",
        "the runs differ in prefill chunk: — in a against 512 in b",
        "the runs differ in attention: auto in a against eager in b",
    )
    said = "P* of the next 64 tokens (loaded in whole KV chunks of 256)"
    assert [row[6] for row in comparison.rows] == ["C*", "C* (p95 load)", "P*", "C*", "C* (p95 load)", said]


def test_runs_of_other_software_or_unfinished_ones_are_remarked_on() -> None:
    software = {**make_run().software, "torch": "2.14.0", "packages": {"nixl": "1.0"}}
    comparison = compare([result(run_id="a"), result(run_id="b", software=software, state="interrupted")])
    assert comparison.remarks == (
        "the software differs: torch: 2.13.0 in a against 2.14.0 in b; packages.nixl: — in a against 1.0 in b",
        "b: interrupted",
    )


def test_a_value_that_is_no_plain_crossover_says_what_it_is() -> None:
    guess = Crossing(Estimate(90e3), (32768, 32768), load_wins_beyond=True, extrapolated=True)
    falling = Crossing(Estimate(700.0), (512, 1024), load_wins_beyond=False)
    spots = [
        make_spot(verdict="recompute_always_wins", crossings=(guess,)),
        make_spot(kind="marginal", verdict="crossover", crossings=(falling,)),
    ]
    rows = compare([ComparedResult(make_run(), SAMPLES, replace(ANALYSIS, spots=tuple(spots)))]).rows
    assert [row[8] for row in rows] == ["90,000 (extrapolated)", "700 (recompute wins beyond)"]
