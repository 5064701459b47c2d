"""Prices of recomputing and loading: from the points of a sweep, or from a table of a user's own."""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.estimate.results import Analysis, Point, SweetSpot, choose_series
from bench.predict.curve import Curve, MeasuredCurve
from bench.predict.sweep_model import SweepModel, curve_of
from bench.record.run import RunRecord
from bench.reuse.savings import CostCurves, HitPrices
from kvio.errors import UserError

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
