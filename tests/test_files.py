import os
from pathlib import Path

import pandas as pd
import pytest

from bench.record.atomic_write import write_text_safely
from bench.report.result_files import write_results
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
    (tmp_path / "summary.csv.1.part").write_text("half")  # of a process that was killed
    (tmp_path / "report.html").write_text("old")
    assert write(tmp_path) == first
    assert (tmp_path / "summary.csv.1.part").read_text() == "half"


def test_a_missing_cell_is_empty_and_never_zero(tmp_path: Path) -> None:
    assert write(tmp_path)["summary.csv"] == b"prefix_tokens,load_s\n1024,0.3\n8192,\n"
    assert write(tmp_path)["crossover.csv"] == b"kind,tokens\nwhole,7208.4\n"


def test_two_processes_that_write_the_same_file_at_once_do_not_fail_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, ours = tmp_path / "summary.csv", os.fsync, os.getpid()
    written: list[str] = []

    def fsync(descriptor: int) -> None:
        if not written:  # ours is half done when the other comes
            written.append("theirs")
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: ours + 1)
                write_text_safely(path, "theirs")
            assert path.read_text() == "theirs"
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_text_safely(path, "ours")
    assert [file.name for file in tmp_path.iterdir()] == ["summary.csv"]
    assert path.read_text() == "ours"
