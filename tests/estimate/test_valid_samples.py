"""Rows that this run cannot have taken stop the analysis; labels that their own counters exclude do not count."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.intervals import AnalysisError
from bench.record.plan import Plan
from bench.record.run import RunRecord
from bench.record.sample import Case, Outcome, Sample
from bench.report.run_facts import cache_state
from bench.report.text.main_answer import is_sound
from tests.helpers.sweeps import BYTES_PER_TOKEN, make_run, make_samples

EVEN = {256 * 2**k: 256 * 2**k * BYTES_PER_TOKEN for k in range(8)}  # 256 to 32,768 tokens
WINDOWED = {n: min(n, 1024) * BYTES_PER_TOKEN for n in EVEN}


def _changed(samples: Sequence[Sample], index: int, **values: Any) -> list[Sample]:  # noqa: ANN401
    """With other values in the outcome of one load sample."""
    loads = [i for i, sample in enumerate(samples) if sample.case.arm == "load"]
    return [
        replace(sample, outcome=replace(sample.outcome, **values)) if i == loads[index] else sample
        for i, sample in enumerate(samples)
    ]


def _loads(samples: Sequence[Sample], **values: Any) -> list[Sample]:  # noqa: ANN401
    """With other values in the outcome of every load sample."""
    return [replace(s, outcome=replace(s.outcome, **values)) if s.case.arm == "load" else s for s in samples]


def _counted(run: RunRecord, samples: Sequence[Sample]) -> tuple[str, list[str]]:
    """The verdict of C*, and the codes of what was left out or noticed for it."""
    spot = next(s for s in analyse(run, samples).spots if (s.kind, s.statistic) == ("whole", "p50"))
    return spot.verdict, [notice.kind for notice in spot.notices]


@pytest.mark.parametrize("label", ["cold", "direct"])
@pytest.mark.parametrize("counter", ["process_bytes", "device_bytes"])
def test_a_label_that_a_counter_excludes_does_not_count(label: str, counter: str) -> None:
    samples = _loads(make_samples(num_rounds=3), cache_state=label, **{counter: 0})
    verdict, codes = _counted(make_run(), samples)
    assert (verdict, codes[0]) == ("inconclusive", "label_disproved")
    assert not is_sound(make_run(), samples, analyse(make_run(), samples))
    assert cache_state(make_run(), samples, series="load-1") is None


def test_counters_that_saw_98_percent_of_the_payload_and_those_that_nobody_read_exclude_nothing() -> None:
    def drawn(share: float) -> list[Sample]:
        return [
            replace(s, outcome=replace(s.outcome, process_bytes=int(s.outcome.num_bytes * share)))
            if s.outcome.num_bytes is not None
            else s
            for s in make_samples(num_rounds=3)
        ]

    assert _counted(make_run(), drawn(0.981))[0] == "crossover"
    assert _counted(make_run(), drawn(0.979))[0] == "inconclusive"
    assert _counted(make_run(), make_samples(num_rounds=3))[0] == "crossover"


def test_nothing_in_memory_is_cold_and_what_a_server_sends_is_not_in_this_memory() -> None:
    samples, run = make_samples(num_rounds=3), make_run(storage={"name": "tmpfs", "fs_type": "tmpfs"})
    assert _counted(run, samples)[1][0] == "label_disproved"
    served = run.series["load-1"].model_copy(update={"settings": {"server": "https://s3"}})
    with_server = run.model_copy(update={"series": {**run.series, "load-1": served}})
    assert _counted(with_server, samples)[0] == "crossover"


@pytest.mark.parametrize("part", ["open_s", "read_s", "h2d_s", "scatter_s"])
def test_seconds_that_are_less_than_a_part_and_the_step_after_it_are_refused(part: str) -> None:
    samples = make_samples()
    seconds = samples[1].outcome.seconds
    analyse(make_run(), _changed(samples, 0, **{part: seconds - 0.02}))
    with pytest.raises(
        AnalysisError, match=r"^load load-1 at 512 tokens, round 1, sample 0: .* of its parts"
    ):
        analyse(make_run(), _changed(samples, 0, **{part: seconds}))


def test_of_several_ranks_part_and_step_may_be_of_different_ones() -> None:
    run = make_run(plan=Plan(model="qwen3-8b", tensor_parallel=2))
    samples = make_samples()
    analyse(run, _changed(samples, 0, read_s=samples[1].outcome.seconds))
    with pytest.raises(AnalysisError, match="of its parts"):
        analyse(run, _changed(samples, 0, read_s=1.03 * samples[1].outcome.seconds))


def test_a_prefix_beyond_the_models_maximum_is_refused() -> None:
    run, samples = make_run(kv_bytes_at=EVEN), make_samples()
    analyse(run, samples)
    stray = Sample(0, 9999, 0, 0.0, Case("recompute", "recompute", 65_536), Outcome(1.0))
    with pytest.raises(AnalysisError, match="65536 tokens exceed the maximum of Qwen3-8B"):
        analyse(run, [*samples, stray])


@pytest.mark.parametrize("num_bytes", [1, 511 * BYTES_PER_TOKEN - 1, 512 * BYTES_PER_TOKEN + 1])
def test_bytes_that_a_prefix_of_this_length_has_not_are_refused(num_bytes: int) -> None:
    with pytest.raises(
        AnalysisError, match=f"at 512 tokens.*: {num_bytes} bytes are not those of 512 tokens"
    ):
        analyse(make_run(kv_bytes_at=EVEN), _loads(make_samples(tokens=(512, 1024)), num_bytes=num_bytes))


@pytest.mark.parametrize("kv_bytes_at", [{}, WINDOWED], ids=["unknown", "windowed"])
def test_of_loads_of_one_length_the_one_with_other_bytes_is_refused(kv_bytes_at: dict[int, int]) -> None:
    samples = _changed(make_samples(), 4, num_bytes=1)
    with pytest.raises(
        AnalysisError, match=f": 1 bytes where others of this length have {1024 * BYTES_PER_TOKEN}"
    ):
        analyse(make_run(kv_bytes_at=kv_bytes_at), samples)


def test_a_hybrid_may_load_any_part_of_its_prefix_and_no_more() -> None:
    run, case = make_run(kv_bytes_at=EVEN), Case("hybrid", "hybrid", 512)
    parts = [
        Sample(0, 9000 + i, i, 0.0, case, Outcome(1.0, num_bytes=num * BYTES_PER_TOKEN))
        for i, num in enumerate((0, 256, 511))
    ]
    analyse(run, [*make_samples(), *parts])
    whole = replace(parts[0], outcome=Outcome(1.0, num_bytes=513 * BYTES_PER_TOKEN))
    with pytest.raises(AnalysisError, match="are not those of 512 tokens"):
        analyse(run, [*make_samples(), whole])


@pytest.mark.parametrize("lost", ["recompute", "load-1"])
def test_a_series_that_the_header_does_not_name_is_noticed_and_not_sound(lost: str) -> None:
    run, samples = make_run(), make_samples()
    assert is_sound(run, samples, analyse(run, samples))
    without = run.model_copy(update={"series": {k: v for k, v in run.series.items() if k != lost}})
    analysis = analyse(without, samples)
    assert [n.series for n in analysis.notices if n.kind == "unknown_series"] == [lost]
    assert not is_sound(without, samples, analysis)
