"""Modelled answers for each storage, of a described machine or of a machine that a sweep measured."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.resolve import Model, resolve_model
from bench.estimate.crossover import EXTRAPOLATE
from bench.predict.bounded import Bounded
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.memory_fit import length_notice, memory_notice, memory_of
from bench.predict.prediction import ModelledAnswer, answer, full_attention_points
from bench.predict.rates import find_storage_rate
from bench.predict.sweep_model import fit_sweep
from bench.record.run import read_run
from bench.record.samples_csv import read_samples

LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
MAX_LENGTH = 131_072
Storage = tuple[str | None, float | None]  # a name in the catalogue, or bytes per second


def answer_machine(
    model: Model,
    spec: MachineSpec,
    devices: Devices,
    *,
    storages: Sequence[Storage],
    lengths: Sequence[int] | None,
    chunk_tokens: int,
) -> list[ModelledAnswer]:
    """The answer for each storage in the place of the one in `spec`.

    Args:
        lengths: in tokens; None for powers of two up to the model's context.
    """
    longest = model.geometry.max_position_embeddings or MAX_LENGTH
    lengths = lengths or [n for n in LENGTHS if n <= longest] or [max(longest, 2)]
    answers = []
    for name, rate in storages:
        storage = None if name is None or name.lower() == "dram" else name
        cost = build_model(model, replace(spec, storage=storage, bytes_per_s=rate), devices)
        found = answer(cost, lengths, chunk_tokens=chunk_tokens, longest=longest)
        notices = (
            *found.notices,
            *length_notice(model.geometry, max(lengths)),
            *memory_notice(cost, found.searched[1], memory_of(devices, spec.gpu)),
        )
        full = full_attention_points(cost, lengths, kv_dtype=model.choose_kv_dtype(spec.kv_dtype))
        answers.append(replace(found, notices=notices, full_attention=full))
    return answers


def answer_sweep(
    result: Path,
    devices: Devices,
    *,
    series: str | None,
    storages: Sequence[Storage],
    lengths: Sequence[int] | None,
    chunk_tokens: int,
) -> list[ModelledAnswer]:
    """The answer of the model calibrated on a sweep, for each storage; without one, for the measured storage.

    Args:
        lengths: in tokens; None for the measured ones.
    """
    run = read_run(result)
    geometry = resolve_model(run.plan.model).geometry
    measured = fit_sweep(run, read_samples(result)[0], geometry, series=series)
    models = []
    for name, rate in storages:
        if rate is not None:
            models.append(measured.with_storage(f"one of {rate / 1e9:g} GB/s", Bounded(rate)))
        else:
            known, spread, said = find_storage_rate(devices, name or "")
            models.append(measured.with_storage(known, spread, *said))
    lengths = lengths or measured.recompute.lengths
    longest = int(EXTRAPOLATE * measured.measured[1])
    answers = [
        answer(one, lengths, chunk_tokens=chunk_tokens, longest=longest, measured=measured.measured)
        for one in models or [measured]
    ]
    said = length_notice(geometry, max(lengths))
    return [replace(found, notices=(*found.notices, *said)) for found in answers]
