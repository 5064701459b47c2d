"""The cost model against published rows: one outcome per row, an error or the reason for none."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import read_catalogue
from bench.predict.bounded import Pick
from bench.predict.calibrate import MIN_LENGTHS, ArmFit, CalibratedModel, calibrate, count_lengths
from bench.predict.cost_model import CostModel, TimeModel
from bench.predict.machine_spec import MachineSpec, build_model, gpu_memory_notice
from bench.predict.prediction import find_marginal, find_whole
from bench.predict.published import CROSSOVER, LOADING, NUMBERS_OF_KIND, RATES, PublishedRow, RowsError
from bench.predict.rates import find_storage_rate, read_weight_dtype

# exchanges over compute above which the ranks wait for each other; source: a ring all-reduce is modelled by its bytes
# alone, and small messages take several times that (latency of 10 us each, ai-dynamo/aiconfigurator p2p_latency)
MAX_EXCHANGE_SHARE = 0.5
KV_TOLERANCE = 0.01
# bounds further than this from the number, relative to it, are an answer in themselves: the interval, not the number
MAX_WIDTH = 0.25
Setup = tuple[str | float | None, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """One published number against the modelled one; the bounds of the latter are None where it has none."""

    quantity: str
    published: float
    modelled: float
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        """Modelled over published, less 1."""
        return self.modelled / self.published - 1

    @property
    def inside(self) -> bool | None:
        """Whether the published number lies within the bounds; None without bounds."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.published <= self.high

    @property
    def wide(self) -> bool:
        """Whether a bound is further than MAX_WIDTH from the number."""
        if self.low is None or self.high is None:
            return False
        return max(self.modelled - self.low, self.high - self.modelled) > MAX_WIDTH * self.modelled


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What became of one row: predicted with its errors, refused with the reasons, or used to calibrate."""

    row: PublishedRow
    compared: tuple[Compared, ...] = ()
    refused: tuple[str, ...] = ()
    calibrating: bool = False
    calibrated: bool = False
    taken: tuple[str, ...] = ()  # what its names were taken as, and what could not be checked

    @property
    def error(self) -> float | None:
        """The largest error of the row's numbers, without sign; None when there is none to count."""
        if self.calibrating or not self.compared:
            return None
        return max(abs(one.error) for one in self.compared)


def check_rows(
    rows: Sequence[PublishedRow], devices: Devices, *, calibrate_on: Sequence[str] = ()
) -> tuple[RowOutcome, ...]:
    """Predict every row that can be; rows named in `calibrate_on` calibrate their own setup and are not counted.

    Raises:
        RowsError: a named row is not there, cannot be predicted, or too few of its setup are named.
    """
    fitted = _calibrations(rows, devices, calibrate_on)
    return tuple(_outcome(row, devices, fitted, row.id in calibrate_on) for row in rows)


def median_error(outcomes: Sequence[RowOutcome]) -> tuple[float | None, int]:
    """Median over the rows that count, and their number."""
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    return (median(errors) if errors else None), len(errors)


def count_inside(outcomes: Sequence[RowOutcome]) -> tuple[int, int]:
    """Numbers of the rows that count which lie within their bounds, and those that have bounds."""
    found = [one.inside for row in outcomes if row.error is not None for one in row.compared]
    return sum(inside is True for inside in found), sum(inside is not None for inside in found)


def describe_row(row: PublishedRow, devices: Devices) -> CostModel:
    """The cost model of the row's setup, uncalibrated; CatalogError where a figure is missing or contradicts the model."""
    model = read_catalogue()[row.model_key]
    ours = model.geometry.layout(row.kv_dtype).bytes_per_token
    stated = row.kv_bytes_per_token
    if stated is not None and abs(ours / stated - 1) > KV_TOLERANCE:
        raise CatalogError(
            f"kv_bytes_per_token is {stated:.0f}, and {ours} by the model's dimensions with {row.kv_dtype} KV"
        )
    spec = MachineSpec(
        gpu=row.gpu,
        num_gpus=row.tp or 1,
        dtype=row.weight_dtype,
        kv_dtype=row.kv_dtype,
        bytes_per_s=row.storage_bytes_per_s,
        storage=row.storage_name or None,
    )
    return build_model(model, spec, devices)


