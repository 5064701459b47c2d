"""The sizing of one deployment as tables: demand, GPUs, storage, drives, cost, and all of it over the hit ratio."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bench.analyse.capacity import Cache, label
from bench.analyse.demand import Demand, Work, find_demand, mean_request
from bench.analyse.drives import DAY_S, Drive, DriveCount, count_drives, writes_per_day, years_of_life
from bench.analyse.inputs import InputError
from bench.analyse.sizing import GpuCount, Throughput, count_gpus, gpu_seconds_per_request
from bench.analyse.tokencost import SSD, Keeping, recompute_cost, reuses_per_day

ORIGIN = "modelled"
HIT_RATIOS = tuple(step / 20 for step in range(20))  # 0 to 0.95


@dataclass(frozen=True, slots=True)
class Prices:
    """What the user says things cost; nothing is built in.  None where no price was given."""

    gpu_hour: float | None = None
    media: tuple[Keeping, ...] = ()
    reuses_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class Sizing:
    """Everything that a deployment is sized from.

    Args:
        demand: of the requests.
        measured: prefill throughput, and who says so.
        utilisation: share of it to plan with.
        work_unit: what the demand's work is counted in.
        stored_bytes: KV kept in the store, None where nobody said.
        stored_how: how that came about.
        drive: what the store is built of, None where nobody said.
        write_amplification: bytes the flash takes / bytes written.
        occupancy: share of what is bought that holds KV.
        prices: of the user.
    """

    demand: Demand
    measured: Throughput
    utilisation: float
    work_unit: str
    stored_bytes: float | None = None
    stored_how: str = ""
    drive: Drive | None = None
    write_amplification: float = 1.0
    occupancy: float = 1.0
    prices: Prices = Prices()


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a table: what it is, its value and unit, and the formula behind it."""

    quantity: str
    value: float | str | None
    unit: str
    formula: str = ""


def size_tables(sizing: Sizing, cache: Cache, work: Work) -> dict[str, pd.DataFrame]:
    """All tables that the figures given are enough for, by name."""
    found = {
        "demand": _table(_demand_rows(sizing)),
        "gpus": _table(_gpu_rows(sizing)),
        "storage": _table(_storage_rows(sizing)),
    }
    if sizing.drive is not None:
        found["drives"] = _table(_drive_rows(sizing, sizing.drive))
    cost = list(_cost_rows(sizing))
    if cost:
        found["cost"] = _table(cost)
    found["hit_ratios"] = ratio_table(sizing, cache, work)
    return found


def ratio_table(
    sizing: Sizing, cache: Cache, work: Work, ratios: Sequence[float] = HIT_RATIOS
) -> pd.DataFrame:
    """GPUs and storage bandwidth over the hit ratio, for the mean prompt, every prompt hit alike.

    Columns: hit_ratio, work_share, gpus_unrounded, gpus, read_bytes_per_s.
    """
    tokens = max(round(sizing.demand.input_tokens), 1)
    rows = []
    for ratio in ratios:
        request = mean_request(tokens, ratio)
        demand = find_demand([request], cache, work, requests_per_s=sizing.demand.requests_per_s)
        count = _with_reuse(replace(sizing, demand=demand))
        rows.append(
            {
                "hit_ratio": ratio,
                "work_share": demand.marginal_share,
                "gpus_unrounded": float(count.unrounded),
                "gpus": count.whole,
                "read_bytes_per_s": demand.read_bytes_per_s,
            }
        )
    return label(rows, ORIGIN)


def _with_reuse(sizing: Sizing) -> GpuCount:
    demand = sizing.demand
    return count_gpus(
        demand.tokens_per_s,
        sizing.measured,
        utilisation=sizing.utilisation,
        work_share=demand.marginal_share,
    )


def _demand_rows(sizing: Sizing) -> Iterable[Row]:
    demand = sizing.demand
    yield Row("requests", demand.requests_per_s, "1/s")
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
    measured, target = sizing.measured, sizing.demand.tokens_per_s
    beyond = "; extrapolated beyond the lengths measured" if measured.extrapolated else ""
    yield Row("measured throughput", measured.tokens_per_s, "tokens/s", measured.source + beyond)
    yield Row("GPUs measured", measured.num_gpus, "GPUs", "the smallest group that is added")
    yield Row("utilisation", sizing.utilisation, "share", "of the measured throughput, to plan with")
    without = count_gpus(target, measured, utilisation=sizing.utilisation)
    with_reuse = _with_reuse(sizing)
    formula = "target / (measured x utilisation) x GPUs measured"
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
    yield Row("KV to load of a request", demand.load_bytes, "B", "mean KV of the tokens found")
    yield Row("read bandwidth", demand.read_bytes_per_s, "B/s", "requests x KV to load; mean, without bursts")
    yield Row(
        "write bandwidth", demand.write_bytes_per_s, "B/s", "requests x KV of the tokens not found, once"
    )
    yield Row("written per day", demand.write_bytes_per_s * DAY_S, "B", "write bandwidth x 86,400 s")
    if sizing.stored_bytes is not None:
        yield Row("capacity", sizing.stored_bytes, "B", sizing.stored_how)
        tokens = sizing.stored_bytes / demand.token_bytes
        yield Row("tokens held", tokens, "tokens", "capacity / KV of a token")


