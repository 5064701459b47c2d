"""What hits cost in `reuse`: KV bytes of a token, and prices from a sweep, a table or a described machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.kv_capacity import Cache, StoredBytes
from bench.catalog.models.resolve import resolve_model
from bench.estimate.analysis import analyse
from bench.predict.curve import Curve
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.sweep_model import extrapolating_model
from bench.record.plan import PlanError
from bench.record.run import RunRecord, find_ranks, read_run
from bench.record.samples_csv import read_samples
from bench.reuse.prices import prices_of_model, prices_of_sweep, read_prices
from bench.reuse.savings import HitPrices, fetch_seconds
from bench.reuse.tier_hits import CacheTier

MAX_LENGTH = (
    131_072  # tokens up to which C* is looked for when the model does not say how long a prompt may be
)
TieredRate = tuple[CacheTier, float | None]  # a tier, and its rate in bytes per second


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to model; nothing when no GPU is named.

    Args:
        storage: name in the catalogues, or dram.
        bytes_per_s: rate of the storage, in place of its name.
    """

    model: str | None
    gpu: str | None
    storage: str | None
    bytes_per_s: float | None
    dtype: str
    kv_dtype: str
    engine: str


def find_stored(
    model: str | None,
    bytes_per_token: float | None,
    *,
    kv_dtype: str,
    sweep: Path | None,
    num_gpus: int | None,
) -> StoredBytes:
    """KV bytes of one token on all ranks: as given, of the model, of the sweep.

    The ranks are those of the sweep, else `num_gpus`, one where nobody says.
    """
    if bytes_per_token is not None:
        if model is not None:
            raise PlanError("give --model or --bytes-per-token, not both")
        if not 0 < bytes_per_token < math.inf:
            raise PlanError(f"--bytes-per-token must be positive and finite, got {bytes_per_token}")
        return StoredBytes(bytes_per_token)
    run = None if sweep is None else read_run(sweep)
    if model is not None:
        _require_model_of(sweep, model)
        ranks = run.plan.tensor_parallel if run is not None else 1 if num_gpus is None else num_gpus
        known = resolve_model(model)
        kept = Cache(known, known.choose_kv_dtype(kv_dtype), ranks)
        return StoredBytes(kept.token_bytes, kept.state_bytes)
    return StoredBytes(None) if run is None else _stored_of(run)


def _stored_of(run: RunRecord) -> StoredBytes:
    """As the sweep wrote it down: what a short prefix has beyond its tokens are states."""
    shortest = min(run.kv_bytes_at, default=None)
    if shortest is None:
        return StoredBytes(run.kv_bytes_per_token)
    states = run.kv_bytes_at[shortest] - shortest * run.kv_bytes_per_token
    return StoredBytes(run.kv_bytes_per_token, max(states, 0))


def _require_model_of(sweep: Path | None, model: str) -> None:
    """Stop on capacities of one model priced with the times of another."""
    if sweep is not None and (measured := read_run(sweep).model_name) != resolve_model(model).name:
        raise PlanError(f"--model {model} is not what {sweep} measured ({measured}): leave --model out")


def find_prices(
    sweep: Path | None,
    curve: Path | None,
    machine: Machine,
    devices: Devices,
    *,
    series: str | None,
    num_gpus: int | None,
) -> HitPrices | None:
    """What recomputing and loading cost, from a sweep, a table or a described machine; None when none is named.

    Raises:
        PlanError: several are named, or what is named is not enough.
        InputError: another number of GPUs than the sweep was measured with.
    """
    if num_gpus is not None and num_gpus < 1:
        raise PlanError(f"--gpus must be at least 1, got {num_gpus}")
    if sweep is not None and curve is not None:
        raise PlanError("give --from or --curve, not both")
    if machine.gpu is not None:
        if sweep is not None or curve is not None:
            raise PlanError("--gpu models the prices that --from and --curve measure: give one of the three")
        return _price_machine(machine, devices, num_gpus or 1)
    if curve is not None:
        return replace(read_prices(curve), num_gpus=num_gpus or 1)
    if sweep is None:
        return None
    run, (samples, _) = read_run(sweep), read_samples(sweep)
    ranks = find_ranks(sweep, run, "--gpus", num_gpus)
    model, why = extrapolating_model(run, samples, series=series)
    prices = prices_of_sweep(run, analyse(run, samples), series=series, source=str(sweep), beyond=model)
    return replace(prices, num_gpus=ranks, notices=(*prices.notices, why) if why else prices.notices)


def _price_machine(machine: Machine, devices: Devices, num_gpus: int) -> HitPrices:
    """Modelled prices; the GPUs are its tensor-parallel ranks."""
    if machine.model is None or machine.gpu is None:
        raise PlanError("--gpu needs the model that it runs: add --model, such as --model llama-3.1-8b")
    if machine.storage is not None and machine.bytes_per_s is not None:
        raise PlanError("--ssd and --bandwidth are two storages: name one")
    if machine.storage is None and machine.bytes_per_s is None:
        raise PlanError(
            "name the storage that hits are loaded from: --ssd NAME, --ssd dram, or --bandwidth 10GB/s"
        )
    model = resolve_model(machine.model)
    setting = MachineSpec(
        gpu=machine.gpu,
        num_gpus=num_gpus,
        dtype=machine.dtype,
        kv_dtype=machine.kv_dtype,
        engine=machine.engine,
        storage=None if machine.storage is None or machine.storage.lower() == "dram" else machine.storage,
        bytes_per_s=machine.bytes_per_s,
    )
    longest = model.geometry.max_position_embeddings or MAX_LENGTH
    return prices_of_model(build_model(model, setting, devices), longest=longest, num_gpus=num_gpus)


def find_fetches(
    tiers: Sequence[TieredRate], prices: HitPrices | None, stored: StoredBytes
) -> Mapping[str, Curve]:
    """Seconds to bring tokens from each tier below the first: at its rate, else as the load curve says."""
    fetches: dict[str, Curve] = {}
    for tier, rate in tiers[1:]:
        if rate is not None and prices is None:
            raise PlanError(
                f"tier {tier.name} has a rate; what recomputing costs is missing: add --from, --curve or --gpu"
            )
        if rate is not None and stored.per_token is None:
            raise PlanError(f"tier {tier.name} has a rate in bytes: add --model or --bytes-per-token")
        if prices is not None:
            fetches[tier.name] = _fetch_curve(rate, prices, stored)
    return fetches


def _fetch_curve(rate: float | None, prices: HitPrices, stored: StoredBytes) -> Curve:
    """At a rate: every plane of the tokens, and the states that the prefix is gone on from."""
    if rate is None or stored.per_token is None:
        return lambda tokens: fetch_seconds(tokens, prices.curves)
    token_s, states_s = stored.per_token / rate, stored.states / rate
    return lambda tokens: tokens * token_s + (tokens > 0) * states_s