def row_refusals(row: PublishedRow, devices: Devices) -> list[str]:
    """Why this row is not predicted; empty when it is."""
    if row.not_comparable:
        return [row.not_comparable]
    if row.kind not in NUMBERS_OF_KIND:
        return [f"kind {row.kind!r:.40} is none of {', '.join(NUMBERS_OF_KIND)}"]
    needed = ("model_key", "gpu", "tp", "weight_dtype", *row.expected_numbers)
    reasons = [f"{name} is missing" for name in needed if not getattr(row, name)]
    if row.model_key and row.model_key not in read_catalogue():
        reasons.append(f"model_key {row.model_key!r:.60} is not in the catalogue")
    if row.cached_tokens is not None and row.cached_tokens != row.tokens:
        reasons.append(f"{row.cached_tokens} of {row.tokens} tokens were loaded, not the whole prefix")
    finders: list[tuple[Callable[[str], object], str]] = [
        (devices.find_gpu, row.gpu),
        (read_weight_dtype, row.weight_dtype),
    ]
    for find, name in finders:
        try:
            if name:
                find(name)
        except CatalogError as error:
            reasons.append(re.split("; known|; or describe", str(error))[0])
    return reasons


def _require_modelled(row: PublishedRow, base: CostModel) -> None:
    """Refuse ranks that mostly wait for each other, or exchange at an unknown rate."""
    tokens = row.tokens or int(row.crossover_tokens or 1)
    compute = sum(base.kernel_s(tokens)) / base.engine.compute_share
    if base.num_gpus > 1 and base.exchange_s(tokens) > MAX_EXCHANGE_SHARE * compute:
        raise CatalogError(
            f"TP{base.num_gpus}: {base.exchange_s(tokens) * 1e3:.3g} ms of exchanges beside"
            f" {compute * 1e3:.3g} ms of compute: bound by communication, which is not modelled"
        )
    if base.num_gpus > 1 and base.peer_bytes_per_s is None:
        raise CatalogError(f"TP{base.num_gpus}: the rate between the GPUs is unknown")


def _require_storage(row: PublishedRow) -> None:
    """Refuse a load from storage of unknown rate."""
    if row.kind in LOADING and row.storage != "memory" and not (row.storage_bytes_per_s or row.storage_name):
        raise CatalogError("storage_bytes_per_s is missing, and storage is not memory")


def _format_taken(row: PublishedRow, devices: Devices) -> tuple[str, ...]:
    """What the GPU's name was taken as, and what the catalogue does not know for certain."""
    gpu = devices.find_gpu(row.gpu)
    taken = [] if gpu.is_called(row.gpu) else [f"GPU {row.gpu!r:.60} taken as {gpu.name}"]
    if row.kind in LOADING and row.storage_name and row.storage_bytes_per_s is None:
        taken += find_storage_rate(devices, row.storage_name)[2]
    return (*taken, *gpu_memory_notice(gpu))


def _calibrations(
    rows: Sequence[PublishedRow], devices: Devices, names: Sequence[str]
) -> dict[Setup, CalibratedModel]:
    by_id = {row.id: row for row in reversed(rows)}
    uses = Counter(row.id for row in rows)
    twice = next((name for name in names if uses[name] > 1), None)
    if twice is not None:
        raise RowsError(f"calibrate: id {twice!r:.40} is there twice: give each row one of its own")
    unknown = [name for name in names if name not in by_id]
    if unknown:
        raise RowsError(
            f"calibrate: no row has the id {unknown[0]!r:.40}; ids are {', '.join(list(by_id)[:8])} ..."
        )
    groups: dict[Setup, list[PublishedRow]] = {}
    for name in dict.fromkeys(names):
        row = by_id[name]
        reasons = row_refusals(row, devices)
        if reasons:
            raise RowsError(f"calibrate: row {name} cannot be used: {reasons[0]}")
        groups.setdefault(row.setup, []).append(row)
    return {setup: _calibrated(group, devices) for setup, group in groups.items()}


