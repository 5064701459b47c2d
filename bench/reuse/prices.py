"""Prices of recomputing and loading: from the points of a sweep, or from a table of a user's own.

Prices of recomputing and loading on a described machine: the cost model's seconds and its C*; modelled.
"""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from bench.estimate.results import Analysis, Crossing, Point, SweetSpot, Verdict, choose_series
from bench.predict.cost_model import TimeModel
from bench.predict.curve import Curve, MeasuredCurve
from bench.predict.prediction import SHORTEST, find_doubts, find_whole, gap_whole, verdict_of
from bench.predict.sweep_model import SweepModel, curve_of
from bench.record.run import RunRecord
from bench.reuse.savings import CostCurves, HitPrices
from kvio.errors import UserError


def prices_of_model(model: TimeModel, *, longest: int, num_gpus: int = 1) -> HitPrices:
    """What the cost model says that recomputing and loading cost, and from which prefix on loading is faster.

        T(n) = recompute_s(n)      F(n) = fixed_s(n)      L(n) = fixed_s(n) + transfer_s(n)

    each of them at every length as `predict` prints it, none interpolated.

    Args:
        model: of the machine.
        longest: tokens up to which C* is looked for; longer prompts say that they are extrapolated.
        num_gpus: GPUs that run the model together.

    Source: formulas and their measured errors are in docs/model.md.
    """
    curves = CostCurves(
        recompute_s=curve_of(model.recompute_s),
        load_s=curve_of(lambda n: model.fixed_s(n) + model.transfer_s(n)),
        first_token_s=curve_of(model.fixed_s),
        measured_range=(1, longest),
    )
    crossings = find_whole(model, SHORTEST, longest)
    verdict = verdict_of(crossings, gap_whole(model)(longest))
    tokens = {"load_always_wins": 0.0, "recompute_always_wins": math.inf}.get(verdict)
    if verdict == "crossover" and crossings[0].load_wins_beyond:
        tokens = crossings[0].tokens.value
    return HitPrices(
        curves=curves,
        crossover_tokens=tokens,
        source=f"the cost model, nothing was measured: {model.label}",
        num_gpus=num_gpus,
        notices=(*_format_verdict(verdict, crossings, longest), *_format_doubts(model, verdict, longest)),
        modelled=True,
        supposed=model.notices,
    )


def _format_verdict(verdict: str, crossings: tuple[Crossing, ...], longest: int) -> tuple[str, ...]:
    """What C* alone does not say: its bounds, or why there is none."""
    searched = f"between {SHORTEST:,} and {longest:,} tokens"
    if verdict != "crossover":
        return (f"modelled {searched}: {verdict.replace('_', ' ')}",)
    low, high = crossings[0].tokens.low, crossings[0].tokens.high
    if not crossings[0].load_wins_beyond:
        return (f"modelled {searched}: loading is faster only below {crossings[0].tokens.value:,.0f} tokens",)
    if low is None or high is None:
        return (f"the modelled C* has no bounds of its own, looked for {searched}",)
    return (f"the modelled C* lies between {low:,.0f} and {high:,.0f} tokens by the range of its rates",)


def _format_doubts(model: TimeModel, verdict: Verdict, longest: int) -> tuple[str, ...]:
    """The other verdicts that the ranges of the rates allow."""
    if not any(model.has_bounds):
        return ()
    doubts = find_doubts(partial(gap_whole, model), verdict, (SHORTEST, longest))
    return tuple(f"undecided: {name.replace('_', ' ')} within the range of the rates too" for name in doubts)


COLUMNS = ("prefix_tokens", "recompute_s", "load_s")
STEP = "first_token_s"
MAX_POINTS = 100_000


class CurveError(UserError, ValueError):
    """Times that make no curve; the message says where."""