def _count_drives(sizing: Sizing, drive: Drive) -> DriveCount:
    return count_drives(
        drive,
        stored_bytes=sizing.stored_bytes,
        read_bytes_per_s=sizing.demand.read_bytes_per_s,
        write_bytes_per_s=sizing.demand.write_bytes_per_s,
        write_amplification=sizing.write_amplification,
        occupancy=sizing.occupancy,
    )


def _wear(sizing: Sizing, drive: Drive, num_drives: int) -> tuple[float, float | None]:
    """Writes per day of each drive, and the years until its rated writes are used."""
    writes = writes_per_day(
        drive,
        num_drives,
        sizing.demand.write_bytes_per_s,
        write_amplification=sizing.write_amplification,
    )
    return writes, years_of_life(drive, writes)


def _drive_rows(sizing: Sizing, drive: Drive) -> Iterable[Row]:
    count = _count_drives(sizing, drive)
    yield Row("capacity of a drive", drive.capacity_bytes, "B", drive.source_of("capacity"))
    yield Row("read rate of a drive", drive.read_bytes_per_s, "B/s", drive.source_of("read"))
    rated = f"over {drive.warranty_years:g} years; {drive.source_of('dwpd')}"
    yield Row("rated drive writes per day", drive.dwpd, "1/day", "" if drive.dwpd is None else rated)
    yield Row("rated bytes written", drive.endurance_bytes, "B", "rated writes x capacity x 365 x years")
    yield Row(
        "drives for capacity", count.for_capacity, "drives",
        f"capacity / {sizing.occupancy:g} / capacity of a drive",
    )  # fmt: skip
    yield Row("drives for bandwidth", count.for_bandwidth, "drives", "read bandwidth / read rate of a drive")
    yield Row(
        "drives for endurance", count.for_endurance, "drives",
        f"written per day x {sizing.write_amplification:g} / (rated writes x capacity of a drive)",
    )  # fmt: skip
    yield Row("drives", count.whole, "drives", "the largest, rounded up")
    yield Row("decided by", count.decided_by, "")
    if count.whole is not None:
        writes, years = _wear(sizing, drive, count.whole)
        yield Row(
            "drive writes per day", writes, "1/day", "of each of these drives, every token written once"
        )
        yield Row("years to the rated writes", years, "years", "rated / used x warranty")


def _cost_rows(sizing: Sizing) -> Iterable[Row]:
    demand, prices = sizing.demand, sizing.prices
    again = None
    if prices.gpu_hour is not None and demand.hit_tokens > 0:
        saved = (1 - demand.marginal_share) * gpu_seconds_per_request(
            demand, sizing.measured, sizing.utilisation
        )
        seconds = saved / demand.hit_tokens
        again = recompute_cost(seconds, prices.gpu_hour)
        yield Row("GPU-seconds of a million reused tokens", seconds * 1e6, "s", "work saved / hit tokens")
        yield Row(
            "recompute, per million reused tokens", again, "price", f"x {prices.gpu_hour:g} per GPU-hour"
        )
    if prices.media:
        reuses, how = _reuses(sizing)
        yield Row("reuses of each stored token", reuses, "1/day", how)
        for medium in (_bought(medium, sizing) for medium in prices.media):
            yield from _medium_rows(medium, demand.token_bytes, reuses=reuses, again=again)


def _medium_rows(medium: Keeping, token_bytes: int, *, reuses: float, again: float | None) -> Iterable[Row]:
    yield Row(
        f"{medium.name}, per million reused tokens", medium.reused_cost(token_bytes, reuses), "price",
        f"{medium.price_per_gb:g} per GB over {medium.lifetime_years:.3g} years, {medium.occupancy:.3g} of it holds KV",
    )  # fmt: skip
    if again is not None:
        least = medium.break_even_reuses_per_day(token_bytes, again)
        yield Row(f"{medium.name} pays from", least, "1/day", "reuses of each stored token")
        yield Row(f"{medium.name} pays for reuse within", DAY_S / least, "s", "86,400 s / reuses")


def _bought(medium: Keeping, sizing: Sizing) -> Keeping:
    """SSD as the drives that are really bought, written off by the day their rated writes are used at the latest."""
    if medium.name != SSD or sizing.drive is None:
        return medium
    num_drives = _count_drives(sizing, sizing.drive).whole
    if num_drives is None:
        return medium
    years = _wear(sizing, sizing.drive, num_drives)[1]
    if years is not None and years < medium.lifetime_years:
        medium = replace(medium, lifetime_years=years)
    if sizing.stored_bytes is None:
        return medium
    return replace(medium, occupancy=sizing.stored_bytes / (num_drives * sizing.drive.capacity_bytes))


def _reuses(sizing: Sizing) -> tuple[float, str]:
    if sizing.prices.reuses_per_day is not None:
        return sizing.prices.reuses_per_day, "as given"
    if sizing.stored_bytes is None:
        raise InputError(
            "how often a stored token is reused is not known: give --reuse-per-day, or the capacity with"
            " --capacity or --retention"
        )
    demand = sizing.demand
    tokens = sizing.stored_bytes / demand.token_bytes
    reuses = reuses_per_day(demand.requests_per_s * demand.hit_tokens, tokens)
    if reuses == 0:
        raise InputError("no token is ever reused at a hit ratio of 0, so reused tokens have no cost")
    return reuses, "tokens found per day / tokens held"


def _table(rows: Iterable[Row]) -> pd.DataFrame:
    return label(
        [
            {"quantity": row.quantity, "value": row.value, "unit": row.unit, "formula": row.formula}
            for row in rows
        ],
        ORIGIN,
    )
