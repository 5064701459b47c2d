"""Notes of a figure break where a reader can follow."""

import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Crossing, Estimate
from bench.estimate.tiers import make_tiers
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Sample
from bench.report.figures import tiers_figure
from bench.report.figures.crossover_figure import (
    NARROW_INCHES,
    STYLE,
    WIDE_INCHES,
    caption,
    draw_crossover,
    figure_content,
    figure_title,
    make_figure,
    wrap_outside_brackets,
    write_figure,
)
from bench.report.figures.style import plain_log_axis
from tests.helpers.sweeps import TOKENS, make_analysis, make_run, make_samples, make_spot
from tests.helpers.tier_sweeps import DISK, MEMORY, make_tier_run, make_tier_samples

SAMPLES = make_samples(num_rounds=3, num_samples=2)
ANALYSIS = make_analysis(SAMPLES)


def draw(run: RunRecord, samples: list[Sample], analysis: Analysis) -> Axes:
    axes = Figure().add_subplot()
    draw_crossover(axes, run, samples, analysis=analysis)
    axes.figure.canvas.draw()
    return axes


def texts(axes: Axes) -> str:
    return "\n".join(text.get_text() for text in axes.texts)


def test_both_arms_are_drawn_at_every_length_with_their_medians() -> None:
    axes = draw(make_run(), SAMPLES, ANALYSIS)
    lines = {str(line.get_label()): line for line in axes.lines}
    recompute = lines["recompute (bfloat16)"]
    assert list(recompute.get_xdata()) == list(TOKENS)
    assert list(recompute.get_ydata()) == [p.recompute_s.value for p in ANALYSIS.points if p.recompute_s]
    assert list(lines["load: posix, best layout"].get_ydata()) == [
        p.load_s.value for p in ANALYSIS.points if p.load_s
    ]
    assert texts(axes) == ""


def test_every_round_is_a_faint_line() -> None:
    axes = draw(make_run(), SAMPLES, ANALYSIS)
    faint = [line for line in axes.lines if line.get_alpha() == 0.25]
    assert len(faint) == 2 * 3
    assert all(list(line.get_xdata()) == list(TOKENS) for line in faint)


def test_both_fits_are_dashed_lines() -> None:
    axes = draw(make_run(), SAMPLES, ANALYSIS)
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata()) == 100]
    assert len(dashed) == 2


def test_the_axes_are_log_log_with_powers_of_two() -> None:
    axes = draw(make_run(), SAMPLES, ANALYSIS)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"{n:,}" for n in TOKENS]
    assert axes.get_xlabel() == "prefix (tokens)"
    assert axes.get_ylabel() == "time, first-token step included"


def test_the_interval_of_the_crossover_is_shaded() -> None:
    axes = draw(make_run(), SAMPLES, ANALYSIS)
    span = axes.patches[-1].get_bbox()
    assert (span.x0, span.x1) == (6890.2, 7544.9)
    title = figure_title(make_run(), ANALYSIS, num_curves=2)
    assert title == "C* = 7,208 tokens  [6,890–7,545]"


def test_an_interval_without_end_stays_within_the_axes() -> None:
    crossing = Crossing(Estimate(7208.4, 0.0, float("inf")), (4096, 8192), load_wins_beyond=True)
    axes = draw(make_run(), SAMPLES, replace(ANALYSIS, spots=(make_spot(crossings=(crossing,)),)))
    span = axes.patches[-1].get_bbox()
    assert (span.x0, span.x1) == axes.get_xlim()


def test_no_load_samples_draws_recompute_and_says_what_is_missing() -> None:
    points = tuple(replace(point, load_s=None, ratio=None) for point in ANALYSIS.points)
    spot = make_spot(verdict="inconclusive", crossings=(), reason="no load samples")
    recompute = [sample for sample in SAMPLES if sample.case.arm == "recompute"]
    axes = draw(make_run(), recompute, replace(ANALYSIS, points=points, spots=(spot,)))
    assert texts(axes) == "no samples that count: load: posix, best layout"
    assert "recompute (bfloat16)" in {line.get_label() for line in axes.lines}
    assert not any(0 in line.get_ydata() for line in axes.lines)


