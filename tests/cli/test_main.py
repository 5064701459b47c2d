"""What the command line makes of Ctrl-C, and of streams that the shell closed."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.__main__ import VERBS, main
from bench.cli import compare_command as compare
from bench.cli import report_command as report
from bench.measure import sweep
from bench.record.notices import Notice
from bench.record.run import write_run
from bench.record.samples_csv import SampleWriter
from bench.report.run_facts import data_path
from bench.report.text.terminal import StdoutConsole, out
from tests.helpers.commands import ROOT
from tests.helpers.tier_sweeps import MEMORY, NEVER, make_tier_run, make_tier_samples


def _interrupted() -> None:
    raise KeyboardInterrupt


def _end(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit code of a command line."""
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_is_one_line_and_exit_code_1_in_every_verb(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_module(f"bench.cli.{verb}_command"), verb, _interrupted)
    assert _end(monkeypatch, verb) == 1
    assert capsys.readouterr() == ("", "kvcross: interrupted\n")


@pytest.fixture
def _own_signals() -> Iterator[None]:
    """Signals as they were, for a sweep takes them over."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, action in zip(numbers, before, strict=True):
        signal.signal(number, action)


@pytest.mark.usefixtures("_own_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_sweep_that_is_interrupted_before_it_has_a_folder_is_one_line_and_exit_code_1(
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "drop_unavailable_backends", lambda *arguments: os.kill(os.getpid(), number))
    assert _end(monkeypatch, "sweep", "qwen3-8b") == 1
    assert capsys.readouterr().err == "kvcross: interrupted\n"
    assert list(tmp_path.glob("results/*/*/*")) == []


@pytest.mark.usefixtures("_own_signals")
def test_a_sweep_that_is_interrupted_while_its_header_is_made_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.measure.conditions.header.describe_software", _interrupted)
    assert _end(monkeypatch, "sweep", "qwen3-8b", "--backend", "simulated") == 1
    assert capsys.readouterr().err == "kvcross: interrupted\n"
    assert list(tmp_path.glob("results/*/*/*")) == []


def test_with_standard_error_closed_an_error_is_said_nowhere_else(tmp_path: Path) -> None:
    finished = subprocess.run(
        ["sh", "-c", 'exec "$0" -m bench model nothing 2>&-', sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (2, b"", b"")


def _run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A shell command in which $0 is the Python of these tests."""
    return subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    script = (
        "import os; from bench.report.text.terminal import open_streams; open_streams(); "
        "opened = os.open('/dev/null', os.O_RDONLY); assert opened > 2, opened; "
        "import sys; print('text', file=sys.stderr)"
    )
    finished = _run(f'exec "$0" -c "{script}" >&- 2>&-', tmp_path)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"", b"")


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_where_standard_output_fails_all_files_are_written_and_one_line_ends_with_1(
    redirection: str, tmp_path: Path
) -> None:
    folder = write_sweep(tmp_path / "a")
    finished = _run(f'exec "$0" -m bench report a {redirection}', tmp_path)
    assert (finished.returncode, finished.stderr.count(b"\n")) == (1, 1), finished.stderr
    assert finished.stderr.startswith(b"kvcross: standard output: ")
    assert {"report.html", "summary.csv", "tiers.png"} <= {path.name for path in folder.iterdir()}


def test_a_width_of_0_columns_is_as_none(tmp_path: Path) -> None:
    finished = _run('exec "$0" -m bench doctor --help', tmp_path, COLUMNS="0")
    assert b"--data-dir" in finished.stdout


LIGHT_VERBS = (
    "doctor",
    "sweep",
    "report",
    "compare",
    "fio",
    "fio compare",
    "model",
    "predict",
    "predict machine",
    "predict sweep",
    "predict check",
    "matrix",
    "reuse",
)
USAGE_ERRORS = (
    "sweep --tokns",
    "sweep --budget soon",
    "predict machine --model qwen3-8b --gpu H100",
    "predict sweep nowhere --tokens soon",
    "matrix --models ,",
    "reuse --csv nowhere/hits.csv",
    "reuse --skip-bad",
)


@pytest.mark.parametrize("arguments", ["", *LIGHT_VERBS, *USAGE_ERRORS])
def test_help_and_usage_errors_load_no_heavy_library(arguments: str, tmp_path: Path) -> None:
    asked = [*arguments.split(), *(["--help"] if "--" not in arguments else [])]
    script = (
        f"import sys; sys.argv = ['bench', *{asked}]\nfrom bench.__main__ import main\ntry: main()\n"
        "except SystemExit: print('heavy', {'torch', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules))"
    )
    finished = _run(f'exec "$0" -c "{script}"', tmp_path)
    assert finished.stdout.endswith(b"heavy set()\n"), finished.stdout + finished.stderr


def test_the_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _end(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("kvcross ")


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
        "notices": (Notice(kind=EVIL, detail=EVIL), Notice(kind="backend_unavailable", detail=EVIL)),
        "checks": {EVIL: {EVIL: EVIL, "message": EVIL, "passed": False}},
    }


def test_plain_text_loses_its_control_characters_and_keeps_its_lines() -> None:
    stream = io.StringIO()
    StdoutConsole(file=stream, soft_wrap=True, highlight=False).print("a\x1b[2J\nb\x07\u202e", markup=False)
    assert stream.getvalue() == "a[2J\nb\n"


def test_json_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps({"a": ":warning: [red]" + "x" * 500})
    out.print(text, markup=False)
    assert capsys.readouterr().out == f"{text}\n"


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


def test_an_error_says_no_control_sequence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _end(monkeypatch, "report", EVIL) == 2
    assert capsys.readouterr().err.startswith("kvcross: ]0;title[2J31mname line: ")


def test_compare_ends_with_3_only_where_something_is_suspect(tmp_path: Path) -> None:
    first, second = write_sweep(tmp_path / "a"), write_sweep(tmp_path / "b")
    assert invoke(compare.compare, first, second)[0] == 0
    header = json.loads((second / "run.json").read_text())
    header["notices"] = [{"kind": "wrong_answer", "detail": "logits differ"}]
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
