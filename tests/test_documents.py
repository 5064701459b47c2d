"""docs/capacity.md shows what its commands really print, and says nothing else of the figures that it explains."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from bench.__main__ import VERBS, make_app
from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Point
from bench.estimate.tiers import make_tiers
from bench.record.notices import KINDS
from bench.record.run import RunRecord
from bench.record.sample import COLUMNS
from bench.report.frames import summary_frame, tier_frame
from tests.helpers.commands import ROOT, call_bench
from tests.helpers.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples
from tests.test_arrows import BELOW

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


DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = {"kvio/backends/local/pread.py"}  # of CONTRIBUTING: written by the reader


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[\w+\]: (\S+)$", text, re.MULTILINE)
    for target in targets:
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        found = path.parent / name if name else path
        assert found.exists(), target
        headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(_anchor, headings), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_of_the_code_that_a_document_names_exists(path: Path) -> None:
    named = re.findall(
        r"`((?:bench|kvio|tests|scripts|notebooks)/[\w/.]+\.\w+)`", path.read_text(encoding="utf-8")
    )
    assert [name for name in named if not (ROOT / name).exists() and name not in EXAMPLES] == []


def test_the_arrows_of_the_document_are_those_that_are_enforced() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", text, re.MULTILINE)
    shown = {f"bench.{room}": set(re.findall(r"`([\w.]+)`", below)) for room, below in rows}
    enforced = {room: {name.removeprefix("bench.") for name in below} for room, below in BELOW.items()}
    assert shown == {room: below for room, below in enforced.items() if room in shown}
    assert len(shown) == len([room for room in BELOW if room.startswith("bench.")]) - 1  # __main__ takes all


def _options(verb: str) -> set[str]:
    command = typer.main.get_command(make_app(verb))
    assert isinstance(command, typer.core.TyperGroup)
    verbs = [command.commands[verb], *getattr(command.commands[verb], "commands", {}).values()]
    return {name for one in verbs for parameter in one.params for name in parameter.opts} | {"--help"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_option_of_a_command_in_a_document_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"(?:-m bench|^\.?make|`make) (\w+)([^\n`#]*)", text, re.MULTILINE)
    used = {
        (verb, flag)
        for verb, rest in lines
        if verb in VERBS
        for flag in re.findall(r"(?<=[\s\"])--[\w-]+", rest)
    }
    assert [(verb, flag) for verb, flag in sorted(used) if flag not in _options(verb)] == []


def test_every_option_that_a_notice_names_exists() -> None:
    known = set().union(*map(_options, VERBS))
    named = {flag for kind in KINDS.values() for flag in re.findall(r"--[a-z][a-z-]*", kind.meaning)}
    assert named - known == set()


def test_the_readme_is_short_and_its_lines_fit() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90
    assert [line for line in lines if len(line) > 120] == []