def test_one_point_without_interval_is_drawn_and_said() -> None:
    point = replace(ANALYSIS.points[0], recompute_s=Estimate(0.03), load_s=Estimate(0.3))
    samples = [sample for sample in SAMPLES if sample.case.prefix_tokens == 512]
    axes = draw(make_run(), samples, replace(ANALYSIS, points=(point,), fits=()))
    assert texts(axes).splitlines() == [
        "no interval at some lengths, too few rounds; measured at one length only: recompute (bfloat16), "
        "load: posix, best layout",
    ]


def test_nothing_measured_is_an_empty_figure_that_says_so() -> None:
    axes = draw(make_run(series={}), [], Analysis((), (), ()))
    assert texts(axes).splitlines() == ["no samples that count: recompute, load"]


def test_two_load_series_have_their_own_colours_and_markers() -> None:
    second = make_samples(num_rounds=2, num_samples=1, load="load-2")
    points = (*ANALYSIS.points, *(replace(point, series="load-2") for point in ANALYSIS.points))
    info = SeriesInfo(arm="load", label="lmcache", settings={"backend": "posix"})
    run = make_run(series={**make_run().series, "load-2": info})
    axes = draw(run, [*SAMPLES, *second], replace(ANALYSIS, points=points))
    lines = {str(line.get_label()): (line.get_color(), line.get_marker()) for line in axes.lines}
    looks = [
        lines["recompute (bfloat16)"],
        *(lines[name] for name in lines if name.startswith(("posix", "l"))),
    ]
    assert looks == [("#D55E00", "o"), ("#0072B2", "s"), ("#009E73", "^")]


def test_the_caption_names_path_state_repeats_storage_with_its_limit_and_depth() -> None:
    shallow = [replace(s, outcome=replace(s.outcome, measured_layers=4, total_layers=36)) for s in SAMPLES]
    run = make_run(plan=Plan(model="qwen3-8b", limit_bytes_per_s=2e9))
    assert caption(run, shallow, ANALYSIS) == (
        "Qwen3-8B (bfloat16) on NVIDIA H200; Samsung PM1743 limited to 2.00 GB/s; "
        "posix, best layout over posix-direct, cold page cache; 3 rounds × 2 samples; "
        "recompute and first-token steps scaled from 4 of 36 layers; bands and bars: 95 % intervals over rounds."
    )


def test_files_are_small_and_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    png, svg = write_figure(tmp_path, make_run(), SAMPLES, analysis=ANALYSIS)
    first = png.read_bytes(), svg.read_bytes()
    assert len(first[0]) < 150_000 and len(first[1]) < 300_000
    write_figure(tmp_path, make_run(), SAMPLES, analysis=ANALYSIS)
    assert (png.read_bytes(), svg.read_bytes()) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crossover.png", "crossover.svg"]


def test_files_carry_no_time_no_tool_and_no_path(tmp_path: Path) -> None:
    png, svg = write_figure(tmp_path, make_run(), SAMPLES, analysis=ANALYSIS)
    assert b"tEXt" not in png.read_bytes()
    text = svg.read_text(encoding="utf-8")
    assert "<dc:date>" not in text and "Matplotlib" not in text and str(tmp_path) not in text
    assert re.search(r"20\d\d-\d\d-\d\dT", text) is None


@pytest.mark.parametrize("name", ["$x_{$", "<script>alert(1)</script>", "a -- b", "\\frac", "名前"])
def test_a_name_is_text_and_not_maths_or_markup(name: str) -> None:
    run = make_run(model_name=name, storage={"name": name})
    with pytest.warns(UserWarning, match="Glyph") if name == "名前" else mpl.rc_context():
        svg = figure_content(run, SAMPLES, ANALYSIS, form="svg").decode("utf-8")
    assert "<script" not in svg


def test_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(mpl.rcParams)
    figure_content(make_run(), SAMPLES, ANALYSIS, form="png")
    assert dict(mpl.rcParams) == before


def test_the_rounds_of_a_marginal_question_are_drawn() -> None:
    ways = (MEMORY, DISK)
    run, samples = make_tier_run(ways, suffix_tokens=64), make_tier_samples(ways, suffix_tokens=64)
    axes = draw(run, samples, analyse(run, samples))
    faint = [line for line in axes.lines if line.get_alpha() == 0.25]
    assert len(faint) == 3 * 6  # three series, six rounds


