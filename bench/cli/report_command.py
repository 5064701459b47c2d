"""`report`: everything that derives from the samples of a sweep, written and printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import newest_results, out
from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis
from bench.estimate.tiers import make_tiers
from bench.record.atomic_write import WriteError, writing_results
from bench.record.notices import NOTHING_MEASURED
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples
from bench.record.units import printable
from bench.report.frames import crossover_frame, summary_frame
from bench.report.html import suspect_lines
from bench.report.provenance import check_rows
from bench.report.result_files import write_results
from bench.report.text.hybrid_text import describe_hybrids
from bench.report.text.main_answer import is_sound
from bench.report.text.sentence import describe_answer, describe_undecided
from bench.report.text.terminal import closing_table, plain_table
from bench.report.text.tier_text import has_choice, plain_tiers, tier_table

FAILED, USAGE, SUSPECT = 1, 2, 3


def report(
    folder: Annotated[Path | None, typer.Argument(help="result folder; default the newest")] = None,
) -> None:
    """Recompute everything from the samples of a sweep, without measuring."""
    finish(folder or newest_results())


def finish(folder: Path) -> None:
    """Derive and write everything, print table and answer; the last line names the folder.

    Raises:
        WriteError: not everything could be written; what was derived is printed all the same.
    """
    run, (samples, dropped) = read_run(folder), read_samples(folder)
    run = run.model_copy(update={"notices": (*run.notices, *dropped)})
    analysis = analyse(run, samples)
    unwritten = _write(folder, run, samples, analysis=analysis)
    _print_tables(run, samples, analysis)
    for name, said, _ in check_rows(run):
        out.print(f"{name}: {said}", markup=False)
    for notice in run.notices:
        out.print(f"notice: {printable(notice.text)}", markup=False)
    out.print(describe_answer(run, samples, analysis), markup=False)
    for line in (
        *describe_undecided(run, analysis),
        *describe_hybrids(run, analysis),
        *suspect_lines(run, samples, analysis),
    ):
        out.print(line, markup=False)
    if run.state == "interrupted":
        out.print(f"interrupted; go on with: make sweep RESUME={folder}", markup=False)
    elif run.state == "running":
        said = "not ended: a sweep is writing here, or was killed, and may then be gone on with"
        out.print(f"{said}: make sweep RESUME={folder}", markup=False)
    out.print(str(folder), markup=False)
    if unwritten is not None:
        raise unwritten
    raise typer.Exit(_exit_code(run, samples, analysis))


def _exit_code(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> int:
    """2 where the budget was too small for both arms, as where the preflight finds that out."""
    if run.state == "complete" and any(notice.kind == NOTHING_MEASURED for notice in run.notices):
        return USAGE
    if run.state != "complete" or not {"recompute", "load"} <= {sample.case.arm for sample in samples}:
        return FAILED
    return 0 if is_sound(run, samples, analysis) else SUSPECT


def _write(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis
) -> WriteError | None:
    """Write what derives from the samples; why not all of it could be, and what makes up for it."""
    try:
        with writing_results(folder):
            write_results(
                folder,
                run,
                samples,
                analysis=analysis,
                summary=summary_frame(analysis),
                crossover=crossover_frame(analysis),
            )
    except WriteError as error:
        return WriteError(f"{error}; the samples are kept: make report RESULTS={folder} when that is mended")
    return None


def _print_tables(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> None:
    """Both arms at every length; of several load series also where a prefix may live."""
    tiers = make_tiers(run, samples, analysis)
    if out.is_terminal:
        out.print(closing_table(run, analysis))
        if has_choice(tiers):
            out.print(tier_table(run, tiers))
        return
    out.print(plain_table(run, analysis), markup=False)
    if has_choice(tiers):
        out.print(f"\n{plain_tiers(run, tiers)}\n", markup=False)
