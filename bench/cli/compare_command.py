"""`compare`: answers of several sweeps side by side."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import out
from bench.record.run import read_run
from bench.record.sample import RecordError
from bench.record.samples_csv import read_samples

SUSPECT = 3


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Result folders, two or more, of one machine.")],
) -> None:
    """Print the answers of several sweeps side by side; refuse to mix machines."""
    if len(set(folders)) < 2:
        raise RecordError("compare: needs two different result folders. Name at least two.")
    read = [(read_run(folder), read_samples(folder)[0]) for folder in folders]
    # scipy takes a second, which --help and usage errors must not cost
    from bench.estimate.analysis import analyse
    from bench.report.compare import ComparedResult
    from bench.report.compare import compare as compare_results

    comparison = compare_results(
        [ComparedResult(run, samples, analyse(run, samples)) for run, samples in read]
    )
    out.show(comparison.table())
    if not comparison.is_sound:
        raise typer.Exit(SUSPECT)
