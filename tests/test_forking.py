"""What the fork server leaves in the folder for temporary files: nothing, even after kill -9 and another run."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
START = """
import signal, sys
from bench.measure.processes.fork_server import start_server
start_server()
print("started", flush=True)
if sys.argv[1] == "wait":
    signal.pause()
"""


def _start(folder: Path, how: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", START, how], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_the_next_run_removes_the_folder_that_a_killed_one_left_and_its_own(short: Path) -> None:
    with _start(short, "wait") as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "started\n"
        with _start(short, "end") as beside:
            assert beside.wait(timeout=60) == 0
        (folder,) = short.iterdir()  # the one that lives keeps its own
        assert folder.name.startswith("kvfork-")
        assert [path.name[:5] for path in folder.iterdir() if path.is_dir()] == ["pymp-"]
        killed.send_signal(signal.SIGKILL)
    assert list(short.iterdir()) == [folder]
    with _start(short, "end") as after:
        assert after.wait(timeout=60) == 0
    assert list(short.iterdir()) == []


def test_a_folder_with_too_long_a_name_for_a_socket_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    with _start(folder, "end") as process:
        assert process.wait(timeout=60) == 0
    assert list(folder.iterdir()) == []
