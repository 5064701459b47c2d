"""The report: one self-contained page that a phone can open, everything from outside escaped."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.estimate.results import Analysis
from bench.estimate.tiers import TierTable, make_tiers
from bench.record.atomic_write import write_text_safely
from bench.record.run import RunRecord, Sample
from bench.record.units import printable
from bench.report import provenance as origin
from bench.report import sections
from bench.report.figures import tiers_figure
from bench.report.figures.crossover_figure import NARROW_INCHES, figure_content
from bench.report.run_facts import device_name, say_depth
from bench.report.text.asked import say_arms
from bench.report.text.hybrid_text import describe_hybrids
from bench.report.text.main_answer import main_spot
from bench.report.text.repeats import say_repeats
from bench.report.text.sentence import describe_answer
from bench.report.text.tier_text import has_choice

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
    notices = sections.notice_lines(run, samples, analysis)
    spot = main_spot(run, analysis)
    table = make_tiers(run, samples, analysis)
    return environment.get_template(TEMPLATE).render(
        title=f"{printable(run.model_name)} on {device_name(run)}: load or recompute?",
        sentence=describe_answer(run, samples, analysis),
        hybrids=describe_hybrids(run, analysis),
        verdict=spot.verdict if spot is not None else "inconclusive",
        tiles=sections.tile_answers(run, analysis),
        subject=origin.subject_rows(run, samples),
        suspects=[line for line in notices if line.suspect],
        notices=notices,
        wide=_as_image(figure_content(run, samples, analysis, form="svg")),
        narrow=_as_image(figure_content(run, samples, analysis, form="svg", size_inches=NARROW_INCHES)),
        tiers=_tier_section(run, table) if has_choice(table) else None,
        points=sections.point_grids(run, analysis),
        spots=sections.spot_grid(run, analysis),
        break_even=sections.break_even_grids(run, analysis),
        sensitivity=sections.sensitivity_grid(run, analysis),
        fits=sections.fit_grid(run, analysis),
        checks=origin.check_rows(run),
        ways=origin.way_rows(run, samples),
        facts=origin.fact_sections(run),
        repeats=say_repeats(run, samples),
        depth=say_depth(samples),
        marginal=say_arms(run, None if spot is None else spot.series),
        run=run,
    )


def _as_image(svg: bytes) -> str:
    """An address of the image inside the page; as an image it can run nothing."""
    return "data:image/svg+xml;base64," + b64encode(svg).decode("ascii")


@dataclass(frozen=True, slots=True)
class TierSection:
    """The tiers as table and figure."""

    table: sections.Grid
    wide: str
    narrow: str


def _tier_section(run: RunRecord, table: TierTable) -> TierSection:
    wide, narrow = (
        _as_image(tiers_figure.figure_content(run, table, form="svg", width_inches=width))
        for width in (tiers_figure.WIDE_INCHES, tiers_figure.NARROW_INCHES)
    )
    return TierSection(sections.tier_grid(run, table), wide, narrow)


def write_report(folder: Path, run: RunRecord, samples: Sequence[Sample], *, analysis: Analysis) -> Path:
    """Write report.html into `folder` in one step; its path."""
    path = folder / "report.html"
    write_text_safely(path, render_report(run, samples, analysis))
    return path