def read_prices(path: Path) -> HitPrices:
    """Prices from a CSV file with COLUMNS, and first_token_s where load_s contains that step; C* from the curves.

    Raises:
        CurveError: the file cannot be read, a column is missing, or a line is no point of a rising curve.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise CurveError(f"{path}: no column {', '.join(missing)}; expected {','.join(COLUMNS)}")
            names = [*COLUMNS, STEP] if STEP in (rows.fieldnames or ()) else list(COLUMNS)
            points = [_read_point(path, rows.line_num, row=row, names=names) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CurveError(f"{path}: cannot be read as CSV: {error}") from error
    if len(points) < 2:
        raise CurveError(f"{path}: {len(points)} points; a curve needs at least 2")
    if len(points) > MAX_POINTS:
        raise CurveError(f"{path}: {len(points)} points; at most {MAX_POINTS} are read")
    return _prices_of(points, source=str(path), crossover=None)


def _read_point(path: Path, line: int, *, row: dict[str, str], names: Sequence[str]) -> tuple[float, ...]:
    values = []
    for name in names:
        try:
            value = float(row[name])
        except (TypeError, ValueError):
            raise CurveError(f"{path}, line {line}: {name} must be a number, found {row[name]!r}") from None
        if not (math.isfinite(value) and value > 0):
            raise CurveError(f"{path}, line {line}: {name} must be positive and finite, found {row[name]}")
        values.append(value)
    if values[0] != int(values[0]):
        raise CurveError(
            f"{path}, line {line}: prefix_tokens must be a whole number, found {row['prefix_tokens']}"
        )
    return tuple(values)


def _prices_of(points: Sequence[tuple[float, ...]], *, source: str, crossover: float | None) -> HitPrices:
    """Prices through (tokens, recompute_s, load_s[, first_token_s]) with rising tokens."""
    tokens = tuple(int(point[0]) for point in points)
    if any(after <= before for before, after in pairwise(tokens)):
        raise CurveError(f"{source}: prefix_tokens must rise from line to line")
    columns = [MeasuredCurve(tokens, tuple(point[i] for point in points)) for i in range(1, len(points[0]))]
    curves = CostCurves(columns[0], columns[1], measured_range=(tokens[0], tokens[-1]))
    return HitPrices(
        curves=replace(curves, first_token_s=columns[2]) if len(columns) > 2 else curves,
        crossover_tokens=crossover,
        source=source,
    )


def prices_of_sweep(
    run: RunRecord,
    analysis: Analysis,
    *,
    series: str | None,
    source: str,
    beyond: SweepModel | None = None,
) -> HitPrices:
    """Prices measured by a sweep: its points, outside of their lengths the model calibrated on it, and its C*.

    Args:
        run: the sweep.
        analysis: of its samples.
        series: the load series; None for the only one.
        source: what to call it.
        beyond: the model calibrated on this series, for lengths outside; None follows the end slopes.

    Raises:
        CurveError: no such series, or fewer than two lengths that both arms measured.
    """
    if run.plan.suffix_tokens:
        raise CurveError(
            f"{source}: it asked the marginal question (--suffix-tokens); whole prefixes are needed"
        )
    try:
        name = choose_series([spot.series for spot in analysis.spots], series)
    except ValueError as error:
        raise CurveError(f"{source}: {error}") from None
    spot = next(s for s in analysis.spots if (s.series, s.kind, s.statistic) == (name, "whole", "p50"))
    measured = [point for point in analysis.points if point.series == name]
    points = [row for row in map(_times, measured) if row is not None]
    if len(points) < 2:
        raise CurveError(f"{source}: {name} has {len(points)} lengths that both arms measured; 2 are needed")
    stepped = all(len(row) == 4 for row in points)
    prices = _prices_of(
        [row if stepped else row[:3] for row in points],
        source=f"{source}, {name}",
        crossover=_crossover_of(spot),
    )
    doubts = _doubts(spot, stepped=stepped)
    return replace(
        _extend(prices, beyond) if stepped and beyond is not None else prices,
        conclusive=spot.verdict != "inconclusive",
        notices=tuple(doubts),
    )


def _extend(prices: HitPrices, model: SweepModel) -> HitPrices:
    """The same prices, by the model outside of the lengths measured."""

    def extend(measured: Curve, seconds_at: Callable[[int], float]) -> Curve:
        if not isinstance(measured, MeasuredCurve):
            raise TypeError(f"{measured!r} is not through measured points")
        return replace(measured, beyond=curve_of(seconds_at))

    curves = CostCurves(
        recompute_s=extend(prices.curves.recompute_s, model.recompute_s),
        load_s=extend(prices.curves.load_s, lambda n: model.fixed_s(n) + model.transfer_s(n)),
        first_token_s=extend(prices.curves.first_token_s, model.step_s),
        measured_range=prices.curves.measured_range,
    )
    return replace(prices, curves=curves, beyond=model)


def _times(point: Point) -> tuple[float, ...] | None:
    if point.recompute_s is None or point.load_s is None:
        return None
    times = (float(point.prefix_tokens), point.recompute_s.value, point.load_s.value)
    return times if point.first_token_s is None else (*times, point.first_token_s)


def _crossover_of(spot: SweetSpot) -> float | None:
    """C*, 0 or infinity for the verdicts that name no place; None where the curves must decide."""
    measured = [crossing for crossing in spot.crossings if not crossing.extrapolated]
    if spot.verdict == "crossover" and measured and measured[-1].load_wins_beyond:
        return measured[-1].tokens.value
    return {"load_always_wins": 0.0, "recompute_always_wins": math.inf}.get(spot.verdict)


def _doubts(spot: SweetSpot, *, stepped: bool) -> list[str]:
    doubts = []
    if spot.verdict == "inconclusive":
        doubts.append(
            f"C* is inconclusive ({spot.reason}): prefixes are loaded where the medians say it is faster"
        )
    if spot.verdict == "multiple_crossings":
        doubts.append(
            "the curves cross more than once: prefixes are loaded where the medians say it is faster"
        )
    if spot.verdict.endswith("always_wins") and spot.measured_range:
        low, high = spot.measured_range
        doubts.append(
            f"{spot.verdict} from {low} to {high} tokens; shorter and longer prefixes are taken alike"
        )
    if not stepped:
        doubts.append("no first-token step was recorded: if the load times contain one, it is counted twice")
    return doubts