def test_samples_that_the_analysis_leaves_out_are_no_rounds_of_the_figure() -> None:
    last = max(sample.round for sample in SAMPLES)
    spoilt = {"notices": ("above_limit",)}, {"verified": False}
    for changes in spoilt:
        samples = [
            replace(s, outcome=replace(s.outcome, **changes))
            if s.round == last and s.case.arm == "load"
            else s
            for s in SAMPLES
        ]
        axes = draw(make_run(), samples, ANALYSIS)
        assert len([line for line in axes.lines if line.get_alpha() == 0.25]) == 2 * 3 - 1


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_the_legend_explains_only_what_is_drawn() -> None:
    assert legend_of(draw(make_run(), SAMPLES, ANALYSIS)) == [
        "recompute (bfloat16)",
        "load: posix, best layout",
        "C* and its 95 % interval",
        "fits (diagnostic)",
        "single rounds",
    ]
    one = make_samples(tokens=(512,), num_rounds=1, num_samples=1)
    spot = make_spot(verdict="inconclusive", crossings=(), reason="1 length")
    axes = draw(make_run(), one, make_analysis(one, fits=(), spots=(spot,)))
    assert legend_of(axes) == ["recompute (bfloat16)", "load: posix, best layout"]
    ways = (MEMORY, DISK)
    run, samples = make_tier_run(ways), make_tier_samples(ways, lengths=[1000], num_rounds=1)
    entries = legend_of(draw(run, samples, analyse(run, samples)))
    assert entries[0] == "recompute (bfloat16)" and len(entries) == 3
    assert legend_of(draw(make_run(series={}), [], Analysis((), (), ()))) == []


@pytest.mark.parametrize("size", [WIDE_INCHES, NARROW_INCHES], ids=["wide", "narrow"])
@pytest.mark.parametrize("num_ways", [1, 2])
def test_legend_and_notes_lie_beside_the_data_and_inside_the_figure(
    size: tuple[float, float], num_ways: int
) -> None:
    ways = (MEMORY, DISK)[:num_ways]
    run, samples = make_tier_run(ways), make_tier_samples(ways, num_rounds=2)
    with mpl.rc_context(STYLE):
        figure = make_figure(run, samples, analyse(run, samples), size_inches=size)
        figure.canvas.draw()
    axes = figure.axes[0]
    (note,) = (text for text in axes.texts if "too few rounds" in text.get_text())
    legend = axes.get_legend()
    assert legend is not None
    note_box, legend_box = note.get_window_extent(), legend.get_window_extent()
    label_box = axes.xaxis.label.get_window_extent()
    assert note_box.y1 <= label_box.y0 and figure.bbox.y0 <= note_box.y0
    assert legend_box.y0 >= axes.bbox.y1 - 1
    assert not legend_box.overlaps(figure._suptitle.get_window_extent())  # type: ignore[attr-defined]
    assert legend_box.x1 <= figure.bbox.x1 and figure.bbox.x0 <= note_box.x0


def test_nothing_measured_has_no_ticks() -> None:
    axes = draw(make_run(series={}), [], Analysis((), (), ()))
    assert list(axes.get_xticks()) == [] and list(axes.get_yticks()) == []
    assert list(axes.get_yticks(minor=True)) == []


def test_lengths_between_two_powers_of_two_have_ticks_of_their_own() -> None:
    ways = (MEMORY, DISK)
    run, samples = make_tier_run(ways), make_tier_samples(ways, lengths=[1000])
    analysis = analyse(run, samples)
    assert list(draw(run, samples, analysis).get_xticks()) == [1000]
    with mpl.rc_context(STYLE):
        figure = tiers_figure.make_figure(run, make_tiers(run, samples, analysis))
    assert list(figure.axes[0].get_xticks()) == [1000]


def test_a_figure_says_what_makes_it_suspect() -> None:
    samples = make_samples()
    notices = tuple(Notice(kind=kind, detail="m") for kind in ("drive_shared", "budget_left"))
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


@pytest.mark.parametrize(
    ("low", "high"), [(1.1e11, 6e11), (1.31e11, 1.45e11), (3.0, 40.0), (1e3, 1e8), (1.0, 1e14)]
)
def test_labels_of_a_log_axis_are_plain_numbers_and_there_are_at_least_two(low: float, high: float) -> None:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5, 4))
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot([1, 2], [low, high])
        axes.set_yscale("log")
        plain_log_axis(axes.yaxis, lambda value: f"{value:g}")
        figure.canvas.draw()
        bottom, top = axes.get_ylim()
        ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
        seen = [tick.label1.get_text() for tick in ticks if bottom <= tick.get_loc() <= top]
    assert not any("$" in label for label in seen)
    assert len([label for label in seen if label]) >= 2
