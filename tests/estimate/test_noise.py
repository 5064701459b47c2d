import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from bench.estimate.intervals import (
    VarianceComponents,
    pooled_half_width,
    predict_half_width,
    variance_components,
)
from bench.record.sample import Case, Outcome, Sample
from bench.report.figures.noise_figure import (
    draw_components,
    draw_narrowing,
    draw_rounds,
    format_noise,
    noise_frame,
)
from tests.helpers.sweeps import make_samples


def samples_of(rounds: list[list[float]]) -> list[Sample]:
    case = Case("load", "load-1", 1024)
    return [
        Sample(
            round=number, order=0, sample=repeat, started_s=0.0, case=case, outcome=Outcome(seconds=seconds)
        )
        for number, values in enumerate(rounds)
        for repeat, seconds in enumerate(values)
    ]


COMPONENTS = VarianceComponents("load", "load-1", 1024, 0, 8, 40, 1.0, between=0.03, within=0.01)


def test_components_by_hand() -> None:
    # medians 1; round means 0.9, 1.0, 1.1; deviations of 0.02 around each
    (found,) = variance_components(samples_of([[0.88, 0.92], [0.98, 1.02], [1.08, 1.12]]))
    within_square = 6 * 0.02**2 / 3
    between_square = (2 * 0.02 / 2 - within_square) / 2
    assert found.within == pytest.approx(math.sqrt(within_square))
    assert found.between == pytest.approx(math.sqrt(between_square))
    assert (found.num_rounds, found.num_samples, found.median_s) == (3, 6, 1.0)
    assert found.between_share == pytest.approx(between_square / (between_square + within_square))


def test_rounds_that_do_not_differ_have_no_spread_between() -> None:
    (found,) = variance_components(samples_of([[0.9, 1.1], [1.1, 0.9]]))
    assert found.between == 0.0
    assert found.between_share == 0.0


def test_one_sample_a_round_leaves_the_spread_within_unknown() -> None:
    (found,) = variance_components(samples_of([[0.9], [1.0], [1.1]]))
    assert found.within is None and found.between_share is None
    assert found.between == pytest.approx(0.1)


def test_one_round_has_no_components() -> None:
    assert variance_components(samples_of([[1.0, 2.0, 3.0]])) == ()
    assert variance_components([]) == ()


def test_identical_samples_have_no_share() -> None:
    (found,) = variance_components(samples_of([[1.0, 1.0], [1.0, 1.0]]))
    assert (found.between, found.within, found.between_share) == (0.0, 0.0, None)


def test_a_known_spread_is_found_again() -> None:
    noise = np.random.default_rng(3)
    levels = 1 + 0.05 * noise.standard_normal(400)
    rounds = [list(level * (1 + 0.02 * noise.standard_normal(4))) for level in levels]
    (found,) = variance_components(samples_of(rounds))
    assert found.between == pytest.approx(0.05, rel=0.1)
    assert found.within == pytest.approx(0.02, rel=0.1)


def test_cases_with_and_without_a_suffix_are_kept_apart() -> None:
    plain = samples_of([[1.0], [1.1]])
    suffixed = [replace(s, case=replace(s.case, suffix_tokens=256)) for s in plain]
    assert [part.suffix_tokens for part in variance_components([*plain, *suffixed])] == [0, 256]


def test_rounds_narrow_the_interval_and_samples_soon_do_not() -> None:
    width = predict_half_width(COMPONENTS, num_rounds=8, num_samples=5)
    assert width == pytest.approx(2.3646 * math.sqrt(0.03**2 / 8 + 0.01**2 / 40), rel=1e-4)
    assert predict_half_width(COMPONENTS, num_rounds=8, num_samples=500) > 0.98 * width
    assert predict_half_width(COMPONENTS, num_rounds=16, num_samples=5) < 0.7 * width


def test_pooling_one_process_claims_less_than_is_true() -> None:
    claimed = pooled_half_width(COMPONENTS, num_samples=40)
    assert claimed == pytest.approx(2.0227 * 0.01 / math.sqrt(40), rel=1e-4)
    assert claimed < 0.15 * predict_half_width(COMPONENTS, num_rounds=8, num_samples=5)


@pytest.mark.parametrize(("rounds", "repeats"), [(1, 5), (8, 0)])
def test_no_interval_is_made_up_from_too_few(rounds: int, repeats: int) -> None:
    with pytest.raises(ValueError, match=f"{rounds} rounds x {repeats} samples give no interval"):
        predict_half_width(COMPONENTS, num_rounds=rounds, num_samples=repeats)
    with pytest.raises(ValueError, match="1 samples give no interval"):
        pooled_half_width(COMPONENTS, num_samples=1)


def test_the_frame_has_one_row_for_each_case() -> None:
    frame = noise_frame([COMPONENTS, replace(COMPONENTS, within=None)])
    assert frame["between_percent"].tolist() == [3.0, 3.0]
    assert frame["between_share_percent"][0] == pytest.approx(90.0)
    assert math.isnan(frame["within_percent"][1])


def test_the_share_is_said_in_one_sentence() -> None:
    assert format_noise([COMPONENTS]) == (
        "In the median of 1 cases, rounds differ by 3.00 % and samples of one round by 1.00 %: "
        "90.0 % of the variance lies between rounds."
    )
    assert "cannot be told apart" in format_noise([])


def test_every_sample_is_a_dot_in_its_round() -> None:
    axes = Figure().add_subplot()
    draw_rounds(axes, make_samples(num_rounds=3, num_samples=4), series="load-1", prefix_tokens=8192)
    dots = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert [list(line.get_xdata()) for line in dots] == [[1] * 4, [2] * 4, [3] * 4]


def test_missing_cases_are_said_on_the_figure() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    draw_rounds(left, [], series="load-1", prefix_tokens=8192)
    draw_components(right, [], series="load-1")
    assert [axes.texts[0].get_text() for axes in (left, right)] == ["no samples", "needs two rounds"]


def test_the_narrowing_is_drawn_for_several_samples_a_round_and_for_pooling() -> None:
    axes = Figure().add_subplot()
    draw_narrowing(axes, COMPONENTS)
    assert len(axes.lines) == 4
    true, claimed = (list(axes.lines[index].get_ydata()) for index in (1, 3))
    assert all(one > other for one, other in zip(true, claimed, strict=True))
