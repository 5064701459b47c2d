"""What is to be tried against too small a budget is never what was done, and its exit code is always the same."""

from pathlib import Path

import pytest
import typer

from bench.cli.report_command import finish
from bench.measure.budget import say_remedies
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan
from bench.record.run import write_run
from bench.record.samples_csv import SampleWriter
from tests.sweeps import make_run


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "--budget 90s, or --layers fit"),
        ({"layers": "fit"}, "--budget 90s"),
        ({"layers": "fit", "tokens": (64,)}, "--budget 90s, or fewer tokens"),
        (
            {"layers": "all", "hybrid": True, "loads": (LoadSpec(), LoadSpec(backend="uring"))},
            "--budget 90s, or --layers fit, or fewer backends or layouts, or no --hybrid",
        ),
    ],
    ids=["nothing given", "few layers", "lengths", "much"],
)
def test_only_what_was_not_done_is_to_be_tried(changes: dict[str, object], said: str) -> None:
    assert say_remedies(Plan(model="m").model_copy(update=changes), 90) == said


@pytest.mark.parametrize(
    ("code", "state", "expected"),
    [("nothing_measured", "complete", 2), ("nothing_measured", "interrupted", 1), ("failed", "failed", 1)],
)
def test_a_budget_too_small_for_the_first_samples_is_a_usage_error(
    code: str, state: str, expected: int, tmp_path: Path
) -> None:
    SampleWriter(tmp_path).close()
    write_run(tmp_path, make_run(state=state, notices=(Notice(code=code, message="the budget ended"),)))
    with pytest.raises(typer.Exit) as ended:
        finish(tmp_path)
    assert ended.value.exit_code == expected
