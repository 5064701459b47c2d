"""The report: one self-contained page that a phone can open, everything from outside escaped.

Each section is made of plain values; the template only lays them out.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.estimate.results import Analysis, SweetSpot
from bench.estimate.tiers import TierTable, make_tiers
from bench.record.atomic_write import write_text_safely
from bench.record.notices import kind_of
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import (
    MISSING,
    format_bytes,
    format_rate,
    format_seconds,
    format_share,
    format_tokens,
    printable,
)
from bench.report import provenance as origin
from bench.report.figures import tiers_figure
from bench.report.figures.crossover_figure import NARROW_INCHES, figure_content
from bench.report.notice_text import format_notices
from bench.report.run_facts import (
    arm_label,
    device_name,
    format_depth,
    load_series,
    points_of,
    series_label,
    spots_of,
)
from bench.report.text.closing_table import SCALED, number_notices, point_rows
from bench.report.text.format import format_rate_estimate, format_tokens_estimate
from bench.report.text.hybrid_text import describe_hybrids, format_hybrid_notices
from bench.report.text.main_answer import main_spot
from bench.report.text.sentence import (
    crossover_name,
    describe_answer,
    format_arms,
    format_crossing,
    format_guess,
    format_interval,
    format_repeats,
    of_suffix,
    short_answer,
)
from bench.report.text.tier_text import has_choice, tier_headings, tier_notes, tier_rows, tier_title

POWERS = ("", " n", " n²")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: headings, rows of cells, and lines below it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """One notice: its code, what happened, what it means."""

    code: str
    message: str
    explanation: str
    suspect: bool


def point_grids(run: RunRecord, analysis: Analysis) -> tuple[Grid, ...]:
    """Both arms at every length, one grid for each load series."""
    grids = []
    for series in load_series(run, analysis):
        points = points_of(analysis, series)
        numbers = number_notices(points)
        headings, rows = point_rows(analysis, series, with_notices=bool(numbers))
        notes = [SCALED] if any(point.recompute_scaled or point.load_scaled for point in points) else []
        notes += [f"{number} {printable(code)}" for code, number in numbers.items()]
        grids.append(Grid(f"load by {series_label(run, series)}", headings, tuple(rows), tuple(notes)))
    return tuple(grids)


def spot_grid(run: RunRecord, analysis: Analysis) -> Grid:
    """Every crossover, C* and P*, for each statistic of the load time."""
    rows = tuple(
        (
            series_label(run, series),
            crossover_name(spot) + of_suffix(run, spot),
            spot.verdict.replace("_", " "),
            "; ".join(map(format_crossing, spot.crossings)) or "—",
            "; ".join(_span(crossing.bracket) for crossing in spot.crossings) or MISSING,
            _span(spot.measured_range),
            format_tokens(spot.export_tokens),
        )
        for series in load_series(run, analysis)
        for spot in spots_of(analysis, series)
    )
    headings = (
        "load by",
        "kind",
        "verdict",
        "tokens [95 %]",
        "between",
        "measured",
        "setting",
    )
    reasons = tuple(
        f"{series_label(run, spot.series)}, {crossover_name(spot)}: {printable(spot.reason)}"
        for spot in analysis.spots
        if spot.reason
    )
    notes = ("setting: tokens, rounded up to whole chunks", *reasons)
    return Grid("crossovers", headings, rows, notes)


def _span(bounds: tuple[int, int] | None) -> str:
    return MISSING if bounds is None else f"{format_tokens(bounds[0])}–{format_tokens(bounds[1])}"


def tier_grid(run: RunRecord, table: TierTable) -> Grid:
    """The tiers by load time; below them the cheapest that beats recompute at each length."""
    return Grid(tier_title(table), tier_headings(table), tuple(tier_rows(run, table)), tier_notes(run, table))


def break_even_grids(run: RunRecord, analysis: Analysis) -> tuple[Grid, ...]:
    """The read rate at which both arms tie, and the measured rate; tails of the load time."""
    return tuple(
        Grid(
            f"load by {series_label(run, series)}",
            (
                "prefix tokens",
                "bytes read",
                "break-even",
                "GB/s measured",
                "first-token step",
                "load p95",
                "load p99",
            ),
            tuple(
                (
                    format_tokens(point.prefix_tokens),
                    format_bytes(point.num_bytes),
                    format_rate(point.break_even_bytes_per_s),
                    format_rate_estimate(point.bytes_per_s),
                    format_seconds(point.first_token_s),
                    format_seconds(point.load_p95_s),
                    format_seconds(point.load_p99_s),
                )
                for point in points_of(analysis, series)
            ),
        )
        for series in load_series(run, analysis)
    )


def sensitivity_grid(run: RunRecord, analysis: Analysis) -> Grid | None:
    """Where the crossover would lie at other bandwidths; None when nothing was derived."""
    spots = [spot for spot in analysis.spots if spot.sensitivity]
    if not spots:
        return None
    factors = tuple(dict.fromkeys(factor for spot in spots for factor in spot.sensitivity))
    rows = tuple(
        (
            series_label(run, spot.series),
            crossover_name(spot),
            *(format_tokens_estimate(spot.sensitivity.get(factor)) for factor in factors),
        )
        for spot in spots
    )
    headings = ("load by", "kind", *(f"{factor.replace('x', '×')} bandwidth" for factor in factors))
    note = (
        "tokens [95 %]; — where the rounds decide on no single crossover in the measured range: "
        "there is none, there are several, or they disagree"
    )
    return Grid("sensitivity", headings, rows, (note,))


def fit_grid(run: RunRecord, analysis: Analysis) -> Grid:
    """The fitted curves and their largest relative residual: diagnostics, not the answer."""
    rows = tuple(
        (
            arm_label(run, fit.series, arm=fit.arm),
            " + ".join(
                f"{coefficient:.3g}{('', ' n', ' n²')[power]}"
                for power, coefficient in enumerate(fit.coefficients)
            ),
            format_share(max((abs(residual) for residual in fit.residuals.values()), default=None)),
        )
        for fit in analysis.fits
    )
    return Grid("fits", ("arm", "seconds for n tokens", "largest residual"), rows)


def notice_lines(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> tuple[NoticeLine, ...]:
    """Every code once with all its messages, the suspect ones first, each with what it means."""
    loads = load_series(run, analysis) or ("",)
    said = [format_notices(run, samples, analysis, series=series) for series in loads]
    said += [format_hybrid_notices(run, curve) for curve in analysis.hybrids]
    found: dict[str, dict[str, None]] = {}
    for notices in said:
        for code, messages in notices.items():
            found.setdefault(code, {}).update(dict.fromkeys(messages))
    lines = [
        NoticeLine(
            printable(code), printable("; ".join(messages)), kind_of(code).meaning, kind_of(code).suspect
        )
        for code, messages in found.items()
    ]
    return tuple(sorted(lines, key=lambda line: not line.suspect))


def suspect_lines(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> tuple[str, ...]:
    """What each suspect code means, once: those that a footnote of the table explains are left to it."""
    said = {code for point in analysis.points for code in point.notices}
    said -= {notice.kind for notice in run.notices}  # the footnote then says what happened, not what it means
    lines = [line for line in notice_lines(run, samples, analysis) if line.suspect and line.code not in said]
    return tuple(f"suspect: {line.code}: {line.explanation}" for line in lines)


def tile_answers(run: RunRecord, analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """(short answer, what it holds for) of each median C* and P*: what to see first."""
    spots = [spot for series in load_series(run, analysis) for spot in spots_of(analysis, series)]
    return tuple((short_answer(spot), _holds_for(run, spot)) for spot in spots if spot.statistic == "p50")


def _holds_for(run: RunRecord, spot: SweetSpot) -> str:
    decided = spot.verdict in {"crossover", "multiple_crossings"}
    crossings = map(format_interval if decided else format_guess, spot.crossings)
    parts = [f"load{of_suffix(run, spot)} by {series_label(run, spot.series)}", *crossings]
    return "; ".join(parts)


TEMPLATE = "report.html"


def render_report(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> str:
    """The page as text: no script, no address outside, figures inline; equal inputs give an equal page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    notices = notice_lines(run, samples, analysis)
    spot = main_spot(run, analysis)
    table = make_tiers(run, samples, analysis)
    return environment.get_template(TEMPLATE).render(
        title=f"{printable(run.model_name)} on {device_name(run)}: load or recompute?",
        sentence=describe_answer(run, samples, analysis),
        hybrids=describe_hybrids(run, analysis),
        verdict=spot.verdict if spot is not None else "inconclusive",
        tiles=tile_answers(run, analysis),
        subject=origin.subject_rows(run, samples),
        suspects=[line for line in notices if line.suspect],
        notices=notices,
        wide=_as_image(figure_content(run, samples, analysis, form="svg")),
        narrow=_as_image(figure_content(run, samples, analysis, form="svg", size_inches=NARROW_INCHES)),
        tiers=_tier_section(run, table) if has_choice(table) else None,
        points=point_grids(run, analysis),
        spots=spot_grid(run, analysis),
        break_even=break_even_grids(run, analysis),
        sensitivity=sensitivity_grid(run, analysis),
        fits=fit_grid(run, analysis),
        checks=origin.check_rows(run),
        ways=origin.way_rows(run, samples),
        facts=origin.fact_sections(run),
        repeats=format_repeats(run, samples),
        depth=format_depth(samples),
        marginal=format_arms(run, None if spot is None else spot.series),
        run=run,
    )


def _as_image(svg: bytes) -> str:
    """An address of the image inside the page; as an image it can run nothing."""
    return "data:image/svg+xml;base64," + b64encode(svg).decode("ascii")


@dataclass(frozen=True, slots=True)
class TierSection:
    """The tiers as table and figure."""

    table: Grid
    wide: str
    narrow: str


def _tier_section(run: RunRecord, table: TierTable) -> TierSection:
    wide, narrow = (
        _as_image(tiers_figure.figure_content(run, table, form="svg", width_inches=width))
        for width in (tiers_figure.WIDE_INCHES, tiers_figure.NARROW_INCHES)
    )
    return TierSection(tier_grid(run, table), wide, narrow)


def write_report(folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis) -> Path:
    """Write report.html into `folder` in one step; its path."""
    path = folder / "report.html"
    write_text_safely(path, render_report(run, samples, analysis))
    return path
