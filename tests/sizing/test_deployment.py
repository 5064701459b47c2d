"""Sizing follows from one measured throughput, the tokens not found, and the prices that the user gives."""

from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalog.models.kv_capacity import Cache
from bench.catalog.models.resolve import resolve_model
from bench.predict.curve import MeasuredCurve
from bench.record.validate import InputError
from bench.report.figures.sizing_figure import write_sizing_figure
from bench.report.text.planning_text import records
from bench.report.text.sizing_text import sizing_text
from bench.sizing.demand import Demand, find_demand, mean_request, work_in_flops, work_in_seconds
from bench.sizing.deployment import Prices, Sizing
from bench.sizing.drives import Drive, count_drives, dwpd_of_tbw, writes_per_day, years_of_life
from bench.sizing.sizing_tables import ratio_table, size_tables
from bench.sizing.throughput import Throughput, count_gpus, gpu_seconds_per_request, measured_throughput
from bench.sizing.tokencost import StorageTierCost, recompute_cost, reuses_per_day

LLAMA = Cache(resolve_model("llama-3.3-70b"))
FLOPS = work_in_flops(LLAMA.model.geometry)
CURVE = MeasuredCurve((1000, 2000, 4000), (1.0, 2.5, 7.0))


def _demand(ratio: float = 0.5, *, tokens: int = 8000, rate: float = 2.0, cache: Cache = LLAMA) -> Demand:
    return find_demand([mean_request(tokens, ratio)], cache, FLOPS, requests_per_s=rate)


def test_gpus_are_target_over_planned_throughput_times_gpus_measured_rounded_up() -> None:
    count = count_gpus(100_000, Throughput(12_000, 4, "test"), utilisation=0.7)
    assert count.unrounded == Fraction(1000, 21)  # 100,000 / 8,400 x 4
    assert (count.whole, count.in_groups) == (48, 48)
    assert count_gpus(102_000, Throughput(12_000, 4, "test"), utilisation=0.7).in_groups == 52


def test_rounding_up_does_not_see_binary_dust() -> None:
    assert 21 / (3 * 0.7) > 10  # what floating point would round up to 11
    assert count_gpus(21, Throughput(3, 1, "test"), utilisation=0.7).whole == 10


def test_with_reuse_only_the_marginal_prefill_is_computed() -> None:
    demand = _demand(0.6)
    geometry = LLAMA.model.geometry
    expected = geometry.prefill_flops(3200, 4800) / geometry.prefill_flops(8000)
    assert demand.marginal_share == pytest.approx(expected, rel=1e-12)
    assert 0.4 < demand.marginal_share < 0.43  # later tokens attend to more than the average one


def test_a_full_hit_still_computes_one_token() -> None:
    assert mean_request(1000, 1.0) == (1000, 999)
    assert _demand(1.0).marginal_work == LLAMA.model.geometry.prefill_flops(1, 7999)


def test_storage_gives_the_kv_found_and_takes_the_kv_not_found_once() -> None:
    demand = _demand(0.6, rate=20.0)
    assert demand.load_bytes == 4800 * 327_680
    assert demand.read_bytes_per_s == 20 * 4800 * 327_680
    assert demand.write_bytes_per_s == 20 * 3200 * 327_680


def test_ranks_that_repeat_a_latent_store_and_load_it_each() -> None:
    model = resolve_model("deepseek-v3")
    once, eight = (_demand(0.5, cache=Cache(model, tensor_parallel=ranks)) for ranks in (1, 8))
    assert eight.load_bytes == 8 * once.load_bytes
    assert eight.token_bytes == 8 * 70_272


def test_windows_stop_the_load_from_growing_but_every_token_is_written() -> None:
    cache = Cache(resolve_model("gemma-3-12b"))
    demand = find_demand([(100_000, 50_000)], cache, FLOPS, requests_per_s=1.0)
    assert demand.load_bytes == cache.whole.bytes_at(50_000) < 50_000 * cache.whole.bytes_per_token
    assert demand.write_bytes_per_s == 50_000 * cache.whole.bytes_per_token


