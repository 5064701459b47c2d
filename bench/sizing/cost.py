"""The cost table of a sizing: what is reused, from where, at the prices that the user gives; modelled."""

from collections.abc import Iterable
from dataclasses import replace

from bench.record.validate import InputError
from bench.sizing.deployment import Row, Sizing
from bench.sizing.drives import DAY_S
from bench.sizing.throughput import gpu_seconds_per_request
from bench.sizing.tokencost import SSD, StorageTierCost, recompute_cost, reuses_per_day


def cost_rows(sizing: Sizing) -> Iterable[Row]:
    """What a million reused tokens cost: computed again, and from each medium that has a price."""
    demand, prices = sizing.demand, sizing.prices
    again = None
    if prices.gpu_hour is not None and demand.hit_tokens > 0:
        saved = (1 - demand.marginal_share) * gpu_seconds_per_request(
            demand, sizing.measured, sizing.utilisation
        )
        seconds = saved / demand.hit_tokens
        again = recompute_cost(seconds, prices.gpu_hour)
        yield Row("GPU-seconds of a million reused tokens", seconds * 1e6, "GPU-s", "work saved / hit tokens")
        yield Row(
            "recompute, per million reused tokens", again, "price", f"x {prices.gpu_hour:g} per GPU-hour"
        )
    if prices.media:
        reuses, how = _reuses(sizing)
        yield Row("reuses of each stored token", reuses, "1/day", how)
        for medium in (_bought(medium, sizing) for medium in prices.media):
            yield from _medium_rows(medium, demand.token_bytes, reuses=reuses, again=again)


def _medium_rows(
    medium: StorageTierCost, token_bytes: int, *, reuses: float, again: float | None
) -> Iterable[Row]:
    yield Row(
        f"{medium.name}, per million reused tokens", medium.reused_cost(token_bytes, reuses), "price",
        f"{medium.price_per_gb:g} per GB over {medium.lifetime_years:.3g} years, {medium.occupancy:.3g} of it holds KV",
    )  # fmt: skip
    if again is not None:
        least = medium.break_even_reuses_per_day(token_bytes, again)
        yield Row(f"{medium.name} pays from", least, "1/day", "reuses of each stored token")
        yield Row(f"{medium.name} pays for reuse within", DAY_S / least, "s", "86,400 s / reuses")


def _bought(medium: StorageTierCost, sizing: Sizing) -> StorageTierCost:
    """SSD as the drives that are really bought, written off by the day their rated writes are used at the latest."""
    if medium.name != SSD or sizing.drive is None:
        return medium
    num_drives = sizing.count_drives(sizing.drive).whole
    if num_drives is None:
        return medium
    years = sizing.wear(sizing.drive, num_drives)[1]
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
            "how often a stored token is reused is not known: give prices.reuse_per_day, store.capacity or"
            " store.retention"
        )
    demand = sizing.demand
    tokens = sizing.stored_bytes / demand.token_bytes
    reuses = reuses_per_day(demand.requests_per_s * demand.hit_tokens, tokens)
    if reuses == 0:
        raise InputError("no token is ever reused at a hit ratio of 0, so reused tokens have no cost")
    return reuses, "tokens found per day / tokens held"
