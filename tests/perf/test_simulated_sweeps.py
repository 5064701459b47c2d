"""Whole sweeps of a simulated machine whose crossover is known: does the printed interval cover it?"""

import shutil
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import bench.record.run
from bench.estimate.analysis import analyse
from bench.estimate.next_lengths import choose_lengths
from bench.measure.sweep import SweepHooks, run_sweep
from bench.record.plan import LoadSpec, Plan, SimulationSpec
from bench.record.run import read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples

NUM_SWEEPS = 500
TRUE_TOKENS = 1760.4  # 0.02 + 2e-5 n + 4e-9 n^2 = 0.05 + 1e-5 n, the default of SimulationSpec


class Silent:
    def on_notice(self, text: str) -> None: ...

    def on_phase(self, text: str) -> None: ...

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None: ...

    def on_sample(self, sample: Sample) -> None: ...


def _covers(seed: int, noise: float, root: Path) -> bool:
    plan = Plan(
        model="qwen3-8b",
        loads=(LoadSpec(backend="simulated"),),
        simulation=SimulationSpec(round_noise=noise),
        seed=seed,
    )
    folder = run_sweep(plan, root=root, data_dir=root, hooks=SweepHooks(choose_lengths, Silent()))
    spots = analyse(read_run(folder), read_samples(folder)[0]).spots
    shutil.rmtree(folder)
    (spot,) = (spot for spot in spots if (spot.kind, spot.statistic) == ("whole", "p50"))
    assert spot.verdict == "crossover"
    tokens = spot.crossings[0].tokens
    assert tokens.low is not None
    assert tokens.high is not None
    return tokens.low <= TRUE_TOKENS <= tokens.high


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_the_interval_of_a_whole_sweep_covers_the_truth(
    benchmark: BenchmarkFixture, noise: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.record.run.os, "fsync", lambda descriptor: None)  # nothing here is to be kept
    covered = benchmark.pedantic(
        lambda: sum(_covers(seed, noise, tmp_path) for seed in range(NUM_SWEEPS)), rounds=1, iterations=1
    )
    print(f"\nnoise {noise:.0%}: {covered} of {NUM_SWEEPS} intervals cover the true crossover")
    assert 0.92 <= covered / NUM_SWEEPS <= 0.98
