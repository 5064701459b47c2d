from pathlib import Path

import pandas as pd

from bench.show.files import write_results
from tests.sweeps import make_analysis, make_run, make_samples

SAMPLES = make_samples(tokens=(1024, 8192, 32768), num_rounds=2, num_samples=1)
ANALYSIS = make_analysis(SAMPLES)
SUMMARY = pd.DataFrame({"prefix_tokens": [1024, 8192], "load_s": [0.3, None]})
CROSSOVER = pd.DataFrame({"kind": ["whole"], "tokens": [7208.4]})


def write(folder: Path) -> dict[str, bytes]:
    paths = write_results(
        folder, make_run(), SAMPLES, analysis=ANALYSIS, summary=SUMMARY, crossover=CROSSOVER
    )
    return {path.name: path.read_bytes() for path in paths}


def test_all_files_are_written_and_no_half_ones_are_left(tmp_path: Path) -> None:
    written = write(tmp_path)
    names = ["crossover.csv", "crossover.png", "crossover.svg", "report.html", "summary.csv"]
    assert sorted(written) == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_writing_again_over_leftovers_gives_equal_bytes(tmp_path: Path) -> None:
    first = write(tmp_path)
    (tmp_path / "summary.csv.part").write_text("half")
    (tmp_path / "report.html").write_text("old")
    assert write(tmp_path) == first
    assert not (tmp_path / "summary.csv.part").exists()


def test_a_missing_cell_is_empty_and_never_zero(tmp_path: Path) -> None:
    assert write(tmp_path)["summary.csv"] == b"prefix_tokens,load_s\n1024,0.3\n8192,\n"
    assert write(tmp_path)["crossover.csv"] == b"kind,tokens\nwhole,7208.4\n"
