"""Made sweeps as folders, for verbs that read them from the disk."""

from collections.abc import Iterable
from pathlib import Path

from bench.record.run import RunRecord, write_run
from bench.record.sample import Sample
from bench.record.samples_csv import SampleWriter


def write_sweep(folder: Path, run: RunRecord, samples: Iterable[Sample]) -> Path:
    """The folder, with what a sweep leaves behind."""
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder, run)
    writer = SampleWriter(folder)
    for sample in samples:
        writer.append(sample)
    writer.close()
    return folder
