"""The crossover figure: the arms over the prefix length, every round faintly, the crossovers marked.

Above the axes stand the answer and the legend, below them all that the curves depend on.
"""

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from bench.estimate.results import Analysis, Crossing, Estimate, Fit, SweetSpot
from bench.estimate.valid_samples import samples_that_count
from bench.record.atomic_write import write_bytes_safely
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import format_tick_seconds, format_tokens
from bench.report.figures.labels import draw_legend, format_spot, is_wide, mark_crossings, room_for
from bench.report.figures.style import LOAD_COLOURS, RECOMPUTE_COLOUR, look_of
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import (
    arm_label,
    data_path,
    device_name,
    format_cache,
    format_depth,
    format_model,
    load_series,
    points_of,
    recompute_series,
    series_label,
    storage_name,
)
from bench.report.text.main_answer import asked_spot, main_spot
from bench.report.text.sentence import crossover_name, format_repeats, format_suffix, short_answer

MAX_SHADED = 2  # curves; of more, each crossover is a ring on the recompute curve


def figure_title(run: RunRecord, analysis: Analysis, *, num_curves: int) -> str:
    """The answer; of several load series, whose answers the legend has, what is compared."""
    spot = main_spot(run, analysis)
    if spot is None or num_curves > MAX_SHADED:
        return "Recompute against load"
    bounds = [crossing.tokens for crossing in spot.crossings]
    if len(bounds) != 1 or bounds[0].low is None or bounds[0].high is None:
        return short_answer(spot)
    return f"{short_answer(spot)}  [{format_tokens(bounds[0].low)}–{format_tokens(bounds[0].high)}]"


def _shade_crossings(axes: Axes, spot: SweetSpot) -> None:
    """The crossings inside the measured range, from the bottom of the axes to their top."""
    inside = [crossing for crossing in spot.crossings if not crossing.extrapolated]
    for crossing in inside:
        _draw_crossing(axes, crossing)
    if inside:
        axes.plot([], [], color="0.25", linestyle=":", label=f"{crossover_name(spot)} and its 95 % interval")


def _draw_crossing(axes: Axes, crossing: Crossing) -> None:
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is not None and high is not None:
        left, right = axes.get_xlim()
        axes.axvspan(max(low, left), min(high, right), color="0.4", alpha=0.2, linewidth=0)
    axes.axvline(max(crossing.tokens.value, 1), color="0.25", linestyle=":", linewidth=1.4)


NO_BREAK = "\N{NO-BREAK SPACE}"