def test_generated_tokens_are_written_when_they_are_kept() -> None:
    demand = find_demand([(100, 50)], LLAMA, FLOPS, requests_per_s=1.0, kept_output_tokens=30)
    assert demand.new_bytes == 80 * 327_680


def test_a_sweep_gives_throughput_at_the_length_of_the_prompts_and_the_marginal_seconds() -> None:
    demand = find_demand([(2000, 1000)], LLAMA, work_in_seconds(CURVE), requests_per_s=1.0)
    assert (demand.full_work, demand.marginal_work) == (pytest.approx(2.5), pytest.approx(1.5))
    measured = measured_throughput(demand, CURVE, num_gpus=1, source="test", lengths=[2000])
    assert measured.tokens_per_s == pytest.approx(800)
    assert not measured.extrapolated
    assert measured_throughput(demand, CURVE, num_gpus=1, source="test", lengths=[2000, 5000]).extrapolated


def test_the_means_are_over_requests_not_over_their_ratios() -> None:
    demand = find_demand([(1000, 900), (3000, 100)], LLAMA, FLOPS, requests_per_s=1.0)
    assert demand.hit_ratio == 0.25
    assert demand.input_tokens == 2000


@settings(deadline=None, max_examples=80)
@given(
    target=st.floats(1, 1e7),
    more=st.floats(1, 10),
    rate=st.floats(1, 1e6),
    gpus=st.integers(1, 64),
    used=st.floats(0.01, 1),
)
def test_more_throughput_never_needs_fewer_gpus_and_rounding_only_adds(
    target: float, more: float, rate: float, gpus: int, used: float
) -> None:
    measured = Throughput(rate, gpus, "test")
    count = count_gpus(target, measured, utilisation=used)
    assert count_gpus(target * more, measured, utilisation=used).unrounded >= count.unrounded
    assert count.unrounded <= count.whole <= count.in_groups < count.unrounded + gpus + 1
    assert count.in_groups % gpus == 0
    planned = Fraction(repr(rate)) * Fraction(repr(used)) / gpus
    assert count.whole * planned >= Fraction(repr(target))  # what was rounded up carries the target


@settings(deadline=None, max_examples=50)
@given(ratio=st.floats(0, 1), more=st.floats(0, 1), tokens=st.integers(2, 200_000))
def test_a_higher_hit_ratio_never_needs_more_gpus_nor_less_bandwidth(
    ratio: float, more: float, tokens: int
) -> None:
    low, high = sorted((ratio, more))
    less, larger = _demand(low, tokens=tokens), _demand(high, tokens=tokens)
    assert larger.marginal_share <= less.marginal_share <= 1
    assert larger.read_bytes_per_s >= less.read_bytes_per_s
    assert larger.write_bytes_per_s <= less.write_bytes_per_s


def test_drives_are_the_largest_of_capacity_bandwidth_and_endurance() -> None:
    drive = Drive(8 * 10**12, 10e9, 1.0, 5.0)
    needs = {"stored_bytes": 80e12, "read_bytes_per_s": 31e9, "write_bytes_per_s": 80e12 / 86_400}
    count = count_drives(drive, **needs)
    assert (count.for_capacity, count.for_bandwidth) == (10, 3.1)
    assert count.for_endurance == pytest.approx(10)
    assert count_drives(drive, stored_bytes=81e12, read_bytes_per_s=1.0, write_bytes_per_s=1.0).whole == 11
    worn = count_drives(drive, **needs, write_amplification=2.0, occupancy=0.8)
    assert (worn.for_capacity, worn.whole, worn.decided_by) == (12.5, 20, "endurance")


def test_a_need_whose_figure_is_unknown_is_left_out() -> None:
    count = count_drives(
        Drive(10**12, None, None, 5.0), stored_bytes=None, read_bytes_per_s=1e9, write_bytes_per_s=1e9
    )
    assert (count.needs, count.whole, count.decided_by) == ({}, None, None)


