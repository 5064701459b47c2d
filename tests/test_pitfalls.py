"""The list of pitfalls is true: the tests that it names exist; and what a whole code base must not do."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "pitfalls.md").read_text()
CODE = sorted(path for room in ("kvio", "bench") for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)\*?`", TEXT))))
def test_a_test_that_the_list_names_exists(name: str) -> None:
    assert list((ROOT / "tests").rglob(f"{name}*.py"))


def test_every_line_of_the_list_names_a_test_or_says_why_there_is_none() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    assert len(rows) > 40
    assert [row for row in rows if "`" not in row.split("|")[3]] == []


@pytest.mark.parametrize(
    "clock", [r"time\.time\(", r"perf_counter", r"time\.time_ns", r"from time import.*\btime\b"]
)
def test_no_seconds_are_taken_from_a_clock_that_jumps(clock: str) -> None:
    assert [path.name for path in CODE if re.search(clock, path.read_text())] == []


@pytest.mark.parametrize("way", [r"pickle\.load", r"trust_remote_code=True", r"torch\.load\(", r"\beval\("])
def test_nothing_from_outside_is_run(way: str) -> None:
    assert [path.name for path in CODE if re.search(way, path.read_text())] == []
