"""Everything that is derived from a run's samples, as files in its folder; again and again if need be."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bench.estimate.results import Analysis
from bench.estimate.tiers import make_tiers
from bench.record.atomic_write import write_text_safely
from bench.record.run import RunRecord, Sample
from bench.report.figures.crossover_figure import write_figure
from bench.report.figures.tiers_figure import write_figure as write_tier_figure
from bench.report.frames import tier_frame
from bench.report.html import write_report
from bench.report.text.tier_text import has_choice


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

    Of several load series also tiers.csv, tiers.png and tiers.svg.  Each file is replaced in one step, and equal
    """
    write_frame(folder / "summary.csv", summary)
    write_frame(folder / "crossover.csv", crossover)
    figures = write_figure(folder, run, samples, analysis=analysis)
    report = write_report(folder, run, samples, analysis=analysis)
    tiers = _write_tiers(folder, run, samples, analysis=analysis)
    return folder / "summary.csv", folder / "crossover.csv", *figures, report, *tiers


def _write_tiers(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis
) -> tuple[Path, ...]:
    table = make_tiers(run, samples, analysis)
    if not has_choice(table):
        return ()
    write_frame(folder / "tiers.csv", tier_frame(table))
    return folder / "tiers.csv", *write_tier_figure(folder, run, table)
