"""`compare`: answers of several sweeps side by side."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import out
from bench.estimate.analysis import analyse
from bench.record.run import read_run
from bench.record.sample import RecordError
from bench.record.samples_csv import read_samples
from bench.report.compare import ComparedResult
from bench.report.compare import compare as compare_results

SUSPECT = 3


def compare(folders: Annotated[list[Path], typer.Argument(help="result folders")]) -> None:
    """Answers of several sweeps side by side; refuses to mix machines."""
    if len(set(folders)) < 2:
        raise RecordError("name two result folders or more, each once")
    results = []
    for folder in folders:
        run, (samples, _) = read_run(folder), read_samples(folder)
        results.append(ComparedResult(run, samples, analyse(run, samples)))
    comparison = compare_results(results)
    if out.is_terminal:
        out.print(comparison.table())
        for line in comparison.remarks:
            out.print(line, markup=False)
    else:
        out.print(comparison.plain(), markup=False)
    if not comparison.is_sound:
        raise typer.Exit(SUSPECT)
