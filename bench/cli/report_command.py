"""`report`: everything that derives from the samples of a sweep, written and printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import newest_results, out
from bench.record.notices import NOTHING_MEASURED
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples

FAILED, USAGE, SUSPECT = 1, 2, 3


def report(
    folder: Annotated[Path | None, typer.Argument(help="Result folder (default: the newest).")] = None,
) -> None:
    """Derive tables, figures and the answer of a sweep again, without measuring."""
    finish(folder or newest_results())


def finish(folder: Path) -> None:
    """Write what derives from the samples, print tables and answer, and end with the exit code.

    Raises:
        WriteError: not everything could be written; all is printed nevertheless.
    """
    run, (samples, dropped) = read_run(folder), read_samples(folder)
    run = run.model_copy(update={"notices": (*run.notices, *dropped)})
    # scipy, pandas and matplotlib take seconds, which --help and usage errors must not cost
    from bench.estimate.analysis import analyse
    from bench.report.closing import show_result, try_to_write
    from bench.report.text.main_answer import is_sound

    analysis = analyse(run, samples)
    unwritten = try_to_write(folder, run, samples, analysis=analysis)
    show_result(out, folder, run, samples=samples, analysis=analysis)
    if unwritten is not None:
        raise unwritten
    raise typer.Exit(_exit_code(run, samples, sound=is_sound(run, samples, analysis)))


def _exit_code(run: RunRecord, samples: Sequence[Sample], *, sound: bool) -> int:
    """2 where the budget was too small for both arms, as when the preflight finds that."""
    if run.state == "complete" and any(notice.kind == NOTHING_MEASURED for notice in run.notices):
        return USAGE
    if run.state != "complete" or not {"recompute", "load"} <= {sample.case.arm for sample in samples}:
        return FAILED
    return 0 if sound else SUSPECT
