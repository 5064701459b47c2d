"""What speaks against the numbers of one length."""

import pytest

from bench.estimate.per_length import find_doubts
from bench.record.sample import Outcome

STEADY = dict.fromkeys(range(8), 1.0)
NOISE = (1.0, 1.3, 0.8, 1.2, 0.7, 1.1, 0.9, 1.4)
SLOWER = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)


def doubts(
    reading: tuple[float, ...] | None, step: tuple[float, ...] | None, *outcomes: Outcome
) -> tuple[str, ...]:
    """Of a load of 1 s reading and 1 s first-token step, times these; of steps that are None, nothing is known."""
    parts = [part or (1.0,) * 8 for part in (reading, step)]
    load_s = {number: sum(part[number] for part in parts) for number in range(8)}
    known = {} if step is None else dict(enumerate(step))
    return find_doubts(outcomes, STEADY, load_s, first_tokens_s=known, mfu=None)


@pytest.mark.parametrize(("swings", "word"), [(NOISE, "noisy"), (SLOWER, "drift")], ids=["noise", "drift"])
def test_what_varies_is_named_by_the_part_of_the_load_that_it_is_in(
    swings: tuple[float, ...], word: str
) -> None:
    often = tuple(2 * value for value in swings)
    calm = (1.0,) * 8
    assert {code for code in doubts(often, calm) if code.startswith(word)} == {f"{word}_reading"}
    assert {code for code in doubts(calm, often) if code.startswith(word)} == {f"{word}_first_token"}
    assert {code for code in doubts(often, None) if code.startswith(word)} == {f"{word}_load"}
    assert doubts(calm, calm) == ()


def test_one_slow_round_of_a_part_does_not_take_the_blame_for_what_the_other_does() -> None:
    calm, one_slow = (1.0,) * 8, (1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.0)
    often = tuple(2 * value for value in SLOWER)
    assert "drift_first_token" in doubts(one_slow, often)
    assert "drift_load" in doubts(SLOWER, SLOWER)  # both did
    assert doubts(one_slow, calm) == ()


def test_bytes_that_went_to_others_are_noticed_from_a_quarter_of_the_samples_on() -> None:
    def sample(device_bytes: int | None, process_bytes: int | None) -> Outcome:
        return Outcome(seconds=1.0, device_bytes=device_bytes, process_bytes=process_bytes)

    calm = (1.0,) * 8
    alone, shared = sample(1_000_000, 1_000_000), sample(1_200_000, 1_000_000)
    assert doubts(calm, calm, *[shared] * 2, *[alone] * 6) == ("drive_shared",)
    assert doubts(calm, calm, shared, *[alone] * 7) == ()
    # of a GPU's own reads the process knows nothing, of memory the drive
    assert doubts(calm, calm, sample(1_000_000, 0), sample(None, 1_000_000), sample(1_000_000, None)) == ()
