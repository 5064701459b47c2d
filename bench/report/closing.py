"""What a sweep ends with: its derived files, then tables, checks, notices and the answer on a console."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.estimate.results import Analysis
from bench.estimate.tiers import make_tiers
from bench.record.atomic_write import WriteError, writing_results
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import printable
from bench.report.html import suspect_lines
from bench.report.provenance import check_rows
from bench.report.result_files import write_results
from bench.report.text.closing_table import closing_table
from bench.report.text.hybrid_text import describe_hybrids
from bench.report.text.sentence import describe_answer, describe_undecided
from bench.report.text.terminal import StdoutConsole
from bench.report.text.tier_text import has_choice, tier_table


def try_to_write(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis
) -> WriteError | None:
    """Write the derived files; the error, with its remedy, where not all of them could be written."""
    try:
        with writing_results(folder):
            write_results(folder, run, samples, analysis=analysis)
    except WriteError as error:
        return WriteError(f"{error}. The samples are safe. Fix this, then run: make report RESULTS={folder}")
    return None


def show_result(
    console: StdoutConsole, folder: Path, run: RunRecord, *, samples: Sequence[Sample], analysis: Analysis
) -> None:
    """Print the tables, then one line each for checks, notices and answers; the last line names the folder."""
    console.show(closing_table(run, analysis))
    tiers = make_tiers(run, samples, analysis)
    if has_choice(tiers):
        console.print()
        console.show(tier_table(run, tiers))
        console.print()
    for line in _lines(run, samples, analysis):
        console.print(line, markup=False)
    if run.state == "interrupted":
        console.print(f"Interrupted. Resume with: make sweep RESUME={folder}", markup=False)
    elif run.state == "running":
        console.print(
            f"Incomplete: still running, or killed. Resume with: make sweep RESUME={folder}", markup=False
        )
    console.print(str(folder), markup=False)


def _lines(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> Iterator[str]:
    yield from (f"{name}: {result}" for name, result, _ in check_rows(run))
    yield from (f"notice: {printable(notice.text)}" for notice in run.notices)
    yield describe_answer(run, samples, analysis)
    yield from describe_undecided(run, analysis)
    yield from describe_hybrids(run, analysis)
    yield from suspect_lines(run, samples, analysis)
