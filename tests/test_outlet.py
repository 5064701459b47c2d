"""Names and notices from elsewhere reach no terminal as control sequences."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import bench.__main__
from bench.cli import compare_command as compare
from bench.cli import report_command as report
from bench.cli.options import Outlet
from bench.record.notices import Notice
from bench.record.run import write_run
from bench.record.samples_csv import SampleWriter
from bench.report.run_facts import data_path
from tests.tier_sweeps import MEMORY, NEVER, make_tier_run, make_tier_samples

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31mname\nline"
WAYS = (MEMORY, NEVER)


def write_sweep(folder: Path, **changes: object) -> Path:
    """A result folder of two ways to load."""
    folder.mkdir()
    write_run(folder, make_tier_run(WAYS).model_copy(update={"run_id": folder.name, **changes}))
    writer = SampleWriter(folder)
    for sample in make_tier_samples(WAYS):
        writer.append(sample)
    writer.close()
    return folder


def invoke(verb: object, *arguments: Path | str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(verb)  # type: ignore[type-var]
    found = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    return found.exit_code, found.output


def evil_changes() -> dict[str, object]:
    """Every text of a header that somebody else may have written."""
    run = make_tier_run(WAYS)
    series = {name: info.model_copy(update={"label": EVIL}) for name, info in run.series.items()}
    return {
        "model_name": EVIL,
        "storage": {"name": EVIL},
        "software": {EVIL: EVIL},
        "series": series,
        "notices": (Notice(code=EVIL, message=EVIL), Notice(code="skipped", message=EVIL, suspect=False)),
        "checks": {EVIL: {EVIL: EVIL, "message": EVIL, "passed": False}},
    }


def test_plain_text_loses_its_control_characters_and_keeps_its_lines() -> None:
    stream = io.StringIO()
    Outlet(file=stream, soft_wrap=True, highlight=False).print("a\x1b[2J\nb\x07\u202e", markup=False)
    assert stream.getvalue() == "a[2J\nb\n"


def test_report_prints_no_control_sequence_of_a_foreign_header(tmp_path: Path) -> None:
    code, said = invoke(report.report, write_sweep(tmp_path / "foreign", **evil_changes()))
    assert code == 3
    assert not {"\x1b", "\x07", "\x9b"} & set(said)
    assert "notice: ]0;title[2J31mname line\n" in said  # one notice, one line


def test_compare_prints_no_control_sequence_of_a_foreign_header(tmp_path: Path) -> None:
    folders = write_sweep(tmp_path / "a"), write_sweep(tmp_path / "b", **evil_changes())
    code, said = invoke(compare.compare, *folders)
    assert code == 3
    assert not {"\x1b", "\x07", "\x9b"} & set(said)


def test_an_error_says_no_control_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    bench.__main__._say(f"{EVIL}: cannot be read")
    assert capsys.readouterr().err == "kvcross: ]0;title[2J31mname line: cannot be read\n"


def test_compare_ends_with_3_only_where_something_is_suspect(tmp_path: Path) -> None:
    first, second = write_sweep(tmp_path / "a"), write_sweep(tmp_path / "b")
    assert invoke(compare.compare, first, second)[0] == 0
    header = json.loads((second / "run.json").read_text())
    header["notices"] = [{"code": "wrong_answer", "message": "logits differ"}]
    (second / "run.json").write_text(json.dumps(header))
    code, said = invoke(compare.compare, first, second)
    assert (code, "wrong_answer" in said) == (3, True)


def test_a_foreign_data_path_is_cleaned_where_tables_take_it() -> None:
    run = make_tier_run((MEMORY,))
    samples = [
        replace(s, outcome=replace(s.outcome, data_path=EVIL)) if s.case.arm == "load" else s
        for s in make_tier_samples((MEMORY,))
    ]
    assert data_path(run, samples, series=MEMORY.series) == "]0;title[2J31mname line"
