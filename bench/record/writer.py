"""Appending to `samples.csv`: whole rows or none, on the disk at once."""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

from bench.record.atomic_write import write_text_safely, writing_results
from bench.record.run import CASE_COLUMNS, COLUMNS, OLDER_COLUMNS, OUTCOME_COLUMNS, Sample
from bench.record.samples_csv import cut_half_line, say_cell


class SampleWriter:
    """Appends samples to `samples.csv`; each is on the disk before `append` returns.

    Raises:
        WriteError: the file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "samples.csv"
        with writing_results(folder):
            _drop_half_line(path)
            _upgrade(path)
            self._stream = path.open("ab", buffering=0)  # nothing is left to be flushed when the disk is full
        if self._stream.tell() == 0:
            self._write(COLUMNS)

    def _write(self, row: Iterable[str]) -> None:
        """Append a row; where it does not get whole onto the disk, what there is of it is cut off."""
        text = io.StringIO(newline="")
        csv.writer(text).writerow(row)
        content = memoryview(text.getvalue().encode())
        before_bytes = self._stream.tell()
        with writing_results(self._folder):
            try:
                while content:
                    content = content[self._stream.write(content) :]
                os.fsync(self._stream.fileno())
            except BaseException:
                self._stream.truncate(before_bytes)
                raise

    def append(self, sample: Sample) -> None:
        """Write one row and fsync it.

        Raises:
            WriteError: the disk is full, say; the rows before stand.
        """
        head = (sample.round, sample.order, sample.sample, sample.started_s)
        case = (getattr(sample.case, name) for name in CASE_COLUMNS)
        outcome = (getattr(sample.outcome, name) for name in OUTCOME_COLUMNS)
        self._write([say_cell(value) for value in (*head, *case, *outcome)])

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _drop_half_line(path: Path) -> None:
    """Cut an incomplete last line (a kill in mid-write) off."""
    if not path.exists():
        return
    text = path.read_bytes().decode(errors="surrogateescape")
    whole = cut_half_line(text)
    if whole != text:
        with path.open("r+b") as stream:
            stream.truncate(len(whole.encode(errors="surrogateescape")))


def _upgrade(path: Path) -> None:
    """Rewrite a samples.csv of an older schema with the columns of this one; all cells stay as they were."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) not in OLDER_COLUMNS:
            return
        rows = list(reader)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text_safely(path, text.getvalue())
