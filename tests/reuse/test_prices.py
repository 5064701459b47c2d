"""Prices come from a sweep or a table, with C* as the sweep found it, and bad lines are named."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import resolve_model
from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Crossing, Estimate, SweetSpot, Verdict
from bench.predict.bounded import Bounded
from bench.predict.cost_model import CostModel
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.prediction import answer
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.report.figures.reuse_figure import loaded_rule
from bench.reuse.prices import CurveError, prices_of_model, prices_of_sweep, read_prices
from bench.reuse.savings import price_hits
from tests.helpers.sweeps import find_limited, read_crossover

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
    with pytest.raises(CurveError, match=f"no load series 'nfs'. Choose one with --series: {name}"):
        prices_of_sweep(run, analysis, series="nfs", source="here")
    other = replace(analysis.spots[0], series="other")
    with pytest.raises(CurveError, match=f"2 load series. Choose one with --series: {name}, other"):
        prices_of_sweep(run, replace(analysis, spots=(*analysis.spots, other)), series=None, source="here")
    with pytest.raises(CurveError, match="no load series was measured"):
        prices_of_sweep(run, replace(analysis, spots=()), series=None, source="here")


def test_a_byte_order_mark_before_a_table_is_no_part_of_its_first_column(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_bytes(b"\xef\xbb\xbfprefix_tokens,recompute_s,load_s\n512,0.1,0.2\n1024,0.2,0.3\n")
    assert at(read_prices(path).curves.load_s, 1024) == pytest.approx(0.3)


LONGEST = 131_072


def _machine(bytes_per_s: float = 6e9, *, key: str = "llama-3.1-8b", num_gpus: int = 1) -> CostModel:
    setting = MachineSpec("h100-sxm", num_gpus, bytes_per_s=bytes_per_s)
    return build_model(resolve_model(key), setting, read_devices())


def _at(curve: object, tokens: int) -> float:
    assert callable(curve)
    return float(curve(np.array([tokens, 0, tokens]))[2])


@pytest.mark.parametrize("tokens", [2, 1000, 8192, 200_000])
def test_the_curves_are_the_seconds_that_a_prediction_prints(tokens: int) -> None:
    machine = _machine()
    curves = prices_of_model(machine, longest=LONGEST).curves
    (point,) = answer(machine, [tokens]).points
    assert point.recompute_s is not None
    assert point.load_s is not None
    assert _at(curves.recompute_s, tokens) == point.recompute_s.value
    assert _at(curves.load_s, tokens) == point.load_s.value
    assert _at(curves.first_token_s, tokens) == machine.fixed_s(tokens)
    assert _at(curves.recompute_s, 0) == 0.0


def test_hits_are_loaded_from_the_modelled_crossover_on_and_it_is_never_called_measured() -> None:
    prices = prices_of_model(_machine(), longest=LONGEST, num_gpus=2)
    (crossing,) = answer(_machine(), [1024], longest=LONGEST).spots[0].crossings
    assert prices.crossover_tokens == crossing.tokens.value
    assert loaded_rule(prices) == f"load from modelled C* = {round(crossing.tokens.value):,} tokens"
    assert prices.source.startswith("the cost model, nothing was measured: meta-llama/Llama-3.1-8B")
    assert (prices.modelled, prices.conclusive, prices.num_gpus) == (True, True, 2)
    assert prices.supposed == _machine().notices
    assert crossing.tokens.low is not None
    assert f"between {crossing.tokens.low:,.0f} and" in prices.notices[0]


@pytest.mark.parametrize(
    ("bytes_per_s", "expected", "rule", "says"),
    [
        (1e13, 0.0, "always load, no modelled C*: load always wins", "load always wins"),
        (1e6, math.inf, "never load, no modelled C*: recompute always wins", "recompute always wins"),
    ],
)
def test_without_a_crossing_everything_or_nothing_is_loaded(
    bytes_per_s: float, expected: float, rule: str, says: str
) -> None:
    machine = replace(_machine(bytes_per_s), link=None, memory_bytes_per_s=None)
    prices = prices_of_model(machine, longest=LONGEST)
    assert (prices.crossover_tokens, loaded_rule(prices)) == (expected, rule)
    assert prices.notices[0] == f"modelled between 64 and 131,072 tokens: {says}"


def test_where_the_curves_cross_twice_each_prefix_is_loaded_where_that_is_faster() -> None:
    machine = build_model(
        resolve_model("llama-4-maverick"), MachineSpec("h200-sxm", 8, bytes_per_s=10e9), read_devices()
    )
    prices = prices_of_model(machine, longest=1_000_000)
    assert (prices.crossover_tokens, loaded_rule(prices)) == (None, "load where faster")
    assert prices.notices == ("modelled between 64 and 1,000,000 tokens: multiple crossings",)


def test_two_ranks_count_twice_the_gpu_seconds() -> None:
    requests = np.array([16_384]), np.array([8192])
    one, two = (
        price_hits(*requests, prices_of_model(_machine(), longest=LONGEST, num_gpus=n)) for n in (1, 2)
    )
    assert two["free_hit_gpu_saved_s"] == pytest.approx(2 * one["free_hit_gpu_saved_s"])
    assert two["free_hit_saved_s"] == one["free_hit_saved_s"]


def test_a_prompt_beyond_what_the_model_is_made_for_is_extrapolated() -> None:
    prices = prices_of_model(_machine(), longest=LONGEST)
    found = price_hits(np.array([LONGEST, LONGEST + 1]), np.array([512, 512]), prices)
    assert found["extrapolated_share"] == 0.5


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 1)), min_size=1, max_size=12),
    bytes_per_s=st.floats(1e8, 1e11),
    faster=st.floats(1.0, 10.0),
    key=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite"]),
)
def test_loading_never_saves_more_than_free_hits_and_more_with_a_faster_storage(
    requests: list[tuple[int, float]], bytes_per_s: float, faster: float, key: str
) -> None:
    inputs = np.array([tokens for tokens, _ in requests])
    hits = np.array([int(tokens * share) for tokens, share in requests])
    base = _machine(key=key, num_gpus=8)
    slow, fast = (
        price_hits(inputs, hits, prices_of_model(replace(base, storage=Bounded(rate)), longest=LONGEST))
        for rate in (bytes_per_s, bytes_per_s * faster)
    )
    for found in (slow, fast):
        slack = 1e-9 * found["recompute_s"]
        assert found["beyond_crossover_saved_s"] <= found["free_hit_saved_s"] + slack
        assert found["always_load_saved_s"] <= found["free_hit_saved_s"] + slack
    assert slow["always_load_saved_s"] <= fast["always_load_saved_s"] + 1e-9 * slow["recompute_s"]
    assert slow["free_hit_saved_s"] == fast["free_hit_saved_s"]


def test_a_crossover_that_the_range_of_the_rates_leaves_undecided_is_said_to_be() -> None:
    doubted, sure = (prices_of_model(_machine(rate), longest=LONGEST).notices for rate in (20e9, 2e9))
    assert doubted[1:] == ("undecided: load always wins within the range of the rates too",)
    assert doubted[0].startswith("the modelled C* has no bounds of its own")
    assert not any("undecided" in notice for notice in sure)
