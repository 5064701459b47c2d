"""What `size` is asked: requests, store, drive and prices, read from its options and checked."""

from dataclasses import dataclass, replace
from pathlib import Path

from bench.catalog.devices.datasheet import other_figures, pick_figure
from bench.catalog.devices.device_catalog import Devices, Ssd
from bench.catalog.models.kv_capacity import Cache, format_states
from bench.record.units import count_of
from bench.record.validate import InputError, parsed, require_positive
from bench.reuse.eviction import capacity_in_tokens, require_policy, simulate
from bench.reuse.trace import read_trace
from bench.sizing.demand import Demand, Request, mean_request
from bench.sizing.drives import Drive, dwpd_of_tbw
from bench.sizing.own_rate import OwnRate, find_own_rate
from bench.sizing.tokencost import DRAM, SSD, StorageTierCost


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests to size for, and the rate that a trace itself has."""

    listed: list[Request]
    own_rate: OwnRate | None = None
    stored_bytes: int | None = None
    stored_how: str = ""


def read_requests(
    cache: Cache,
    *,
    input_tokens: int | None,
    hit_ratio: float | None,
    trace: Path | None,
    policy: str,
    block_tokens: int,
    skip_bad: bool,
    capacity_bytes: int | None,
) -> Requests:
    """One mean request, or those of a trace against a cache of `capacity_bytes`.

    Raises:
        InputError: too little or too much was given.
    """
    if trace is None:
        if input_tokens is None or hit_ratio is None:
            raise InputError("give --input-tokens and --hit-ratio, or --trace FILE with --capacity")
        return Requests([mean_request(input_tokens, hit_ratio)], None, capacity_bytes, "as given")
    if input_tokens is not None or hit_ratio is not None:
        raise InputError("--trace decides prompts and hits: leave --input-tokens and --hit-ratio out")
    if capacity_bytes is None:
        raise InputError("--trace needs the size of the cache that it is simulated with; try --capacity 10TB")
    if not trace.exists():
        raise InputError(f"{trace}: no such file; a trace in Mooncake's format is needed")
    if block_tokens < 1:
        raise InputError(f"--block-tokens must be at least 1, not {block_tokens}")
    found = read_trace(trace, block_tokens, skip_bad=skip_bad)
    tokens = parsed(lambda size: capacity_in_tokens(size, cache.token_bytes), capacity_bytes) or 0
    chosen = parsed(require_policy, policy) or "lru"
    hits = simulate(found, chosen, capacities_tokens=[tokens])[0]
    listed = list(zip(found.input_tokens.tolist(), hits.tolist(), strict=True))
    how = "; ".join(
        (
            "as given",
            f"{policy} over {trace.name}, {count_of(found.num_requests, 'request')}, from a cold start",
            *found.notices,
            *format_states(cache.state_bytes),
        )
    )
    return Requests(listed, find_own_rate(found), capacity_bytes, how)


def find_rate(
    requests: Requests, requests_per_s: float | None, target_tokens_per_s: float | None
) -> tuple[float, str]:
    """Requests per second, and how they come about: as given, from prompt tokens per second, or the trace's own.

    Raises:
        InputError: nothing says it, or two things do.
    """
    if requests_per_s is not None and target_tokens_per_s is not None:
        raise InputError("give --requests-per-s or --target, not both")
    if requests_per_s is not None:
        return requests_per_s, ""
    if target_tokens_per_s is not None:
        require_positive("target", target_tokens_per_s, unit="tokens/s")
        total_tokens = sum(tokens for tokens, _ in requests.listed)
        return target_tokens_per_s * len(requests.listed) / total_tokens, ""
    if requests.own_rate is None:
        raise InputError("how much arrives is not known: give --requests-per-s or --target (prompt tokens/s)")
    return requests.own_rate.per_s, requests.own_rate.how


def find_stored(requests: Requests, demand: Demand, retention_s: float | None) -> tuple[float | None, str]:
    """Bytes kept in the store and how they come about: as given, or written over the retention."""
    if requests.stored_bytes is not None:
        if retention_s is not None:
            raise InputError("give --capacity or --retention, not both")
        return requests.stored_bytes, requests.stored_how
    if retention_s is None:
        return None, ""
    return demand.write_bytes_per_s * retention_s, f"write bandwidth x retention of {retention_s:g} s"


def find_drive(
    ssd: str | None,
    devices: Devices,
    *,
    capacity_bytes: int | None,
    read_bytes_per_s: float | None,
    dwpd: float | None,
    tbw_bytes: int | None,
    warranty_years: float,
) -> Drive | None:
    """The drive as given, its missing figures from the catalogue; None when no drive is named.

    Raises:
        InputError: no capacity is known, or endurance is given twice.
    """
    if dwpd is not None and tbw_bytes is not None:
        raise InputError("give --dwpd or --tbw, not both")
    known = None if ssd is None else _find_drive(ssd, devices, warranty_years)
    capacity_bytes = capacity_bytes or (None if known is None else known.capacity_bytes or None)
    if capacity_bytes is None:
        if known is None and read_bytes_per_s is None and dwpd is None and tbw_bytes is None:
            return None
        name = "a drive" if ssd is None else ssd
        raise InputError(f"the capacity of {name} is not known; try --drive-capacity 7.68TB")
    if tbw_bytes is not None:
        dwpd = dwpd_of_tbw(tbw_bytes, capacity_bytes, warranty_years)
    given = Drive(capacity_bytes, read_bytes_per_s, dwpd, warranty_years)
    require_positive("warranty", warranty_years, unit="years")
    require_positive("DWPD", 1.0 if dwpd is None else dwpd)
    return given if known is None else _fill(given, known)


def _find_drive(ssd: str, devices: Devices, warranty_years: float) -> Drive:
    """A drive of the catalogue: the largest of its family, what was measured before what is printed."""
    entry = devices.find_storage(ssd)
    if not isinstance(entry, Ssd):
        raise InputError(f"--ssd {ssd}: is a link or a store, not a drive")
    figures = {
        "capacity": pick_figure(entry.capacities_bytes),
        "read": pick_figure((*entry.measured_read_bytes_per_s, *entry.read_bytes_per_s)),
        "dwpd": pick_figure(entry.dwpd),
    }
    value = {name: None if figure is None else figure.value for name, figure in figures.items()}
    sources = {
        name: f"{entry.name}, {figure.source}" for name, figure in figures.items() if figure is not None
    }
    measured = entry.measured_read_bytes_per_s or entry.read_bytes_per_s
    for other in other_figures(measured):
        sources["read"] += f"; also {other.value / 1e9:g} GB/s, {other.source}"
    rate = value["read"]
    return Drive(
        round(value["capacity"] or 0),
        None if rate is None else rate / entry.num_drives,
        value["dwpd"],
        warranty_years,
        sources,
    )


def _fill(given: Drive, known: Drive) -> Drive:
    """What was given, and from the catalogue what was not."""
    taken = {
        "capacity": given.capacity_bytes == known.capacity_bytes,
        "read": given.read_bytes_per_s is None,
        "dwpd": given.dwpd is None,
    }
    return replace(
        given,
        read_bytes_per_s=known.read_bytes_per_s if taken["read"] else given.read_bytes_per_s,
        dwpd=known.dwpd if taken["dwpd"] else given.dwpd,
        sources={name: source for name, source in known.sources.items() if taken[name]},
    )


def find_media(
    *, dram_gb: float | None, ssd_gb: float | None, lifetime_years: float | None, occupancy: float
) -> tuple[StorageTierCost, ...]:
    """The media that a price was given for.

    Raises:
        InputError: a price without the lifetime that it is spread over.
    """
    given = [(name, price) for name, price in ((DRAM, dram_gb), (SSD, ssd_gb)) if price is not None]
    if given and lifetime_years is None:
        raise InputError(
            "a price of memory needs the years it is written off over; try --lifetime-years 5,"
            " and --occupancy 0.8 where not all of it holds KV"
        )
    return tuple(StorageTierCost(name, price, lifetime_years or 0.0, occupancy) for name, price in given)