def test_drive_writes_per_day_and_the_years_until_the_rated_writes_are_used() -> None:
    drive = Drive(8 * 10**12, None, dwpd_of_tbw(14_600e12, 8 * 10**12, 5.0), 5.0)
    assert drive.dwpd == 1.0
    assert drive.endurance_bytes == 14_600e12
    writes = writes_per_day(drive, 10, 80e12 / 86_400 * 2)
    assert writes == pytest.approx(2.0)
    assert years_of_life(drive, writes) == pytest.approx(2.5)
    assert years_of_life(drive, 0.0) is None


def test_the_cost_of_a_million_reused_tokens() -> None:
    # 100 GPU-seconds per 1000 tokens at 3.6 an hour: 0.1 s x 0.001 x 1e6
    assert recompute_cost(0.1, 3.6) == pytest.approx(100)
    dram = StorageTierCost("DRAM", price_per_gb=3.65, lifetime_years=5, occupancy=0.5)
    # 1 MB: 0.001 GB x 3.65 / 0.5 / 1825 days = 4e-6 a day
    assert dram.token_day_cost(1e6) == pytest.approx(4e-6)
    assert dram.reused_cost(1e6, 2.0) == pytest.approx(2.0)
    least = dram.break_even_reuses_per_day(1e6, recompute_cost(0.1, 3.6))
    assert least == pytest.approx(0.04)
    assert dram.reused_cost(1e6, least) == pytest.approx(100)


def test_reuses_per_day_are_tokens_found_per_day_over_tokens_held() -> None:
    assert reuses_per_day(100.0, 86_400 * 50) == 2.0


def _sizing(**changes: object) -> Sizing:
    return Sizing(_demand(0.6, rate=20.0), Throughput(12_000, 4, "test"), 0.7, "FLOPs", **changes)  # type: ignore[arg-type]


def _values(frame: pd.DataFrame) -> dict[str, object]:
    return {row["quantity"]: row["value"] for row in records(frame)}


def test_the_tables_show_the_unrounded_and_the_rounded_gpus() -> None:
    tables = size_tables(_sizing(), LLAMA, FLOPS)
    found = _values(tables["gpus"])
    assert found["GPUs without reuse, unrounded"] == pytest.approx(160_000 / 8400 * 4)
    assert found["GPUs without reuse"] == 77
    assert found["GPUs without reuse, whole groups"] == 80
    assert found["GPUs with reuse"] == 32
    assert set(tables) == {"demand", "gpus", "storage", "hit_ratios"}
    assert {origin for frame in tables.values() for origin in frame["origin"]} == {"modelled"}
    assert sizing_text(tables).count("(modelled)") == 3


def test_the_ratio_table_meets_the_question_at_its_ratio() -> None:
    sizing = _sizing()
    (row,) = records(ratio_table(sizing, LLAMA, FLOPS, [0.6]))
    assert row["gpus"] == 32
    assert row["read_bytes_per_s"] == sizing.demand.read_bytes_per_s


def test_recompute_is_charged_the_work_of_the_tokens_found_alone() -> None:
    sizing = _sizing(prices=Prices(gpu_hour=3.6))
    demand = sizing.demand
    seconds = gpu_seconds_per_request(demand, sizing.measured, 0.7)
    assert seconds == pytest.approx(4 * 8000 / 8400)
    cost = _values(size_tables(sizing, LLAMA, FLOPS)["cost"])
    saved = (1 - demand.marginal_share) * seconds / 4800 * 1e6
    assert cost["recompute, per million reused tokens"] == pytest.approx(saved * 3.6 / 3600)


