"""What `size` takes throughput and work from: the user's number, a sweep, or the cost model of a described machine."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.kv_capacity import Cache
from bench.catalog.models.resolve import AUTO, resolve_model
from bench.estimate.analysis import analyse
from bench.estimate.results import fullest_series
from bench.predict.bounded import Pick
from bench.predict.cost_model import CostModel, TimeModel
from bench.predict.curve import MeasuredCurve
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.sweep_model import extrapolating_model
from bench.record.run import find_ranks, read_run
from bench.record.samples_csv import read_samples
from bench.record.validate import InputError
from bench.sizing.demand import Demand, Request, Work, work_in_flops, work_in_seconds
from bench.sizing.throughput import Throughput, measured_throughput, recompute_curve, step_curve

NO_STEP = "no first-token step was measured: a prompt found whole costs nothing"


@dataclass(frozen=True, slots=True)
class Basis:
    """Whose KV is stored, and how the work of a prefill is counted; one of `curve` and `cost`, or neither.

    Args:
        num_gpus: that measured it together, or are modelled.
        beyond: the model of the sweep that `curve` is of, for lengths outside; `doubt` says why there is none.
    """

    cache: Cache
    work: Work
    work_unit: str
    curve: MeasuredCurve | None = None
    cost: CostModel | None = None
    source: str = ""
    supposed: tuple[str, ...] = ()
    num_gpus: int = 1
    beyond: TimeModel | None = None
    doubt: str = ""


def read_basis(
    model: str | None,
    sweep: Path | None,
    *,
    throughput: float | None,
    machine: MachineSpec | None,
    devices: Devices,
    kv_dtype: str | None,
    tp: int | None,
    measured_gpus: int | None = None,
) -> Basis:
    """From a model and the user's throughput, from a sweep, or from a model and a described machine.

    Raises:
        InputError: none of them, or several; weights that do not fit; other ranks than those of the sweep.
    """
    if machine is not None:
        if sweep is not None or throughput is not None:
            raise InputError("--gpu models what --throughput and --from measure: give one of the three")
        if model is None:
            raise InputError("--gpu needs the model that it runs: add --model, such as --model llama-3.1-8b")
        return _described(model, machine, devices)
    if sweep is not None:
        if model is not None or throughput is not None:
            raise InputError("--from names model and throughput: leave --model and --throughput out")
        return _swept(sweep, kv_dtype, tp=tp, measured_gpus=measured_gpus)
    if model is None or throughput is None:
        raise InputError(
            "give --model and --throughput (tokens/s measured), --from RESULT, or --model and --gpu (modelled)"
        )
    known = resolve_model(model)
    kept = Cache(known, known.choose_kv_dtype(kv_dtype or AUTO), 1 if tp is None else tp)
    num_gpus = kept.tensor_parallel if measured_gpus is None else measured_gpus
    if 0 < num_gpus < kept.tensor_parallel:
        raise InputError(f"--tp {tp} needs as many GPUs: --measured-gpus {num_gpus} are fewer")
    return Basis(kept, work_in_flops(kept.model.geometry), "FLOPs", num_gpus=num_gpus)


def _swept(sweep: Path, kv_dtype: str | None, *, tp: int | None, measured_gpus: int | None) -> Basis:
    run, (samples, _) = read_run(sweep), read_samples(sweep)
    if run.plan.suffix_tokens:
        raise InputError(f"{sweep}: asked the marginal question (--suffix-tokens); whole prompts are needed")
    ranks = find_ranks(sweep, run, "--tp", tp)
    find_ranks(sweep, run, "--measured-gpus", measured_gpus)
    points = analyse(run, samples).points
    series = fullest_series(points)  # recompute alone counts here, which all series share
    model, doubt = extrapolating_model(run, samples, series=series)
    curve, step = recompute_curve(points, str(sweep), model), step_curve(points, series, model)
    kept = Cache(resolve_model(run.plan.model), kv_dtype or run.plan.kv_dtype or run.plan.dtype, ranks)
    return Basis(
        kept,
        work_in_seconds(curve, step),
        "seconds",
        curve,
        source=str(sweep),
        supposed=() if step is not None else (NO_STEP,),
        num_gpus=ranks,
        beyond=model,
        doubt=doubt,
    )


def _described(model: str, machine: MachineSpec, devices: Devices) -> Basis:
    known = resolve_model(model)
    cost = build_model(known, machine, devices)
    kept = Cache(known, known.choose_kv_dtype(machine.kv_dtype), machine.num_gpus)
    ranks = machine.num_gpus
    return Basis(
        kept, work_modelled(cost), "modelled seconds", cost=cost, supposed=cost.notices, num_gpus=ranks
    )


def work_modelled(cost: CostModel) -> Work:
    """Seconds T(n) - T(h) of the cost model, at least the step that every prompt ends with."""
    whole_s = cache(cost.recompute_s)

    def work(tokens: int, past: int) -> float:
        if past == 0:
            return whole_s(tokens)
        step_s = min(cost.fixed_s(tokens), whole_s(tokens))
        return max(whole_s(tokens) - whole_s(past), step_s)

    return work


def read_throughput(
    basis: Basis, demand: Demand, requests: Sequence[Request], *, given: float | None
) -> Throughput:
    """The user's number, or what the sweep measured or the model says at the requests' lengths."""
    if basis.cost is not None:
        return _modelled_throughput(basis.cost, requests, basis.supposed)
    if basis.curve is None:
        return Throughput(given or 0.0, basis.num_gpus, "as given, for prompts of this length")
    lengths = [tokens for tokens, _ in requests]
    source = f"one request at a time: {basis.source}"
    found = measured_throughput(
        demand, basis.curve, num_gpus=basis.num_gpus, source=source, lengths=lengths, model=basis.beyond
    )
    said = (basis.doubt,) if basis.doubt and found.extrapolated else ()
    return replace(found, supposed=(*basis.supposed, *said))


def _modelled_throughput(
    cost: CostModel, requests: Sequence[Request], supposed: tuple[str, ...]
) -> Throughput:
    """Prompt tokens per second of one request after the other, with the bounds of the model."""
    lengths = Counter(tokens for tokens, _ in requests)

    def rate(pick: Pick) -> float:
        seconds = sum(count * cost.recompute_s(tokens, pick) for tokens, count in lengths.items())
        return sum(count * tokens for tokens, count in lengths.items()) / seconds

    machine = cost.label.partition(", loading from ")[0]
    return Throughput(
        rate("value"),
        cost.num_gpus,
        f"nothing was measured; one request at a time: {machine}",
        origin="modelled",
        bounds_tokens_per_s=(rate("high"), rate("low")) if cost.has_bounds[0] else None,
        supposed=supposed,
    )
