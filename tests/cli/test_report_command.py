"""What is to be tried against too small a budget is never what was done, and its exit code is always the same."""

from pathlib import Path

import pytest
import typer

from bench.__main__ import main
from bench.cli.report_command import _exit_code, finish
from bench.estimate.analysis import analyse
from bench.estimate.next_lengths import choose_lengths
from bench.measure.budget import format_remedies
from bench.measure.sweep import SweepHooks, resume_sweep
from bench.record.atomic_write import WriteError
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError
from bench.record.run import write_run
from bench.record.sample import RecordError, Sample
from bench.record.samples_csv import SampleWriter, read_samples
from bench.report.text.main_answer import is_sound
from tests.helpers.scripted_rounds import SilentObserver
from tests.helpers.sweeps import make_run, make_samples


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "--budget 90s, or --layers fit"),
        ({"layers": "fit"}, "--budget 90s"),
        ({"layers": "fit", "tokens": (64,)}, "--budget 90s, or fewer tokens"),
        (
            {"layers": "all", "hybrid": True, "loads": (LoadSpec(), LoadSpec(backend="uring"))},
            "--budget 90s, or --layers fit, or fewer backends or layouts, or no --hybrid",
        ),
    ],
    ids=["nothing given", "few layers", "lengths", "much"],
)
def test_only_what_was_not_done_is_to_be_tried(changes: dict[str, object], said: str) -> None:
    assert format_remedies(Plan(model="m").model_copy(update=changes), 90) == said


@pytest.mark.parametrize(
    ("code", "state", "expected"),
    [("nothing_measured", "complete", 2), ("nothing_measured", "interrupted", 1), ("failed", "failed", 1)],
)
def test_a_budget_too_small_for_the_first_samples_is_a_usage_error(
    code: str, state: str, expected: int, tmp_path: Path
) -> None:
    SampleWriter(tmp_path).close()
    write_run(tmp_path, make_run(state=state, notices=(Notice(kind=code, detail="the budget ended"),)))
    with pytest.raises(typer.Exit) as ended:
        finish(tmp_path)
    assert ended.value.exit_code == expected


def test_only_a_complete_run_of_both_arms_without_suspicion_ends_with_0() -> None:
    samples = make_samples()

    def code(samples: list[Sample], **changes: object) -> int:
        run = make_run(**changes)
        return _exit_code(run, samples, sound=is_sound(run, samples, analyse(run, samples)))

    assert code(samples) == 0
    assert code(samples, notices=(Notice(kind="wrong_answer", message="logits differ"),)) == 3
    assert code(samples, checks={"answer:posix/best": {"passed": False}}) == 3
    assert code(samples, state="interrupted") == 1
    for arm in ("recompute", "load"):
        assert code([sample for sample in samples if sample.case.arm == arm]) == 1


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
    assert str(caught.value).startswith(f"cannot write results: {folder}: Is a directory")
    assert str(caught.value).endswith(f"make report RESULTS={folder}")


def test_going_on_with_a_complete_sweep_names_what_makes_its_missing_files(folder: Path) -> None:
    hooks = SweepHooks(policy=choose_lengths, observer=SilentObserver())
    with pytest.raises(PlanError) as caught:
        resume_sweep(folder, data_dir=folder, hooks=hooks)
    assert f"make report RESULTS={folder}" in str(caught.value)


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
