"""C* over models, GPUs and storages: modelled cells, and beside them what sweeps measured."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
import pandas as pd

from bench.catalog.devices.datasheet import pick_figure
from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import Model, resolve_model
from bench.estimate.bandwidth import break_even_bytes_per_s
from bench.estimate.results import Crossing, SweetSpot
from bench.predict.bounded import Bounded
from bench.predict.cost_model import CostModel
from bench.predict.machine_spec import MachineSpec, build_model, gpu_memory_notice, weight_dtype_notice
from bench.predict.memory_fit import fitting_tokens, memory_notice, memory_of
from bench.predict.prediction import SHORTEST, find_doubts, find_marginal, find_whole, gap_whole, verdict_of
from bench.predict.rates import WEIGHT_BYTES, find_storage_rate, read_weight_dtype

MAX_LENGTH = 131_072
USABLE_SHARE = 0.9  # of device memory, for weights and KV: vLLM's default gpu_memory_utilization
RANKS = (1, 2, 4, 8)
AUTO = "auto"
MISFIT = "the weights do not fit"


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """C* of one model on one device with one storage; None where there is none, with the reason."""

    origin: Literal["modelled", "measured"]
    model: str
    device: str
    storage: str
    num_gpus: int = 1
    read_bytes_per_s: float | None = None
    verdict: str | None = None
    crossover_tokens: float | None = None  # the last crossing, beyond which the winner stays
    crossover_low_tokens: float | None = None
    crossover_high_tokens: float | None = None
    load_wins_beyond: bool | None = None
    marginal_crossover_tokens: float | None = None
    dtype: str = ""  # of the weights, modelled cells only
    crossings: str = ""  # all of them by length, such as "<664 >116672": loading wins below and beyond
    # why the verdict is not sure, such as the other verdicts that the bounds of the times hold
    undecided: str = ""
    # the longest prefix that has room beside the weights; None where any has
    fitting_tokens: int | None = None
    reason: str = ""
    suspect: str = ""  # codes of what makes a measured cell suspect

    @property
    def place(self) -> tuple[str, str, str, int, str, str]:
        """What two cells share that answer the same question."""
        return self.origin, self.model, self.device, self.num_gpus, self.dtype, self.storage

    @property
    def turns(self) -> tuple[tuple[bool, float], ...]:
        """Every crossing: whether load wins beyond it, and its tokens."""
        return tuple((one[0] == ">", float(one[1:])) for one in self.crossings.split())


@dataclass(frozen=True, slots=True)
class BandwidthCurve:
    """C* of one model on one GPU by the rate of its storage: `tokens[i]` at `bytes_per_s[i]`."""

    model: str
    device: str
    tokens: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    dtype: str = "bfloat16"

    @property
    def wins_beyond(self) -> tuple[bool, ...]:
        """Whether at each point load wins beyond C*: where longer prefixes need less; else only up to it."""
        rates = self.bytes_per_s
        falls = [after <= before for before, after in pairwise(rates)]
        return (*falls, falls[-1]) if falls else (True,) * len(rates)

    def branches(self) -> list[tuple[bool, slice]]:
        """Stretches of points with the same winner beyond; neighbours share their point, where the curve turns."""
        found: list[tuple[bool, slice]] = []
        start = 0
        for wins, points in groupby(self.wins_beyond):
            end = start + len(list(points))
            found.append((wins, slice(start, min(end + 1, len(self.tokens)))))
            start = end
        return found


def choose_dtype(model: Model, gpu: str, devices: Devices, dtype: str = AUTO) -> str:
    """`dtype`; for "auto" fp8 where the checkpoint is published so and the GPU's fp8 peak is known, else bfloat16."""
    if dtype != AUTO:
        return read_weight_dtype(dtype)
    is_native = model.published_dtype == "fp8" and devices.find_gpu(gpu).fp8_flops_per_s
    return "fp8" if is_native else "bfloat16"


def format_no_ranks(model: Model, gpu: str, devices: Devices, dtype: str) -> str:
    """Why no number of RANKS holds the weights, and what would."""
    smaller = "fp8"
    fits = devices.find_gpu(gpu).fp8_flops_per_s and choose_ranks(model, gpu, devices, smaller) is not None
    hint = (f"try --dtype {smaller}",) if dtype != smaller and fits else ()
    return "; ".join([f"{MISFIT} into {RANKS[-1]} GPUs", *weight_dtype_notice(model, dtype), *hint])


def choose_ranks(model: Model, gpu: str, devices: Devices, dtype: str) -> int | None:
    """The fewest GPUs of RANKS that hold the weights, one where their memory is unknown; None when none does."""
    memory = pick_figure(devices.find_gpu(gpu).memory_bytes)
    weights = model.geometry.params_total * WEIGHT_BYTES[read_weight_dtype(dtype)]
    if memory is None:
        return 1
    return next((ranks for ranks in RANKS if weights <= ranks * memory.value * USABLE_SHARE), None)


def fill_matrix(
    models: Sequence[str],
    gpus: Sequence[str],
    storages: Sequence[str],
    devices: Devices,
    *,
    dtype: str = AUTO,
) -> list[MatrixCell]:
    """A modelled cell for each combination; one that cannot be computed has its reason.

    Raises:
        CatalogError: a name is in no catalogue, a storage has no known rate, or the dtype none that is modelled.
    """
    known = [(key, resolve_model(key)) for key in models]
    for storage in storages:
        find_storage_rate(devices, storage)
    return [
        _cell(key, model, gpu, storage, devices=devices, dtype=dtype)
        for key, model in known
        for gpu in gpus
        for storage in storages
    ]


