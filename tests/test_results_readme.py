import re
from pathlib import Path

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Point
from bench.estimate.tiers import make_tiers
from bench.record.run import RunRecord
from bench.record.sample import COLUMNS
from bench.report.frames import summary_frame, tier_frame
from tests.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples

README = (Path(__file__).parent.parent / "results" / "README.md").read_text(encoding="utf-8")


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
