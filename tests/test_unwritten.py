"""What derives from a sweep and could not be written, or was lost: the answer is said, and how to make the files."""

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.cli.report_command import finish
from bench.estimate.next_lengths import choose_lengths
from bench.measure.sweep import Hands, resume_sweep
from bench.measure.tuning.tuning_rule import search_settings
from bench.record.atomic_write import WriteError
from bench.record.plan import PlanError
from bench.record.run import write_run
from bench.record.sample import RecordError
from bench.record.samples_csv import SampleWriter, read_samples
from tests.sweeps import make_run, make_samples
from tests.test_runner import Silent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path, make_run())
    writer = SampleWriter(tmp_path)
    for sample in make_samples(tokens=(4096, 16384), num_rounds=3, num_samples=1):
        writer.append(sample)
    writer.close()
    return tmp_path


@pytest.mark.parametrize("name", ["summary.csv", "crossover.png", "report.html"])
def test_the_answer_is_printed_though_a_file_of_it_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (folder / name).mkdir()  # stands where the file should
    with pytest.raises(WriteError) as caught:
        finish(folder)
    said = capsys.readouterr().out
    assert "16,384" in said and "C* = " in said
    assert said.splitlines()[-1] == str(folder)
    assert str(caught.value) == (
        f"cannot write results: {folder}: Is a directory; the samples are kept: "
        f"make report RESULTS={folder} when that is mended"
    )


def test_going_on_with_a_complete_sweep_names_what_makes_its_missing_files(folder: Path) -> None:
    hands = Hands(policy=choose_lengths, search=search_settings, observer=Silent())
    with pytest.raises(PlanError) as caught:
        resume_sweep(folder, data_dir=folder, hands=hands)
    assert f"derived again by: make report RESULTS={folder}" in str(caught.value)


@pytest.mark.parametrize("text", ["", "round,ord"])
def test_a_file_of_samples_without_its_columns_is_blamed_and_not_the_sweep(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = folder / "samples.csv"
    path.write_text(text)
    with pytest.raises(RecordError, match=f"^{path}: empty, without even the row that names its columns"):
        read_samples(folder)
    monkeypatch.setattr("sys.argv", ["bench", "report", str(folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"go on with: make sweep RESUME={folder}\n")
    assert read_samples(folder, may_be_empty=True)[0] == []
