"""Everything that is derived from a run's samples, as files in its folder; again and again if need be."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bench.analyse.answer import Analysis
from bench.measure.record import RunRecord, Sample, write_text_safely
from bench.show.figures import write_figure
from bench.show.report import write_report


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame as CSV in one step; missing cells are empty, never 0."""
    write_text_safely(path, frame.to_csv(index=False, lineterminator="\n"))


def write_results(
    folder: Path,
    run: RunRecord,
    samples: Sequence[Sample],
    *,
    analysis: Analysis,
    summary: pd.DataFrame,
    crossover: pd.DataFrame,
) -> tuple[Path, ...]:
    """Write summary.csv, crossover.csv, crossover.png, crossover.svg and report.html; their paths.

    Each file is replaced in one step, and equal inputs give equal bytes.
    """
    write_frame(folder / "summary.csv", summary)
    write_frame(folder / "crossover.csv", crossover)
    figures = write_figure(folder, run, samples, analysis=analysis)
    report = write_report(folder, run, samples, analysis=analysis)
    return folder / "summary.csv", folder / "crossover.csv", *figures, report
