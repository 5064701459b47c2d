"""A prefix of one token: nothing of it is loaded, for the first-token step computes it."""

from pathlib import Path

import pytest

from bench.estimate.next_lengths import choose_lengths
from bench.estimate.valid_samples import select_load
from bench.measure.sweep import Hands, run_sweep
from bench.measure.tuning.tuning_rule import search_settings
from bench.record.plan import LoadSpec, Plan, SimulationSpec
from bench.record.run import SeriesInfo
from bench.record.sample import Outcome
from bench.record.samples_csv import read_samples
from tests.sweeps import make_run
from tests.test_runner import Silent


@pytest.mark.parametrize(("tokens", "num_bytes", "kept"), [(1, 0, 1), (1, 100, 0), (1, None, 0), (2, 0, 0)])
def test_a_load_of_one_token_counts_though_no_byte_of_it_was_compared(
    tokens: int, num_bytes: int | None, kept: int
) -> None:
    settings = {"backend": "posix", "cache_state": "direct"}
    run = make_run(series={"load": SeriesInfo(arm="load", label="load", settings=settings)})
    outcome = Outcome(seconds=0.1, num_bytes=num_bytes, cache_state="unverified")
    found = select_load(run, "load", {tokens: {0: [outcome]}})
    assert (len(found.table), found.num_left_out) == (kept, 1 - kept)


@pytest.mark.parametrize("load", [{"preset": "sglang-page1"}, {"chunk_tokens": 1}, {"chunk_tokens": 64}])
def test_chosen_lengths_begin_where_something_is_loaded(tmp_path: Path, load: dict[str, object]) -> None:
    plan = Plan(
        model="qwen3-8b",
        loads=(LoadSpec.model_validate({"backend": "simulated", **load}),),
        simulation=SimulationSpec(),
        num_rounds=1,
    )
    hands = Hands(policy=choose_lengths, search=search_settings, observer=Silent())
    samples, _ = read_samples(run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=hands))
    assert min(sample.case.prefix_tokens for sample in samples) == (
        64 if load.get("chunk_tokens") == 64 else 2
    )
