"""Notes of a figure break where a reader can follow."""

import pytest

from bench.estimate.analysis import analyse
from bench.record.notices import Notice
from bench.report.figures.crossover_figure import caption, wrap_outside_brackets
from tests.sweeps import make_run, make_samples


def test_a_figure_says_what_makes_it_suspect() -> None:
    samples = make_samples()
    notices = tuple(
        Notice(code=code, message="m", suspect=code == "drive_shared") for code in ("drive_shared", "x")
    )
    for run, ending in (
        (make_run(), "intervals over rounds."),
        (make_run(notices=notices), "intervals over rounds; suspect: drive_shared."),
    ):
        assert caption(run, samples, analyse(run, samples)).endswith(ending)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (60, ["measured at one length only: recompute (float32, 4 layers)"]),
        (50, ["measured at one length only: recompute", "(float32, 4 layers)"]),
        (18, ["measured at one", "length only:", "recompute", "(float32, 4", "layers)"]),
    ],
    ids=["whole", "before the bracket", "narrower than the bracket"],
)
def test_what_stands_in_brackets_stays_on_one_line_where_it_fits(width: int, lines: list[str]) -> None:
    assert wrap_outside_brackets("measured at one length only: recompute (float32, 4 layers)", width) == lines
