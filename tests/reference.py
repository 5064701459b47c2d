"""The committed reference sweeps, found by what they measured, so that a sweep that is measured again is found too."""

import csv
from dataclasses import dataclass
from pathlib import Path

from bench.record.run import RunRecord, read_run

RESULTS = Path(__file__).parent.parent / "results"
MODEL = "qwen3-0.6b"


@dataclass(frozen=True, slots=True)
class Crossover:
    """C* of the median load time, as crossover.csv has it."""

    tokens: float
    low_tokens: float
    high_tokens: float


def _whole_row(folder: Path) -> dict[str, str]:
    """The row of crossover.csv that says whether and where whole prefixes cross."""
    with (folder / "crossover.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return next(row for row in rows if (row["kind"], row["statistic"]) == ("whole", "p50"))


def _sweeps() -> list[tuple[Path, RunRecord]]:
    """Committed sweeps of whole prefixes of MODEL, the newest first."""
    folders = [path.parent for path in RESULTS.glob("*/*/*/run.json") if "scratch" not in path.parts]
    runs = [(folder, read_run(folder)) for folder in folders]
    chosen = [one for one in runs if one[1].plan.model == MODEL and not one[1].plan.suffix_tokens]
    return sorted(chosen, key=lambda one: one[1].started_utc, reverse=True)


def _find_limited() -> tuple[Path, RunRecord]:
    """The newest sweep whose storage was limited and whose verdict is a crossover."""
    return next(
        (folder, run)
        for folder, run in _sweeps()
        if run.plan.limit_bytes_per_s is not None and _whole_row(folder)["verdict"] == "crossover"
    )


def find_limited() -> Path:
    """The folder of that sweep."""
    return _find_limited()[0]


def find_plain() -> Path:
    """The newest sweep of the same machine and dtype as `find_limited`, with the drive as it is."""
    beside, limited = _find_limited()
    return next(
        folder
        for folder, run in _sweeps()
        if run.plan.limit_bytes_per_s is None
        and (folder.parent, run.plan.dtype) == (beside.parent, limited.plan.dtype)
    )


def read_crossover(folder: Path) -> Crossover:
    """C* of a sweep with the verdict `crossover`."""
    row = _whole_row(folder)
    names = ("crossover_tokens", "crossover_low_tokens", "crossover_high_tokens")
    return Crossover(*(float(row[name]) for name in names))
