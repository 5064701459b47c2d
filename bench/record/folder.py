"""Create, find, lock and open result folders, `results/<model>/<machine>/<utc>-<id>/`."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from bench.record.atomic_write import writing_results
from bench.record.plan import PlanError
from bench.record.run import RunRecord, read_run
from bench.record.sample import RecordError, Sample
from bench.record.samples_csv import read_samples

VARIABLE = "KVCROSS_RESULTS"


def choose_result(root: Path, environment: Mapping[str, str] | None = None) -> Path:
    """The folder in KVCROSS_RESULTS, else the run below `root` with the latest start."""
    named = (os.environ if environment is None else environment).get(VARIABLE)
    if named:
        # a relative name counts from here, else from the folder that `root` is in (a notebook runs beside it)
        beside = root.parent / named
        return beside if not Path(named).exists() and beside.exists() else Path(named)
    found = [path.parent for path in root.glob("**/run.json")]
    if not found:
        raise RecordError(
            f"{root}: no result folder here. Run a sweep, or set {VARIABLE} to a result folder."
        )
    return max(found, key=lambda folder: read_run(folder).started_utc)


def open_results(folder: Path) -> tuple[RunRecord, list[Sample]]:
    """The run, with the notices of reading its samples, and the samples."""
    run = read_run(folder)
    samples, notices = read_samples(folder)
    return run.model_copy(update={"notices": (*run.notices, *notices)}), samples


def slug(text: str) -> str:
    """`text` as a folder name: lower case letters, digits, dots and dashes; never empty, never a dot name."""
    cleaned = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
    return cleaned[:64] or "unnamed"


def create_folder(root: Path, *, model_name: str, machine: str, started: datetime) -> tuple[str, Path]:
    """A fresh result folder and its run id."""
    run_id = f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    folder = root / slug(model_name) / slug(machine) / run_id
    folder.mkdir(parents=True)
    return run_id, folder


def remove_folder(folder: Path) -> None:
    """Remove a result folder, and its model and machine folders if empty, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)
    for above in (folder.parent, folder.parent.parent):
        with suppress(OSError):  # it holds other results, or cannot be removed
            above.rmdir()


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Lock a result folder against other sweeps on this machine until the block ends.

    The lock is on the directory, so no file is left behind, and the kernel releases it with the process, even by
    kill -9.  Reading samples and writing derived files takes no lock.
    """
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be opened: {error.strerror}") from None
    try:
        with writing_results(folder):
            if not _lock(held):
                raise PlanError(f"{folder}: a sweep is writing here. Resume when it has ended.")
        yield
    finally:
        os.close(held)


def _lock(descriptor: int) -> bool:
    """False when another process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_results(root: Path) -> list[Path]:
    """The result folders below `root`, newest first by run id."""
    folders = [path.parent for path in root.glob("*/*/*/run.json")]
    return sorted(folders, key=lambda folder: folder.name, reverse=True)


def find_latest(root: Path) -> Path | None:
    """The newest result folder below `root`; None when there is none."""
    return next(iter(find_results(root)), None)
