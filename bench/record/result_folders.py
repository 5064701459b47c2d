"""Which result folder to open, and what is in it."""

import os
from collections.abc import Mapping
from pathlib import Path

from bench.record.run import RecordError, RunRecord, Sample, read_run, read_samples

VARIABLE = "KVCROSS_RESULTS"


def find_results(root: Path, environment: Mapping[str, str] | None = None) -> Path:
    """The folder that KVCROSS_RESULTS names, else the run below `root` that was started last.

    Raises:
        RecordError: there is none.
    """
    named = (os.environ if environment is None else environment).get(VARIABLE)
    if named:
        # a relative name counts from here, else from the folder that `root` is in (a notebook runs beside it)
        beside = root.parent / named
        return beside if not Path(named).exists() and beside.exists() else Path(named)
    found = [path.parent for path in root.glob("**/run.json")]
    if not found:
        raise RecordError(f"{root}: no result folder here; run a sweep, or set {VARIABLE} to a result folder")
    return max(found, key=lambda folder: read_run(folder).started_utc)


def open_results(folder: Path) -> tuple[RunRecord, list[Sample]]:
    """The run with what reading its samples gave as further notices, and the samples.

    Raises:
        RecordError: a file is missing or cannot be read.
    """
    run = read_run(folder)
    samples, notices = read_samples(folder)
    return run.model_copy(update={"notices": (*run.notices, *notices)}), samples
