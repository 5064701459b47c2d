"""What the command line makes of Ctrl-C, and of streams that the shell closed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from bench.__main__ import VERBS, main
from bench.measure import sweep

ROOT = Path(__file__).parent.parent


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
    monkeypatch.setattr(sweep, "leave_out_unavailable", lambda *arguments: os.kill(os.getpid(), number))
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


def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    script = (
        "import os; from bench.__main__ import _open_closed_streams; _open_closed_streams(); "
        "opened = os.open('/dev/null', os.O_RDONLY); assert opened > 2, opened; print('said'); "
        "import sys; print('said', file=sys.stderr)"
    )
    command = f'exec "$0" -c "{script}" >&- 2>&-'
    finished = subprocess.run(
        ["sh", "-c", command, sys.executable],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"", b"")
