"""The notebooks run from top to bottom, on a made result folder where they read one, and are committed without outputs."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from bench.record.folder import choose_result, open_results
from bench.record.run import write_run
from bench.record.sample import RecordError
from bench.record.samples_csv import SampleWriter
from bench.report.figures.style import UNBROKEN_TEXT
from tests.helpers.commands import ROOT
from tests.helpers.sweeps import make_run, make_samples
from tests.helpers.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


SAID = {
    "01_crossover": ("run 20250102T030405-ab12", "C* ="),
    "02_noise": ("run 20250102T030405-ab12", "of the variance lies between rounds"),
    "03_plan": (
        "modelled, nothing is measured: meta-llama/Llama-3.1-8B",
        "KV bytes of a token (arithmetic",
        "modelled: loading the whole prefix against recomputing it: C* = ",
        "prefill seconds, modelled without queueing or batching, from the cost model, nothing was measured",
        "if a hit is free [s]",
        "load from modelled C* = ",
        "GPUs (modelled)",
        "modelled throughput",
        "Drives (modelled)",
    ),
}


def make_folder(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    write_run(folder, make_run(**changes))
    writer = SampleWriter(folder)
    for sample in make_samples(num_rounds=6, num_samples=2):
        writer.append(sample)
    writer.close()
    return folder


def run_notebook(path: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """All that the notebook prints for a result folder; it must draw a figure and warn of nothing."""
    monkeypatch.setenv("KVCROSS_RESULTS", str(results))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(UNBROKEN_TEXT in output.get("data", {}).get("text/html", "") for output in outputs)
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_on_any_result_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.stem.startswith("01"):
        pytest.importorskip("bench.estimate.analysis")
    said = run_notebook(path, make_folder(tmp_path / "run"), tmp_path, monkeypatch)
    for words in SAID[path.stem]:
        assert words in said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_carries_no_outputs_and_defines_no_functions(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        assert cell.outputs == [] and cell.execution_count is None
        source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
        kinds = {type(node) for node in ast.walk(ast.parse(source))}
        assert not kinds & {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda}


def test_every_notebook_is_there_and_checked_for_what_it_says() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(SAID)


def test_a_plan_says_measured_of_nothing() -> None:
    """A figure of 03_plan is arithmetic or modelled, so no title or label of it may claim a measurement."""
    notebook = nbformat.read(ROOT / "notebooks" / "03_plan.ipynb", as_version=4)
    source = "\n".join(cell.source for cell in notebook.cells)
    assert "read_run" not in source
    assert "Nothing here is measured" in source


def test_the_newest_run_is_opened_when_none_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path / "m" / "a" / "old", started_utc="2025-01-01T00:00:00Z")
    new = make_folder(tmp_path / "m" / "b" / "new", started_utc="2025-03-01T00:00:00Z")
    assert choose_result(tmp_path, {}) == new


def test_a_named_folder_counts_from_here_or_from_beside_the_results(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "results" / "one")
    assert choose_result(tmp_path / "results", {"KVCROSS_RESULTS": "results/one"}) == folder
    assert choose_result(tmp_path, {"KVCROSS_RESULTS": str(folder)}) == folder


def test_no_results_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="KVCROSS_RESULTS"):
        choose_result(tmp_path, {})


def test_a_half_written_row_becomes_a_notice_of_the_run(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "run")
    with (folder / "samples.csv").open("a") as stream:
        stream.write("7,1,0,")
    run, samples = open_results(folder)
    assert len(samples) == 6 * 2 * 7 * 2
    assert [notice.kind for notice in run.notices] == ["half_line"]


def test_the_crossover_notebook_shows_the_tiers_of_several_ways_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = (MEMORY, DISK)
    folder = tmp_path / "run"
    folder.mkdir()
    write_run(folder, make_tier_run(ways))
    writer = SampleWriter(folder)
    for sample in make_tier_samples(ways):
        writer.append(sample)
    writer.close()
    said = run_notebook(ROOT / "notebooks" / "01_crossover.ipynb", folder, tmp_path, monkeypatch)
    assert "the cheapest tier that beats recompute is local disk: posix, best layout" in said