def _cell(key: str, model: Model, gpu: str, storage: str, *, devices: Devices, dtype: str) -> MatrixCell:
    weights = choose_dtype(model, gpu, devices, dtype)
    ranks = choose_ranks(model, gpu, devices, weights)
    name = devices.find_gpu(gpu).name
    cell = MatrixCell("modelled", key, name, storage, ranks or RANKS[-1], dtype=weights)
    if ranks is None:
        return replace(cell, reason=format_no_ranks(model, gpu, devices, weights))
    try:
        cost = build_model(
            model, MachineSpec(gpu=gpu, num_gpus=ranks, storage=storage, dtype=weights), devices
        )
    except CatalogError as error:
        return replace(cell, reason=str(error))
    longest, memory = model.geometry.max_position_embeddings or MAX_LENGTH, memory_of(devices, gpu)
    reason = [f"modelled between {SHORTEST:,} and {longest:,} tokens"]
    reason += [*weight_dtype_notice(model, weights), *gpu_memory_notice(devices.find_gpu(gpu))]
    reason += memory_notice(cost, longest, memory)
    marginal = find_marginal(cost, SHORTEST, longest)
    return replace(
        _judge(cell, cost, longest, reason="; ".join(reason)),
        read_bytes_per_s=None if cost.storage is None else cost.storage.value,
        marginal_crossover_tokens=marginal[-1].tokens.value if marginal else None,
        fitting_tokens=fitting_tokens(cost, memory),
    )


def _judge(cell: MatrixCell, cost: CostModel, longest: int, *, reason: str) -> MatrixCell:
    """The cell with C* and what makes its verdict doubtful."""
    whole = find_whole(cost, SHORTEST, longest)
    verdict = verdict_of(whole, gap_whole(cost)(longest))
    bounded = any(cost.has_bounds)
    doubts = find_doubts(partial(gap_whole, cost), verdict, (SHORTEST, longest)) if bounded else ()
    undecided = f"{' and '.join(doubts)} within the bounds too" if doubts else ""
    return replace(_with_crossings(cell, verdict, whole, reason), undecided=undecided)


def with_spot(cell: MatrixCell, spot: SweetSpot) -> MatrixCell:
    """The cell with the verdict of a measured spot."""
    found = _with_crossings(cell, spot.verdict, spot.crossings, spot.reason)
    return replace(found, undecided=spot.reason if spot.verdict == "inconclusive" else "")


def _with_crossings(cell: MatrixCell, verdict: str, crossings: Sequence[Crossing], reason: str) -> MatrixCell:
    """The cell with the last crossing, beyond which the winner stays; without one that is extrapolated."""
    if not crossings or crossings[-1].extrapolated:
        return replace(cell, verdict=verdict, reason=reason)
    tokens = crossings[-1].tokens
    measured = [one for one in crossings if not one.extrapolated]
    return replace(
        cell,
        crossings=" ".join(
            f"{'>' if one.load_wins_beyond else '<'}{one.tokens.value:.6g}" for one in measured
        ),
        verdict=verdict,
        crossover_tokens=tokens.value,
        crossover_low_tokens=tokens.low,
        crossover_high_tokens=tokens.high,
        load_wins_beyond=crossings[-1].load_wins_beyond,
        reason=reason,
    )


def matrix_frame(cells: Sequence[MatrixCell]) -> pd.DataFrame:
    """One row per cell; missing is empty."""
    return pd.DataFrame([asdict(cell) for cell in cells]).astype({"fitting_tokens": "Int64"})


def trace_bandwidth(cost: CostModel, model: str, device: str, *, longest: int) -> BandwidthCurve:
    """C* against bandwidth, from the other side: at which rate each length is C*, its break-even bandwidth.

    Lengths that no rate can tie at are left out: recompute is faster than a load's fixed costs or its link.
    """
    found = {}
    num_lengths = round(4 * np.log2(longest / SHORTEST)) + 1
    for n in map(round, np.geomspace(SHORTEST, longest, num_lengths)):
        fixed_s = cost.fixed_s(n)
        rate = break_even_bytes_per_s(cost.num_bytes(n), cost.recompute_s(n), fixed_s)
        unlimited = replace(cost, storage=Bounded(np.inf)).transfer_s(n)
        if rate is not None and unlimited < cost.recompute_s(n) - fixed_s:
            found[n] = rate
    return BandwidthCurve(model, device, tuple(found), tuple(found.values()))


def trace_curves(
    models: Sequence[str], gpus: Sequence[str], devices: Devices, *, dtype: str
) -> tuple[list[BandwidthCurve], list[str]]:
    """A curve for each model on each GPU, and the reasons of those that there cannot be."""
    curves, left_out = [], []
    for key in models:
        model = resolve_model(key)
        for gpu in gpus:
            weights = choose_dtype(model, gpu, devices, dtype)
            ranks = choose_ranks(model, gpu, devices, weights)
            if ranks is None:
                left_out.append(format_no_ranks(model, gpu, devices, weights))
                continue
            try:
                cost = build_model(model, MachineSpec(gpu, ranks, dtype=weights, bytes_per_s=1e9), devices)
            except CatalogError as error:
                left_out.append(str(error))
                continue
            device = gpu if ranks == 1 else f"{ranks}x {gpu}"
            longest = model.geometry.max_position_embeddings or MAX_LENGTH
            curves.append(replace(trace_bandwidth(cost, key, device, longest=longest), dtype=weights))
    return curves, left_out


def read_rates(devices: Devices) -> dict[str, float]:
    """Read rates of the drives whose rate is known, in bytes per second."""
    return {
        ssd.key: find_storage_rate(devices, ssd.key)[1].value
        for ssd in devices.ssds.values()
        if ssd.read_bytes_per_s or ssd.measured_read_bytes_per_s
    }