def _calibrated(group: Sequence[PublishedRow], devices: Devices) -> CalibratedModel:
    times = [
        [(row.tokens or 0, getattr(row, name)) for row in group if name in row.expected_numbers]
        for name in ("recompute_s", "load_s")
    ]
    for row in group:
        if not {"recompute_s", "load_s"} & set(row.expected_numbers):
            raise RowsError(f"calibrate: row {row.id} has no time to calibrate on: {row.kind} is none")
    lengths = [count_lengths(arm) for arm in times]
    if max(lengths) < MIN_LENGTHS:
        raise RowsError(
            f"calibrate: {', '.join(row.id for row in group)} have {max(lengths)} lengths of one setup"
            f" (same model, GPUs, engine, storage, KV bytes per token); {MIN_LENGTHS} are needed"
        )
    found = calibrate(describe_row(group[0], devices), times[0], times[1])
    for row in group:
        if all(arm is None for arm in _arms_of(row, found)):
            raise RowsError(
                f"calibrate: row {row.id} ({row.kind}) calibrates nothing: its arm has fewer than {MIN_LENGTHS}"
                " lengths, or loads below the first-token step; leave it out"
            )
    return found


def _outcome(
    row: PublishedRow, devices: Devices, fitted: Mapping[Setup, CalibratedModel], calibrating: bool
) -> RowOutcome:
    reasons = row_refusals(row, devices)
    if reasons:
        return RowOutcome(row, refused=tuple(reasons))
    try:
        base = describe_row(row, devices)
        found = fitted.get(row.setup)
        _require_modelled(row, base)
        if found is None or found.load is None:
            _require_storage(row)
        compared = _compare(row, found or base)
    except CatalogError as error:
        return RowOutcome(row, refused=(str(error),))
    calibrated = found is not None and any(arm is not None for arm in _arms_of(row, found))
    taken = _format_taken(row, devices)
    return RowOutcome(row, compared, calibrating=calibrating, calibrated=calibrated, taken=taken)


def _arms_of(row: PublishedRow, found: CalibratedModel) -> list[ArmFit | None]:
    """The fits of the arms that a row is compared in."""
    arms = {"recompute_s": found.recompute, "load_s": found.load}
    return [arms[name] for name in row.expected_numbers if name in arms] or list(arms.values())


def _compare(row: PublishedRow, model: TimeModel) -> tuple[Compared, ...]:
    if row.kind == CROSSOVER:
        return (_compare_crossover(row, model),)
    if row.kind in RATES:
        return (_compare_rate(row, model),)
    found = []
    for quantity, seconds, bounded in (
        ("recompute_s", model.recompute_s, model.has_bounds[0]),
        ("load_s", lambda n, pick: load_seconds(model, n, pick), model.has_bounds[1]),
    ):
        stated_s, tokens = getattr(row, quantity), row.tokens or 0
        if quantity in row.expected_numbers:
            bounds = (seconds(tokens, "low"), seconds(tokens, "high")) if bounded else (None, None)
            found.append(Compared(quantity, stated_s, seconds(tokens, "value"), *bounds))
    return tuple(found)


def _compare_rate(row: PublishedRow, model: TimeModel) -> Compared:
    """The bandwidth at which both arms tie; without an upper bound where the arms' bounds overlap."""
    stated, tokens = (row.required_bytes_per_s or 0.0) / 1e9, row.tokens or 0

    def rate(recompute: Pick, load: Pick) -> float:
        fixed_s = model.fixed_s(tokens, load) if row.kind == "required_bandwidth" else 0.0
        gain_s = model.recompute_s(tokens, recompute) - fixed_s
        return model.num_bytes(tokens) / gain_s / 1e9 if gain_s > 0 else math.inf

    value = rate("value", "value")
    if math.isinf(value):
        raise CatalogError("no bandwidth ties: recompute is modelled faster than the fixed cost of a load")
    if not any(model.has_bounds):
        return Compared("GB/s", stated, value)
    return Compared("GB/s", stated, value, rate("high", "low"), rate("low", "high"))


def load_seconds(model: TimeModel, num_tokens: int, pick: Pick = "value") -> float:
    """Seconds of the load arm, or a bound of them."""
    return model.fixed_s(num_tokens, pick) + model.transfer_s(num_tokens, pick)


def _compare_crossover(row: PublishedRow, model: TimeModel) -> Compared:
    marginal = row.crossover_kind == "marginal"
    search = find_marginal if marginal else find_whole
    crossings = search(model, 64, 1_048_576)
    if len(crossings) != 1:
        raise CatalogError(f"{len(crossings)} crossings are modelled, one was published")
    tokens = crossings[0].tokens
    name = "P* tokens" if marginal else "C* tokens"
    return Compared(name, row.crossover_tokens or 0.0, tokens.value, tokens.low, tokens.high)
