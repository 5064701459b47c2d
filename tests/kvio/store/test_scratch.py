"""A run's scratch directory goes when the run does, and never before."""

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.arms.file_cursor import CursorPosition
from bench.measure.processes.messages import JobFailed, PreflightJob, RoundJob
from bench.measure.setup import resolve_plan
from bench.measure.stores import StorePlan, count_reads, create_stores, working_set_bytes
from bench.measure.worker.worker_main import serve_job
from bench.record.plan import LoadSpec, Plan
from kvio.backends.mooncake.mooncake_master import OwnMaster
from kvio.backends.s3.object_placement import describe_owner
from kvio.store.scratch import LOCK_NAME, TRIAL_PREFIX, ScratchError, clean_stale, count_live, open_scratch
from kvio.store.store_files import StoreError, os_errors_as_store_errors, sync_directory, temporary_directory
from tests.helpers.servers import require_mooncake

HOLD = """
import signal, sys
from pathlib import Path
from kvio.store.scratch import open_scratch
with open_scratch(Path(sys.argv[1])) as directory:
    (directory / "chunk").write_bytes(b"kv")
    print(directory, flush=True)
    signal.pause()
"""


def _held_by_child(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(parent)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_the_directory_is_private_and_gone_after_the_block(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as directory:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        (directory / "chunk").write_bytes(b"kv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, SystemExit])
def test_it_is_gone_after_a_failure_and_after_ctrl_c(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), open_scratch(tmp_path):
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_it_may_vanish_meanwhile(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as directory:
        (directory / LOCK_NAME).unlink()
        directory.rmdir()
    assert list(tmp_path.iterdir()) == []


def test_cleaning_leaves_a_live_run_alone(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as directory:
        assert clean_stale(tmp_path) == []
        assert directory.is_dir()


def test_kill_9_leaves_a_directory_that_the_next_cleaning_removes(tmp_path: Path) -> None:
    child, directory = _held_by_child(tmp_path)
    try:
        assert clean_stale(tmp_path) == []
        assert (directory / "chunk").read_bytes() == b"kv"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert directory.is_dir()
    assert clean_stale(tmp_path) == [directory]
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_another_process_removes_its_directory(tmp_path: Path) -> None:
    child, directory = _held_by_child(tmp_path)
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert not directory.exists()


def test_cleaning_removes_newborn_empties_but_nothing_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "kvcross-empty").mkdir()
    (tmp_path / "kvcross-foreign").mkdir()
    (tmp_path / "kvcross-foreign" / "thesis").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kvcross-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kvcross-file").write_text("mine")
    assert clean_stale(tmp_path) == [tmp_path / "kvcross-empty"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "kvcross-file",
        "kvcross-foreign",
        "kvcross-link",
    ]


def test_two_runs_in_one_parent_do_not_meet(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as first, open_scratch(tmp_path) as second:
        assert first != second
        assert clean_stale(tmp_path) == []


def test_the_lock_is_held_against_other_descriptors(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as directory:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScratchError, match="gone: no such directory"), open_scratch(tmp_path / "gone"):
        pass
    assert clean_stale(tmp_path / "gone") == []


def test_a_removal_that_was_cut_short_is_finished_by_the_next_run(tmp_path: Path) -> None:
    removed: list[str] = []
    real = shutil.rmtree

    def cut_short(path: Path, **options: object) -> None:
        removed.append(Path(path).name)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: SIM117
        with open_scratch(tmp_path) as scratch:
            (scratch / "store-0").mkdir()
            (scratch / "store-0" / "chunk").write_bytes(b"kv")
            patch.setattr(shutil, "rmtree", cut_short)
    assert removed == ["store-0"]
    assert real is shutil.rmtree
    assert clean_stale(tmp_path) == [scratch]
    assert list(tmp_path.iterdir()) == []


def test_live_directories_are_counted_and_stale_ones_are_not(tmp_path: Path) -> None:
    with open_scratch(tmp_path):
        assert clean_stale(tmp_path) == []
        assert count_live(tmp_path) == 1
    assert count_live(tmp_path) == 0


def test_only_directories_whose_lock_is_held_are_runs(tmp_path: Path) -> None:
    (tmp_path / "kvcross-main" / "kvio").mkdir(parents=True)  # as unpacked from an archive
    (tmp_path / "kvcross-stale").mkdir()
    (tmp_path / "kvcross-stale" / LOCK_NAME).touch()
    (tmp_path / "kvcross-odd" / LOCK_NAME).mkdir(parents=True)
    assert count_live(tmp_path) == 0
    with open_scratch(tmp_path), open_scratch(tmp_path):
        assert count_live(tmp_path) == 2
        with open_scratch(tmp_path, prefix=TRIAL_PREFIX):  # of a probe, as doctor makes them
            assert count_live(tmp_path) == 2
    assert count_live(tmp_path / "gone") == 0


def test_what_has_another_lock_than_ours_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "kvcross-main").mkdir()
    (tmp_path / "kvcross-main" / LOCK_NAME).write_text("of a package manager")
    (tmp_path / "kvcross-odd" / LOCK_NAME).mkdir(parents=True)
    assert clean_stale(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kvcross-main", "kvcross-odd"]


def test_where_a_folder_takes_no_files_it_is_refused_at_once() -> None:
    with (
        pytest.raises(ScratchError, match=r"/proc/sys: cannot make a scratch directory: No such file"),
        open_scratch(Path("/proc/sys")),
    ):
        pass


def test_directories_that_are_always_gone_at_once_end_in_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def vanish(*, prefix: str, dir: Path) -> str:
        made.append(prefix)
        return str(dir / f"{prefix}gone")

    monkeypatch.setattr("kvio.store.scratch.tempfile.mkdtemp", vanish)
    with pytest.raises(ScratchError, match="16 new directories were removed"), open_scratch(tmp_path):
        pass
    assert made == ["kvcross-"] * 16


SETUP = resolve_plan(
    Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(LoadSpec(chunk_tokens=1),))
)


def _store_in(folder: Path) -> StorePlan:
    (load,) = SETUP.loads
    return StorePlan(load.geometry, (load,), folder / "store-0", 1, 1, 1)


def _enter_temporary(folder: Path) -> None:
    with temporary_directory(folder):
        raise AssertionError("it cannot be made")


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(_enter_temporary, id="a check's files"),
        pytest.param(sync_directory, id="the names of a store's files"),
        pytest.param(lambda folder: working_set_bytes(SETUP, folder), id="the free space"),
        pytest.param(describe_owner, id="the owner of objects"),
        pytest.param(lambda folder: create_stores(SETUP, [_store_in(folder)]), id="the stores"),
    ],
)
def test_what_is_done_in_a_folder_that_is_gone_is_one_line_with_its_path(
    use: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    with pytest.raises(StoreError) as caught:
        use(folder)
    assert str(caught.value).startswith(str(folder))
    assert str(caught.value).endswith("No such file or directory")


def test_a_full_disk_says_how_much_is_free(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"/x: no space left \(\d+ bytes free\)"),
        os_errors_as_store_errors(tmp_path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "/x")


def test_a_store_of_its_own_whose_log_has_no_place_is_one_line(tmp_path: Path) -> None:
    require_mooncake()
    with pytest.raises(StoreError, match=r"gone/mooncake\.log: No such file or directory"):
        OwnMaster(tmp_path / "gone")


def test_a_scratch_directory_that_somebody_replaced_by_a_file_ends_as_the_block_did(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as scratch:
        (scratch / "lock").unlink()
        scratch.rmdir()
        scratch.write_text("somebody else's")
    assert scratch.read_text() == "somebody else's"


def test_files_that_vanish_are_not_counted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert list(count_reads(SETUP, gone, {gone / "store-0": CursorPosition(1)})) == []


class Pipe:
    """An end of a pipe that hooks over one job and keeps what is told."""

    def __init__(self, job: object) -> None:
        self._job = job
        self.told: list[object] = []

    def recv(self) -> object:
        return self._job

    def send(self, message: object) -> None:
        self.told.append(message)


PREFLIGHT = PreflightJob(SETUP.plan, (1,), case_limit_s=1, deadline_s=1, scratch_dir=None)
ROUND = RoundJob(plan=SETUP.plan, number=0, passes=(), start_s=0.0, deadline_s=9.0, seed=0)


@pytest.mark.parametrize(("job", "refused"), [(PREFLIGHT, True), (ROUND, False)], ids=["preflight", "round"])
def test_a_measuring_process_tells_of_a_lost_file_in_one_line(
    monkeypatch: pytest.MonkeyPatch, job: object, *, refused: bool
) -> None:
    def lose(job: object, clock: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "/mnt/x")

    monkeypatch.setattr("bench.measure.worker.worker_main._carry_out", lose)
    monkeypatch.setattr("bench.measure.worker.worker_main.die_with_parent", lambda: None)
    monkeypatch.setattr("signal.signal", lambda number, action: None)
    pipe = Pipe(job)
    serve_job(pipe)  # type: ignore[arg-type]
    assert pipe.told == [JobFailed("/mnt/x: Input/output error", refused=refused)]


def test_a_scratch_directory_that_became_a_link_does_not_empty_the_links_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    with open_scratch(tmp_path) as directory:
        directory.rename(tmp_path / "moved")
        directory.symlink_to(target)
    assert (target / "precious").exists()