def caption(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> str:
    """What the figure shows: model, device, storage with its limit, ways and states, repeats, depth."""
    loads = load_series(run, analysis)
    codes = (suspect_codes(run, samples, analysis, series=series) for series in loads)
    suspects = dict.fromkeys(code for found in codes for code in found)
    ways = [
        f"{series_label(run, series)} over "
        + ", ".join(
            part
            for part in (
                data_path(run, samples, series=series) or "no proven data path",
                format_cache(run, samples, series=series),
            )
            if part
        )
        for series in loads
    ]
    parts = [
        f"{format_model(run)} on {device_name(run)}",
        storage_name(run),
        *(ways or ["no load series"]),
        f"times of {format_suffix(run, next(iter(loads), None))}" if run.plan.suffix_tokens else None,
        format_repeats(run, samples),
        format_depth(samples),
        "bands and bars: 95 % intervals over rounds",
        f"suspect: {', '.join(suspects)}" if suspects else None,
    ]
    return "; ".join(part for part in parts if part) + "."


def wrap_outside_brackets(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; what stands in brackets stays on one of them if it fits there."""
    bound = re.sub(
        r"\([^()]*\)",
        lambda found: found[0].replace(" ", NO_BREAK) if len(found[0]) <= width else found[0],
        text,
    )
    return [line.replace(NO_BREAK, " ") for line in textwrap.wrap(bound, width)]


WIDE_INCHES = (8.0, 5.4)
NARROW_INCHES = (4.0, 5.2)
PNG_DPI = 130
NOTE_CHARACTERS = {True: 120, False: 60}
NARROW_SPAN = 2.5  # of the slowest to the fastest time, below which 1, 2 and 5 are too few ticks
NOTE_POINTS = -48  # from the axes down, past tick labels and the label of the axis
STYLE: Any = {  # matplotlib types its parameters by name
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "kvcross",
    "svg.fonttype": "path",
    "path.simplify": True,
}


def draw_crossover(axes: Axes, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis) -> None:
    """Draw all that was measured on log-log `axes`, and say in words what is missing."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    suffix = run.plan.suffix_tokens
    missing: list[tuple[str, str]] = []
    spots: list[tuple[SweetSpot, str]] = []
    recompute: dict[int, float] = {}
    rounds = False
    rows = _series_styles(run, samples, analysis)
    several = len(rows) > MAX_SHADED
    for series, arm, colour, marker in rows:
        name = arm_label(run, series, arm=arm)
        counted = samples_that_count(run, samples, series)
        asked = [sample for sample in counted if sample.case.suffix_tokens == suffix]
        rounds = _draw_rounds(axes, asked, colour=colour) or rounds
        known = _estimates(run, samples, analysis, series=series, arm=arm)
        spot = asked_spot(run, analysis, series)
        if spot is not None:
            spots.append((spot, colour))
        if arm == "recompute":
            recompute |= {length: estimate.value for length, estimate in known.items()}
        if known:
            label = name
            if several and spot is not None:
                label = f"{series_label(run, series)}: {format_spot(spot)}"
            _draw_points(axes, known, label=label, colour=colour, marker=marker)
        missing += [(lack, name) for lack in _find_lacks(known)]
    colours = {series: colour for series, _, colour, _ in rows}
    fits = any([_draw_fit(axes, fit, colours=colours) for fit in analysis.fits])
    timed = (
        f"time of the next {format_tokens(suffix)} tokens" if suffix else "time, first-token step included"
    )
    _scale_axes(axes, samples, analysis, ylabel=timed)
    main = main_spot(run, analysis)
    if several:
        mark_crossings(axes, spots, recompute)
    elif main is not None:
        _shade_crossings(axes, main)
    draw_legend(axes, fits=fits, rounds=rounds)
    _format_missing(axes, missing)


def _find_lacks(known: dict[int, Estimate]) -> Iterator[str]:
    """What a curve lacks."""
    if not known:
        yield "no samples that count"
    if not all(_bounded(estimate) for estimate in known.values()):
        yield "no interval at some lengths, too few rounds"
    if len(known) == 1:
        yield "measured at one length only"


def _series_styles(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis
) -> list[tuple[str, str, str, str]]:
    rows = [(series, "recompute", RECOMPUTE_COLOUR, "o") for series in recompute_series(run, samples)]
    rows = rows or [("recompute", "recompute", RECOMPUTE_COLOUR, "o")]
    loads = load_series(run, analysis) or ("load",)
    for index, series in enumerate(loads):
        arm = run.series[series].arm if series in run.series else "load"
        rows.append((series, arm, *look_of(index)))
    for index, curve in enumerate((c for c in analysis.hybrids if c.skipped is None), start=len(loads)):
        rows.append((curve.series, "hybrid", *look_of(index)))
    return rows


def _estimates(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, series: str, arm: str
) -> dict[int, Estimate]:
    """Estimate by length of one series; the recompute arm's stand on the points of every load series."""
    if arm == "recompute":
        first = recompute_series(run, samples)[:1]
        if first and series != first[0]:
            return {}
        found = {point.prefix_tokens: point.recompute_s for point in analysis.points}
    elif arm == "hybrid":
        curves = (curve for curve in analysis.hybrids if curve.series == series)
        found = {point.prefix_tokens: point.hybrid_s for curve in curves for point in curve.points}
    else:
        found = {point.prefix_tokens: point.load_s for point in points_of(analysis, series)}
    return {length: found[length] for length in sorted(found) if found[length] is not None}  # type: ignore[misc]


def _draw_rounds(axes: Axes, samples: Sequence[Sample], *, colour: str) -> bool:
    """Each round as a faint line through its medians, the scatter that the interval stands for; whether one shows.

    A single round lies under the curve itself.
    """
    numbers = sorted({sample.round for sample in samples})
    for number in numbers:
        by_length: dict[int, list[float]] = {}
        for sample in samples:
            if sample.round == number:
                by_length.setdefault(sample.case.prefix_tokens, []).append(sample.outcome.seconds)
        lengths = sorted(by_length)
        medians = [float(np.median(by_length[length])) for length in lengths]
        axes.plot(lengths, medians, color=colour, alpha=0.25, linewidth=0.7, marker=".", markersize=2.5)
    return len(numbers) > 1


def _bounded(estimate: Estimate) -> bool:
    """True when both bounds are there and finite: two wild rounds have an interval without end."""
    return (
        estimate.low is not None
        and estimate.high is not None
        and bool(np.isfinite([estimate.low, estimate.high]).all())
    )


def _draw_points(axes: Axes, known: dict[int, Estimate], *, label: str, colour: str, marker: str) -> None:
    lengths = list(known)
    values = [estimate.value for estimate in known.values()]
    bounded = {
        length: (estimate.value, estimate.low, estimate.high)
        for length, estimate in known.items()
        if _bounded(estimate)
    }
    if bounded:
        rows = np.array(list(bounded.values()), dtype=float)
        # an interval that reaches 0 has no place on a log axis; its lower end is cut, its upper end stands
        low = np.maximum(rows[:, 1], rows[:, 0] * 1e-3)
        axes.fill_between(list(bounded), low, rows[:, 2], color=colour, alpha=0.18, linewidth=0)
        spread = np.clip(np.array([rows[:, 0] - low, rows[:, 2] - rows[:, 0]]), 0, None)
        axes.errorbar(list(bounded), rows[:, 0], yerr=spread, fmt="none", ecolor=colour, capsize=2.5)
    axes.plot(lengths, values, color=colour, marker=marker, markersize=5, linewidth=1.6, label=label)


def _draw_fit(axes: Axes, fit: Fit, *, colours: dict[str, str]) -> bool:
    """A fit over its lengths, dashed; whether it has enough of them."""
    lengths = sorted(fit.residuals)
    if len(lengths) < 2:
        return False
    grid = np.geomspace(lengths[0], lengths[-1], 100)
    seconds = sum(coefficient * grid**power for power, coefficient in enumerate(fit.coefficients))
    shown = np.where(np.asarray(seconds) > 0, seconds, np.nan)
    colour = colours.get(fit.series, RECOMPUTE_COLOUR if fit.arm == "recompute" else LOAD_COLOURS[0])
    axes.plot(grid, shown, color=colour, linestyle=(0, (4, 3)), linewidth=1.0, alpha=0.9)
    return True


def _scale_axes(axes: Axes, samples: Sequence[Sample], analysis: Analysis, *, ylabel: str) -> None:
    lengths = sorted({p.prefix_tokens for p in analysis.points} | {s.case.prefix_tokens for s in samples})
    axes.set_xlabel("prefix (tokens)")
    axes.set_ylabel(ylabel)
    if lengths:
        axes.set_xlim(max(lengths[0], 1) / 1.15, max(lengths[-1], 1) * 1.15)
        powers = [2**p for p in range(0, 40) if lengths[0] <= 2**p <= lengths[-1]]
        step = 1 + max(0, len(powers) - 1) // 8
        axes.set_xticks(powers[::-step][::-1] or lengths)
    else:
        axes.set_xticks([])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tokens(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(_pick_ticks(axes) if lengths else NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tick_seconds(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if not lengths:
        axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelrotation=30)
    axes.grid(True, which="major", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def _pick_ticks(axes: Axes) -> Locator:
    """1, 2 and 5 of each decade, or a few round values where hardly any of those would show."""
    low, high = sorted(axes.yaxis.get_data_interval())
    narrow = low > 0 and high / low < NARROW_SPAN
    return MaxNLocator(nbins=4) if narrow else LogLocator(base=10, subs=(1.0, 2.0, 5.0))


def _format_missing(axes: Axes, missing: Sequence[tuple[str, str]]) -> None:
    """What is not there, below the axes and their label: a line for all curves that lack the same; of many, how many."""
    lacks: dict[str, list[str]] = {}
    for lack, name in missing:
        lacks.setdefault(name, []).append(lack)
    names: dict[str, list[str]] = {}
    for name, found in lacks.items():
        names.setdefault("; ".join(found), []).append(name)
    lines = [
        f"{found}: {', '.join(having) if len(having) <= 2 else f'{len(having)} series'}"
        for found, having in names.items()
    ]
    lines = [part for line in lines for part in wrap_outside_brackets(line, NOTE_CHARACTERS[is_wide(axes)])]
    if lines:
        axes.annotate(
            "\n".join(lines), (1.0, 0.0), (0, NOTE_POINTS), xycoords="axes fraction", textcoords="offset points",
            ha="right", va="top", fontsize=8, style="italic", color="#8a1c1c", parse_math=False,
            annotation_clip=False,
        )  # fmt: skip


def make_figure(
    run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, size_inches: tuple[float, float]
) -> Figure:
    """The whole figure: axes, answer as title, caption below.  Call inside `STYLE`."""
    num_curves = len(_series_styles(run, samples, analysis))
    figure = Figure(figsize=room_for(num_curves, size_inches), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_crossover(axes, run, samples, analysis=analysis)
    title = figure_title(run, analysis, num_curves=num_curves)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
    lines = textwrap.wrap(caption(run, samples, analysis), width=int(size_inches[0] * 15.5))
    figure.supxlabel("\n".join(lines), fontsize=7.5, color="0.35", x=0.01, ha="left", parse_math=False)
    return figure


def figure_content(
    run: RunRecord,
    samples: Sequence[Sample],
    analysis: Analysis,
    *,
    form: Literal["png", "svg"],
    size_inches: tuple[float, float] = WIDE_INCHES,
) -> bytes:
    """The figure as a file's content; equal inputs give equal bytes, no time and no path inside."""
    metadata = {"Software": None} if form == "png" else {"Date": None, "Creator": None}
    stream = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = make_figure(run, samples, analysis, size_inches=size_inches)
        figure.savefig(stream, format=form, dpi=PNG_DPI, metadata=metadata)
    return stream.getvalue()


def write_figure(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis
) -> tuple[Path, Path]:
    """Write crossover.png and crossover.svg into `folder`; the two paths."""
    paths = folder / "crossover.png", folder / "crossover.svg"
    write_bytes_safely(paths[0], figure_content(run, samples, analysis, form="png"))
    write_bytes_safely(paths[1], figure_content(run, samples, analysis, form="svg"))
    return paths
