"""docs/capacity.md shows what its commands really print, and says nothing else of the figures that it explains."""

import re
import shlex

import pytest

from tests.commands import ROOT, call_bench

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
    assert {command.split()[0] for command, _ in BLOCKS} == {"capacity", "size", "longctx"}


def test_the_slip_that_the_text_explains_is_the_one_of_the_tables() -> None:
    total_bytes = [10_000 * tokens * 327_680 for tokens in (10_000, 100_000)]
    assert [f"{value / 1e12:.1f}" for value in total_bytes] == ["32.8", "327.7"]
    assert [f"{value / 2**40:.3g}" for value in total_bytes] == ["29.8", "298"]
    for figure in ("32.8, 327.7", "29.8, 298", "31.9 and 320"):
        assert figure in DOC
