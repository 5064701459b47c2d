"""What can be asked, and what is refused in one line."""

import pytest
from pydantic import ValidationError

from bench.record.plan import Plan, PlanError, parse_lengths, require_lengths


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ((), "empty"),
        ((64, 0), "prefix length 0 is not positive"),
        ((256, 128), "128 follows 256"),
        ((128, 128), "128 follows 128"),
        ((64, 5000), "5000 is beyond the model's maximum of 4096"),
        ((32, 64), r"a chunk of layout best \(64 tokens\) is larger than the prefix of 32"),
    ],
)
def test_lengths_that_cannot_be_measured_are_refused(lengths: tuple[int, ...], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        require_lengths(lengths, most=4096, chunk_tokens=64, layout="best")


def test_rising_lengths_from_one_chunk_to_the_maximum_are_taken() -> None:
    require_lengths((64, 65, 4096), most=4096, chunk_tokens=64, layout="best")


def test_lengths_are_read_from_text_and_auto_leaves_them_open() -> None:
    assert parse_lengths("512,1024") == (512, 1024)
    assert parse_lengths("auto") is None
    with pytest.raises(PlanError, match="not whole numbers"):
        parse_lengths("512,1k")


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget_s": 0},
        {"precision": 1},
        {"num_samples": 0},
        {"num_rounds": 0},
        {"dtype": "int8"},
        {"suffix_tokens": -1},
        {"limit_bytes_per_s": 0},
        {"unheard_of": 1},
    ],
)
def test_a_plan_refuses_impossible_values(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Plan.model_validate({"model": "m", **wrong})
