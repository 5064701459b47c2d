"""`python -m bench` as a user types it: in a process of its own, or in this one where only its answer matters."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from bench.__main__ import main

ROOT = Path(__file__).parents[2]


def run_bench(*arguments: str | Path, cwd: Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what it leaves behind, and how it ends, is that of a real one."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def call_bench(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In this process, which imports everything once for all tests."""
    command, out, err = ["bench", *map(str, arguments)], io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", command)
        patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(command, int(ended.value.code or 0), out.getvalue(), err.getvalue())
