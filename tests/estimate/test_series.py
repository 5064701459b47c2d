"""Of several ways to load one is chosen by name, never in silence; what no load decides needs no choice."""

import json
import sys
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import resolve_model
from bench.estimate.analysis import analyse
from bench.estimate.results import choose_series, fullest_series
from bench.predict.calibrate import CalibrationError
from bench.predict.sweep_model import fit_sweep, usable_points
from bench.report.matrix_files import read_measured
from bench.sizing.size_scenario import SweepSource
from bench.sizing.throughput import read_basis
from tests.helpers.sweeps import make_run
from tests.helpers.tier_sweeps import Way, make_tier_run, make_tier_samples, write_sweep

MEMORY = Way("hostmem", bytes_per_s=10e9, fixed_s=0.02, cache_state=None)
DISK = Way("posix", bytes_per_s=2e9, fixed_s=0.02)
WAYS = (MEMORY, DISK)


def test_the_only_series_or_the_one_that_is_named_is_chosen() -> None:
    assert choose_series(["a", "a"], None) == "a"
    assert choose_series(["a", "b"], "b") == "b"
    with pytest.raises(ValueError, match=r"2 load series\. Choose one with --series: a, b"):
        choose_series(["a", "b"], None)
    with pytest.raises(ValueError, match=r"no load series 'c'\. Choose one with --series: a"):
        choose_series(["a"], "c")
    with pytest.raises(ValueError, match="no load series was measured"):
        choose_series([], None)


def test_a_model_of_a_sweep_with_several_series_is_of_the_named_one_and_says_so() -> None:
    run, samples = make_tier_run(WAYS), make_tier_samples(WAYS)
    geometry = resolve_model("qwen3-8b").geometry
    with pytest.raises(
        CalibrationError, match=r"2 load series\. Choose one with --series: hostmem/best, posix/best"
    ):
        fit_sweep(run, samples, geometry)
    memory, disk = (fit_sweep(run, samples, geometry, series=way.series) for way in WAYS)
    assert "loading from host memory (hostmem/best), calibrated" in memory.label
    assert f"loading from {run.storage['name']} (posix/best), calibrated" in disk.label
    assert memory.fixed_s(4000) + memory.transfer_s(4000) == pytest.approx(MEMORY.seconds(4000), rel=0.02)
    assert disk.fixed_s(4000) + disk.transfer_s(4000) == pytest.approx(DISK.seconds(4000), rel=0.02)
    with pytest.raises(CalibrationError, match="no load series 'nfs'"):
        usable_points(run, samples, "nfs")


def test_predict_refuses_such_a_sweep_until_a_series_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_sweep(tmp_path, make_tier_run(WAYS), make_tier_samples(WAYS))

    def run(*more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", "predict", "sweep", str(folder), "--json", *more])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    code, out, err = run()
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "2 load series. Choose one with --series: hostmem/best, posix/best" in err
    code, out, _ = run("--series", "posix/best")
    assert (code, "(posix/best)" in json.loads(out)["answers"][0]["label"]) == (0, True)


def test_size_needs_no_choice_for_recompute_is_the_same_beside_every_load(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, make_tier_run(WAYS), make_tier_samples(WAYS))
    basis = read_basis(SweepSource(sweep=folder), read_devices(None))
    assert (basis.doubt, basis.num_gpus) == ("", 1)
    assert basis.work(4000, 0) == pytest.approx(0.4)
    assert basis.beyond is not None


def test_the_series_with_most_lengths_is_the_fullest() -> None:
    run = make_tier_run(WAYS)
    samples = [
        s for s in make_tier_samples(WAYS) if s.case.series != MEMORY.series or s.case.prefix_tokens > 2000
    ]
    assert fullest_series(analyse(run, samples).points) == DISK.series
    assert fullest_series([]) is None


def test_the_matrix_has_a_cell_for_each_way_to_load_by_what_it_loads_from(tmp_path: Path) -> None:
    other = Way("uring", bytes_per_s=3e9, fixed_s=0.02)
    ways = (*WAYS, other)
    run = make_tier_run(ways, tensor_parallel=2)
    write_sweep(tmp_path / "qwen3-8b" / "machine" / "run", run, make_tier_samples(ways))
    cells, _ = read_measured(tmp_path)
    name = make_run().storage["name"]
    assert [cell.storage for cell in cells] == ["host memory", f"{name} (posix/best)", f"{name} (uring/best)"]
    assert {cell.num_gpus for cell in cells} == {2}
