"""A folder that is gone, full or read-only is one line with its path, wherever it is noticed."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.arms.file_cursor import Taken
from bench.measure.processes.messages import JobFailed, PreflightJob, RoundJob
from bench.measure.setup import work_out
from bench.measure.stores import StorePlan, count_reads, create_stores, working_set_bytes
from bench.measure.worker.worker_main import serve_job
from bench.record.plan import LoadSpec, Plan
from kvio.backends.mooncake.mooncake_master import OwnMaster
from kvio.backends.s3.object_placement import describe_owner
from kvio.store.scratch import open_scratch
from kvio.store.store_files import StoreError, sync_directory, temporary_directory, told
from tests.servers import require_mooncake

SETUP = work_out(Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(LoadSpec(chunk_tokens=1),)))


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
    with pytest.raises(StoreError, match=r"/x: no space left \(\d+ bytes free\)"), told(tmp_path):
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
    assert list(count_reads(SETUP, gone, {gone / "store-0": Taken(1)})) == []


class Pipe:
    """An end of a pipe that hands over one job and keeps what is told."""

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
