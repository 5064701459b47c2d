"""The sizing of one deployment as tables: demand, GPUs, storage, drives, cost, and all of it over the hit ratio."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from bench.catalog.models.kv_capacity import Cache, label
from bench.sizing.cost import cost_rows
from bench.sizing.demand import Work, find_demand, mean_request
from bench.sizing.deployment import Row, Sizing
from bench.sizing.drives import DAY_S, Drive

ORIGIN = "modelled"
UNKNOWN = {
    "capacity": "not considered, since how much is stored is not known: give store.capacity or store.retention",
    "bandwidth": "not considered, since no read rate of the drive is known: give drive.read",
    "endurance": "not considered, since no rated writes of the drive are known: give drive.dwpd or drive.tbw",
}
HIT_RATIOS = tuple(step / 20 for step in range(20))  # 0 to 0.95


def size_tables(sizing: Sizing, cache: Cache, work: Work) -> dict[str, pd.DataFrame]:
    """All tables that the figures given are enough for, by name."""
    found = {
        "demand": _table(_demand_rows(sizing)),
        "gpus": _table(_gpu_rows(sizing)),
        "storage": _table(_storage_rows(sizing)),
    }
    if sizing.drive is not None:
        found["drives"] = _table(_drive_rows(sizing, sizing.drive))
    cost = list(cost_rows(sizing))
    if cost:
        found["cost"] = _table(cost)
    found["hit_ratios"] = ratio_table(sizing, cache, work)
    return found


def ratio_table(
    sizing: Sizing, cache: Cache, work: Work, ratios: Sequence[float] = HIT_RATIOS
) -> pd.DataFrame:
    """GPUs and storage bandwidth over the hit ratio, for the mean prompt, every prompt hit alike.

    Columns: hit_ratio, work_share, gpus_unrounded, gpus (whole), gpus_in_groups (whole groups of the GPUs that run
    the model together), read_bytes_per_s.
    """
    tokens = max(round(sizing.demand.input_tokens), 1)
    rows = []
    for ratio in ratios:
        request = mean_request(tokens, ratio)
        demand = find_demand([request], cache, work, requests_per_s=sizing.demand.requests_per_s)
        count = replace(sizing, demand=demand).gpus_with_reuse
        rows.append(
            {
                "hit_ratio": ratio,
                "work_share": demand.marginal_share,
                "gpus_unrounded": float(count.unrounded),
                "gpus": count.whole,
                "gpus_in_groups": count.in_groups,
                "read_bytes_per_s": demand.read_bytes_per_s,
            }
        )
    return label(rows, ORIGIN)


def _demand_rows(sizing: Sizing) -> Iterable[Row]:
    demand = sizing.demand
    yield Row("requests", demand.requests_per_s, "1/s", sizing.rate_how)
    yield Row("prompt tokens", demand.input_tokens, "tokens", "mean of a request")
    yield Row("prompt tokens arriving", demand.tokens_per_s, "tokens/s", "requests x prompt tokens")
    yield Row("hit tokens", demand.hit_tokens, "tokens", "mean of a request, at least one token is computed")
    yield Row("hit ratio", demand.hit_ratio, "share", "hit tokens / prompt tokens")
    yield Row("tokens not found", 1 - demand.hit_ratio, "share", "1 - hit ratio")
    yield Row(
        "prefill work still done", demand.marginal_share, "share",
        f"work of the tokens not found / of the whole prompt, in {sizing.work_unit}",
    )  # fmt: skip


def _gpu_rows(sizing: Sizing) -> Iterable[Row]:
    measured = sizing.measured
    beyond = f"; {measured.extrapolated}" if measured.extrapolated else ""
    origin, named = measured.origin, "extrapolated" if measured.extrapolated else measured.origin
    yield Row(f"{named} throughput", measured.tokens_per_s, "tokens/s", measured.source + beyond)
    if measured.bounds_tokens_per_s is not None:
        low, high = measured.bounds_tokens_per_s
        how = "95 % of the calibration" if measured.extrapolated else "by the ranges of the model's rates"
        yield Row(f"{named} throughput, lower bound", low, "tokens/s", how)
        yield Row(f"{named} throughput, upper bound", high, "tokens/s", how)
    for notice in measured.supposed:
        yield Row("supposed", None, "", notice)
    yield Row(f"GPUs {origin}", measured.num_gpus, "GPUs", "the smallest group that is added")
    yield Row("utilisation", sizing.utilisation, "share", f"of the {origin} throughput, to plan with")
    without, with_reuse = sizing.gpus_without_reuse, sizing.gpus_with_reuse
    formula = f"target / ({origin} x utilisation) x GPUs {origin}"
    for name, count, how in (
        ("without reuse", without, formula),
        ("with reuse", with_reuse, f"{formula} x work still done"),
    ):
        yield Row(f"GPUs {name}, unrounded", float(count.unrounded), "GPUs", how)
        yield Row(f"GPUs {name}", count.whole, "GPUs", "rounded up")
        yield Row(f"GPUs {name}, whole groups", count.in_groups, "GPUs", f"rounded up to {count.group_gpus}")
    yield Row("GPUs saved", without.in_groups - with_reuse.in_groups, "GPUs", "difference of whole groups")


def _storage_rows(sizing: Sizing) -> Iterable[Row]:
    demand = sizing.demand
    yield Row("KV of a stored token", demand.token_bytes, "B", "all layers, over all ranks")
    if demand.state_bytes:
        yield Row("states of a stored prefix", demand.state_bytes, "B", "linear attention, over all ranks")
    yield Row("KV to load of a request", demand.load_bytes, "B", "mean KV of the tokens found")
    yield Row("read bandwidth", demand.read_bytes_per_s, "B/s", "requests x KV to load; mean, without bursts")
    yield Row(
        "write bandwidth", demand.write_bytes_per_s, "B/s", "requests x KV of the tokens not found, once"
    )
    yield Row("written per day", demand.write_bytes_per_s * DAY_S, "B", "write bandwidth x 86,400 s")
    if sizing.stored_bytes is not None:
        yield Row("capacity", sizing.stored_bytes, "B", sizing.stored_how)
        tokens = sizing.stored_bytes / demand.token_bytes
        states = ", an upper bound: states take room too" if demand.state_bytes else ""
        yield Row("tokens held", tokens, "tokens", f"capacity / KV of a token{states}")


def _drive_rows(sizing: Sizing, drive: Drive) -> Iterable[Row]:
    count = sizing.count_drives(drive)
    yield Row("capacity of a drive", drive.capacity_bytes, "B", drive.source_of("capacity"))
    yield Row("read rate of a drive", drive.read_bytes_per_s, "B/s", drive.source_of("read"))
    rated = f"over {drive.warranty_years:g} years; {drive.source_of('dwpd')}"
    yield Row("rated drive writes per day", drive.dwpd, "1/day", "" if drive.dwpd is None else rated)
    yield Row("rated bytes written", drive.endurance_bytes, "B", "rated writes x capacity x 365 x years")
    formulas = {
        "capacity": f"capacity / {sizing.occupancy:g} / capacity of a drive",
        "bandwidth": "read bandwidth / read rate of a drive",
        "endurance": f"written per day x {sizing.write_amplification:g} / (rated writes x capacity of a drive)",
    }
    for need, formula in formulas.items():
        drives = count.needs.get(need)
        yield Row(f"drives for {need}", drives, "drives", UNKNOWN[need] if drives is None else formula)
    missing = [need for need in formulas if need not in count.needs]
    but = f", but {' and '.join(missing)} not considered" if missing else ""
    yield Row("drives", count.whole, "drives", f"the largest, rounded up{but}")
    yield Row("decided by", count.decided_by, "")
    if count.whole is not None:
        writes, years = sizing.wear(drive, count.whole)
        yield Row(
            "drive writes per day", writes, "1/day", "by the host, to each of these drives; every token once"
        )
        times = sizing.write_amplification
        if times != 1:
            counted = f"drive writes per day x write amplification of {times:g}"
            yield Row("counted against the rating", writes * times, "1/day", counted)
        yield Row("years to the rated writes", years, "years", "rated / counted x warranty")


def _table(rows: Iterable[Row]) -> pd.DataFrame:
    return label(
        [
            {"quantity": row.quantity, "value": row.value, "unit": row.unit, "formula": row.formula}
            for row in rows
        ],
        ORIGIN,
    )
