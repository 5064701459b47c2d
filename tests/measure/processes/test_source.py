"""Fresh processes: each job has its own, and none outlives it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from bench.measure.clock import MonotonicClock
from bench.measure.processes import rank_processes as ranks
from bench.measure.processes import source
from bench.measure.processes.messages import CheckDone, JobDone, JobFailed, JobStopped, PreflightJob
from bench.measure.processes.source import ProcessSource
from bench.measure.worker.worker_main import serve_job
from bench.record.plan import Plan
from tests.helpers import workers
from tests.helpers.commands import ROOT


def _source(
    work: Callable[[Connection], None],
    attach: Callable[[int], None] | None = None,
    *,
    overrun_s: float = 30.0,
) -> ProcessSource:
    return ProcessSource(
        work, preload=["tests.helpers.workers"], clock=MonotonicClock(), attach=attach, overrun_s=overrun_s
    )


def _job(left_s: float) -> PreflightJob:
    return PreflightJob(Plan(model="m"), (64,), 1.0, time.monotonic() + left_s, None)


def _pid(message: object) -> int:
    assert isinstance(message, CheckDone)
    return int(message.result["pid"])


def test_every_job_runs_in_a_process_of_its_own_which_is_attached_before_it_begins() -> None:
    attached: list[int] = []
    source = _source(workers.answer, attached.append)
    first, done = source.run(_job(60))
    second, _ = source.run(_job(60))
    assert done == JobDone()
    assert attached == [_pid(first), _pid(second)]
    assert len(set(attached)) == 2
    assert not any(psutil.pid_exists(pid) for pid in attached)


def test_a_process_that_dies_is_a_failed_job_that_names_its_exit_code() -> None:
    (failed,) = _source(workers.die).run(_job(60))
    assert isinstance(failed, JobFailed)
    assert "exit code 7" in failed.reason


def test_a_fork_server_that_is_killed_is_named_as_a_possible_cause_and_the_next_job_has_another() -> None:
    (failed,) = _source(workers.orphan).run(_job(60))
    assert failed == JobFailed("the measuring process, or the one that starts it, was killed")
    assert list(_source(workers.answer).run(_job(60)))[-1] == JobDone()


def _parent(message: object) -> int:
    assert isinstance(message, CheckDone)
    return int(message.result["parent"])


def _stop_server() -> int:
    """Stop the fork server; its process id."""
    pid = _parent(next(_source(workers.answer).run(_job(60))))
    os.kill(pid, signal.SIGSTOP)
    return pid


def _require_another(than: int) -> None:
    told, done = _source(workers.answer).run(_job(60))
    assert done == JobDone()
    assert _parent(told) != than
    assert not psutil.pid_exists(than)


def test_a_fork_server_that_starts_nothing_is_ended_and_named_and_the_next_job_has_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = _stop_server()
    with monkeypatch.context() as patch:
        patch.setattr(source, "START_S", 0.6)
        (failed,) = _source(workers.answer).run(_job(-60))
    assert failed == JobFailed(
        "the fork server, which starts the measuring processes, did not start them within 1 s and was ended"
    )
    _require_another(stopped)


def test_a_fork_server_may_take_until_the_jobs_deadline_and_what_is_allowed_beyond_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []

    def limit_starts(limit_s: float) -> object:
        limits.append(limit_s)
        return real(limit_s)

    real = ranks.limit_starts
    monkeypatch.setattr(ranks, "limit_starts", limit_starts)
    assert list(_source(workers.answer, overrun_s=5.0).run(_job(300)))[-1] == JobDone()
    list(_source(workers.answer, overrun_s=5.0).run(_job(1.0)))
    assert 300 < limits[0] <= 305
    assert limits[1] == 60.0


def test_an_interrupt_ends_the_wait_for_a_fork_server_that_is_stopped() -> None:
    stopped = _stop_server()
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        list(_source(workers.answer).run(_job(60)))
    interrupt.join()
    _require_another(stopped)


def test_a_fork_server_that_stops_during_a_job_costs_neither_its_answer_nor_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ranks, "END_WAIT_S", 0.1)
        patch.setattr(ranks, "STOP_WAIT_S", 0.1)
        told, done = _source(workers.stop_server).run(_job(60))
    assert done == JobDone()
    assert not psutil.pid_exists(_pid(told)) or psutil.Process(_pid(told)).status() == "zombie"
    _require_another(_parent(told))


def test_a_process_that_runs_over_its_deadline_is_stopped() -> None:
    told, done = _source(workers.hang, overrun_s=0.1).run(_job(1.0))
    assert done == JobStopped()
    assert not psutil.pid_exists(_pid(told))


def test_leaving_a_job_early_stops_its_process() -> None:
    messages = _source(workers.hang).run(_job(60))
    pid = _pid(next(messages))
    messages.close()  # type: ignore[attr-defined]
    assert not psutil.pid_exists(pid)


def test_a_process_whose_runner_was_killed_before_it_asked_for_anything_ends_without_a_word() -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_job, args=(theirs,))
    process.start()
    theirs.close()
    ours.close()  # as the kernel does for one that was killed
    process.join(60)
    assert process.exitcode == 1


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
