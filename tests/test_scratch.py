"""A run's scratch directory goes when the run does, and never before."""

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvio.store.scratch import LOCK_NAME, TRIAL_PREFIX, ScratchError, clean_stale, count_live, open_scratch

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
