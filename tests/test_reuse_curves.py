"""Prices come from a sweep or a table, with C* as the sweep found it, and bad lines are named."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Crossing, Estimate, SweetSpot, Verdict
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.report.figures.reuse_figure import loaded_rule
from bench.reuse.prices import CurveError, prices_of_sweep, read_prices
from bench.reuse.savings import price_hits
from tests.reference import find_limited, read_crossover

REFERENCE = find_limited()
TABLE = "prefix_tokens,recompute_s,load_s\n100,0.1,0.2\n1000,1,0.5\n10000,20,4\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    return path


def at(curve: object, tokens: float) -> float:
    assert callable(curve)
    return float(curve(np.array([tokens]))[0])


def test_a_table_gives_both_curves_and_its_range(tmp_path: Path) -> None:
    prices = read_prices(write(tmp_path, TABLE))
    assert at(prices.curves.recompute_s, 1000) == pytest.approx(1.0)
    assert at(prices.curves.load_s, 10_000) == pytest.approx(4.0)
    assert at(prices.curves.first_token_s, 1000) == 0.0
    assert (prices.curves.measured_range, prices.crossover_tokens) == ((100, 10_000), None)
    assert loaded_rule(prices) == "load where faster"


def test_a_first_token_column_is_taken_off_the_load(tmp_path: Path) -> None:
    text = "prefix_tokens,recompute_s,load_s,first_token_s\n100,0.1,0.2,0.05\n1000,1,0.5,0.05\n"
    prices = read_prices(write(tmp_path, text))
    found = price_hits(np.array([1000]), np.array([1000]), prices)
    assert found["always_load_saved_s"] == pytest.approx(1 - 0.5)
    assert found["free_hit_saved_s"] == pytest.approx(1 - 0.05)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column prefix_tokens, recompute_s, load_s"),
        ("prefix_tokens,load_s\n1,2\n", "no column recompute_s; expected prefix_tokens,recompute_s,load_s"),
        ("prefix_tokens,recompute_s,load_s\n", "0 points; a curve needs at least 2"),
        ("prefix_tokens,recompute_s,load_s\n1,1,1\n", "1 points"),
        (TABLE + "20000,-1,5\n", "line 5: recompute_s must be positive and finite, found -1"),
        (TABLE + "20000,30,nan\n", "line 5: load_s must be positive and finite"),
        (TABLE + "20000,30\n", "line 5: load_s must be a number, found None"),
        (TABLE + "many,30,5\n", "line 5: prefix_tokens must be a number, found 'many'"),
        (TABLE + "20000.5,30,5\n", "line 5: prefix_tokens must be a whole number, found 20000.5"),
        (TABLE + "10000,30,5\n", "prefix_tokens must rise"),
        ("prefix_tokens,recompute_s,load_s\n1,1,\x00\n2,2,2\n", "load_s must be a number"),
    ],
)
def test_a_table_that_is_no_curve_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(CurveError) as raised:
        read_prices(path)
    assert str(path) in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "curve.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CurveError, match="cannot be read as CSV"):
        read_prices(path)


@pytest.fixture(scope="module")
def sweep() -> tuple[object, Analysis]:
    run = read_run(REFERENCE)
    return run, analyse(run, read_samples(REFERENCE)[0])


def test_a_sweep_gives_its_medians_and_its_crossover(sweep: tuple[object, Analysis]) -> None:
    run, analysis = sweep
    prices = prices_of_sweep(run, analysis, series=None, source="here")
    spot = next(s for s in analysis.spots if (s.kind, s.statistic) == ("whole", "p50"))
    assert prices.crossover_tokens == spot.crossings[0].tokens.value
    assert prices.crossover_tokens == pytest.approx(read_crossover(REFERENCE).tokens)
    for point in analysis.points:
        assert point.recompute_s is not None
        assert at(prices.curves.recompute_s, point.prefix_tokens) == pytest.approx(point.recompute_s.value)
    assert (prices.source, prices.conclusive) == (f"here, {spot.series}", True)
    assert loaded_rule(prices) == f"load from C* = {round(read_crossover(REFERENCE).tokens):,} tokens"


@pytest.mark.parametrize(
    ("verdict", "expected", "rule", "conclusive"),
    [
        ("load_always_wins", 0.0, "always load, no C*: load always wins", True),
        ("recompute_always_wins", math.inf, "never load, no C*: recompute always wins", True),
        ("inconclusive", None, "load where faster", False),
        ("multiple_crossings", None, "load where faster", True),
    ],
)
def test_other_verdicts_load_all_nothing_or_what_is_faster(
    sweep: tuple[object, Analysis], verdict: Verdict, expected: float | None, rule: str, conclusive: bool
) -> None:
    run, analysis = sweep
    crossing = Crossing(Estimate(5e6), (1, 2), True, extrapolated=True)
    spot = SweetSpot(
        analysis.spots[0].series, "whole", "p50", verdict, (256, 4096), (crossing,), reason="noise"
    )
    changed = replace(analysis, spots=(spot,))
    prices = prices_of_sweep(run, changed, series=spot.series, source="here")
    assert (prices.crossover_tokens, loaded_rule(prices), prices.conclusive) == (expected, rule, conclusive)
    assert prices.notices


def test_an_unknown_or_unclear_series_is_refused_with_the_choices(sweep: tuple[object, Analysis]) -> None:
    run, analysis = sweep
    name = analysis.spots[0].series
    with pytest.raises(CurveError, match=f"no load series 'nfs'; choose one with --series: {name}"):
        prices_of_sweep(run, analysis, series="nfs", source="here")
    other = replace(analysis.spots[0], series="other")
    with pytest.raises(CurveError, match=f"2 load series; choose one with --series: {name}, other"):
        prices_of_sweep(run, replace(analysis, spots=(*analysis.spots, other)), series=None, source="here")
    with pytest.raises(CurveError, match="no load series was measured"):
        prices_of_sweep(run, replace(analysis, spots=()), series=None, source="here")


def test_a_byte_order_mark_before_a_table_is_no_part_of_its_first_column(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_bytes(b"\xef\xbb\xbfprefix_tokens,recompute_s,load_s\n512,0.1,0.2\n1024,0.2,0.3\n")
    assert at(read_prices(path).curves.load_s, 1024) == pytest.approx(0.3)