def test_ssds_are_written_off_by_the_day_their_rated_writes_are_used() -> None:
    media = (StorageTierCost("SSD", 0.1, lifetime_years=50, occupancy=1.0),)
    day_bytes = 20 * 3200 * 327_680 * 86_400
    unknown, rated = (
        size_tables(
            _sizing(
                stored_bytes=day_bytes, drive=Drive(day_bytes, None, dwpd, 5.0), prices=Prices(None, media)
            ),
            LLAMA,
            FLOPS,
        )
        for dwpd in (None, 1.0)
    )
    assert _values(rated["drives"])["years to the rated writes"] == pytest.approx(5)
    cost = "SSD, per million reused tokens"
    assert _values(rated["cost"])[cost] == pytest.approx(10 * _values(unknown["cost"])[cost])  # type: ignore[operator]


def test_the_cost_of_ssd_counts_the_drives_that_endurance_makes_us_buy() -> None:
    media = (StorageTierCost("SSD", 0.1, lifetime_years=5, occupancy=1.0),)
    day_bytes = 20 * 3200 * 327_680 * 86_400
    drive = Drive(day_bytes // 10, None, 0.5, 5.0)
    found = size_tables(
        _sizing(stored_bytes=day_bytes, drive=drive, prices=Prices(None, media)), LLAMA, FLOPS
    )
    assert (_values(found["drives"])["drives"], _values(found["drives"])["drives for capacity"]) == (20, 10)
    kept = StorageTierCost("SSD", 0.1, lifetime_years=5, occupancy=0.5).reused_cost(327_680, 1.5)
    assert _values(found["cost"])["SSD, per million reused tokens"] == pytest.approx(kept)


def test_costs_of_keeping_need_a_reuse_rate() -> None:
    media = (StorageTierCost("DRAM", 4.0, 5.0, 1.0),)
    with pytest.raises(InputError, match="reuse_per_day"):
        size_tables(_sizing(prices=Prices(None, media)), LLAMA, FLOPS)
    found = _values(size_tables(_sizing(prices=Prices(None, media, 3.0)), LLAMA, FLOPS)["cost"])
    assert found["reuses of each stored token"] == 3.0


@pytest.mark.parametrize("has_prices", [False, True], ids=["bare", "prices"])
def test_the_figure_is_written_and_the_same_every_time(has_prices: bool, tmp_path: Path) -> None:
    prices = Prices(3.6, (StorageTierCost("DRAM", 4.0, 5.0, 1.0),), 3.0) if has_prices else Prices()
    tables = size_tables(_sizing(prices=prices), LLAMA, FLOPS)
    for name in ("a.png", "b.png"):
        write_sizing_figure(tmp_path / name, tables)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Throughput(0, 1, "x"), "measured throughput must be above 0"),
        (lambda: count_gpus(1, Throughput(1, 1, "x"), utilisation=0), "utilisation must be above 0"),
        (lambda: mean_request(10, 1.5), "hit ratio must be between 0 and 1"),
        (lambda: StorageTierCost("DRAM", -1, 5, 1), "price of a GB of DRAM must be above 0"),
        (lambda: _demand(rate=0.0), "requests per second must be above 0"),
    ],
    ids=["throughput", "utilisation", "ratio", "price", "rate"],
)
def test_figures_out_of_range_are_refused_in_one_line(call, message: str) -> None:  # noqa: ANN001
    with pytest.raises(InputError, match=message):
        call()


def test_a_modelled_throughput_is_never_called_measured() -> None:
    modelled = Throughput(12_000, 4, "of the cost model", origin="modelled")
    tables = size_tables(Sizing(_demand(), modelled, 0.7, "FLOPs"), LLAMA, FLOPS)
    said = sizing_text(tables)
    assert "modelled throughput" in said
    assert "measured" not in said


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"occupancy": 0.0}, "occupancy must be above 0"),
        ({"write_amplification": float("nan")}, "write amplification must be 1 or more, not nan"),
        ({"utilisation": 0.0}, "utilisation must be above 0"),
    ],
)
def test_a_figure_out_of_its_range_is_refused_also_where_no_drive_is_named(
    changed: dict[str, float], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        Sizing(
            **{
                "demand": _demand(),
                "measured": Throughput(1, 1, "t"),
                "work_unit": "",
                "utilisation": 1.0,
                **changed,
            }
        )
