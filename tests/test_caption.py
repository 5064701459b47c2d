"""Notes of a figure break where a reader can follow."""

import pytest

from bench.show.caption import wrap_outside_brackets


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
