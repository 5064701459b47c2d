"""docs/capacity.md shows what its commands really print, and says nothing else of the figures that it explains."""

import re
import shlex

import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Point
from bench.estimate.tiers import make_tiers
from bench.record.run import RunRecord
from bench.record.sample import COLUMNS
from bench.report.frames import summary_frame, tier_frame
from tests.helpers.commands import ROOT, call_bench
from tests.helpers.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples

DOC = (ROOT / "docs" / "capacity.md").read_text()
CUT = "…\n"
BLOCKS = re.findall(r"```console\n\$ python -m bench ([^\n]*)\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=range(len(BLOCKS)))
def test_the_document_shows_what_the_command_prints(command: str, shown: str) -> None:
    finished = call_bench(*shlex.split(command), cwd=ROOT)
    assert finished.returncode == 0
    printed = finished.stdout
    assert (printed if not shown.endswith(CUT) else printed[: len(shown) - len(CUT)] + CUT) == shown


def test_every_verb_of_the_document_is_shown_at_work() -> None:
    assert {command.split()[0] for command, _ in BLOCKS} == {"capacity", "size", "predict"}


def test_the_slip_that_the_text_explains_is_the_one_of_the_tables() -> None:
    total_bytes = [10_000 * tokens * 327_680 for tokens in (10_000, 100_000)]
    assert [f"{value / 1e12:.1f}" for value in total_bytes] == ["32.8", "327.7"]
    assert [f"{value / 2**40:.3g}" for value in total_bytes] == ["29.8", "298"]
    for figure in ("32.8, 327.7", "29.8, 298", "31.9 and 320"):
        assert figure in DOC


README = (ROOT / "results" / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_column_of_the_samples_is_explained() -> None:
    assert [name for name in COLUMNS if f"`{name}`" not in section("samples.csv")] == []


def test_every_field_of_the_header_is_explained() -> None:
    assert [name for name in RunRecord.model_fields if f"`{name}`" not in section("run.json")] == []


def test_every_column_of_the_summary_is_explained() -> None:
    point = Point("s", 1, 1, 1, None, None, None, None, None, None, None, None, None, None, False)
    names = summary_frame(Analysis((point,), (), ())).columns
    assert [name for name in names if f"`{name}`" not in section("summary.csv")] == []


def test_every_column_of_the_tiers_is_explained() -> None:
    ways = (MEMORY, DISK)
    run, samples = make_tier_run(ways), make_tier_samples(ways, lengths=(1000, 2000))
    names = tier_frame(make_tiers(run, samples, analyse(run, samples))).columns
    said = [re.sub(r"^at_\d+_", "at_<n>_", name) for name in names]
    assert [name for name in said if f"`{name}`" not in section("tiers.csv")] == []
