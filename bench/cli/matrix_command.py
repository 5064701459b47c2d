"""`matrix`: the cost model over many settings, as CSV and figures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import resolve_model
from bench.cli.options import RESULTS, SCRATCH, Catalogue, option, out
from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.matrix import (
    AUTO,
    MAX_LENGTH,
    BandwidthCurve,
    MatrixCell,
    choose_dtype,
    choose_ranks,
    fill_matrix,
    format_no_ranks,
    matrix_frame,
    trace_bandwidth,
    with_spot,
)
from bench.predict.rates import find_storage_rate
from bench.record.atomic_write import write_bytes_safely
from bench.record.folder import find_results
from bench.record.plan import PlanError
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples
from bench.report.figures.matrix_figure import count_missing, draw_curves, draw_matrix, png_of
from bench.report.notice_text import suspect_codes
from bench.report.result_files import write_frame, writing
from bench.report.run_facts import device_name, load_series, storage_name
from bench.report.text.main_answer import asked_spot

MODELS = "qwen3-8b,llama-3.1-8b,qwen3-32b,llama-3.1-70b,gpt-oss-120b,deepseek-v3"
GPUS = "l40s,a100-sxm-80gb,h100-sxm,h200-sxm,b200-sxm"
STORAGES = "ceph-rgw-s3,pm9a3,d7-ps1010,4x pm9a3,ethernet-400g,mooncake-4x200g"
CURVE_COLUMNS = (
    "origin",
    "model",
    "dtype",
    "device",
    "crossover_tokens",
    "read_bytes_per_s",
    "load_wins_beyond",
)


def matrix(
    models: Annotated[str, option("models, with commas")] = MODELS,
    gpus: Annotated[str, option("GPUs of the catalogue, with commas")] = GPUS,
    ssds: Annotated[str, option("drives, networks and stores of the catalogue, with commas")] = STORAGES,
    dtype: Annotated[
        str,
        option("of the weights: bfloat16, float16, fp8; auto: fp8 where published and the GPU has the units"),
    ] = AUTO,
    results: Annotated[Path, option("sweeps whose measured answers go beside the modelled ones")] = RESULTS,
    folder: Annotated[Path, typer.Option("--out", help="folder for the files")] = SCRATCH / "matrix",
    catalogue: Catalogue = None,
) -> None:
    """C* over models, GPUs and storages, modelled, with the measured answers of `results` beside them."""
    devices = read_devices(catalogue)
    names = [_names(text, what) for text, what in ((models, "--models"), (gpus, "--gpus"), (ssds, "--ssds"))]
    if results != RESULTS and not results.is_dir():
        raise PlanError(f"--results {results}: there is no such folder")
    modelled = fill_matrix(names[0], names[1], names[2], devices, dtype=dtype)
    measured, num_older = _measured(results)
    cells = [*modelled, *measured]
    size = (
        max(7.0, 4.5 + 0.9 * len({cell.storage for cell in cells})),  # title and key have to fit as well
        max(3.6, 1.6 + 0.3 * (len(cells) / len(names[2]) + 2)),
    )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_frame(folder / "matrix.csv", matrix_frame(cells))
        write_bytes_safely(folder / "matrix.png", png_of(lambda axes: draw_matrix(axes, cells), size))
        curves, left_out = _trace_curves(names[0], names[1], devices, dtype=dtype)
        _write_curves(folder, names[0], curves, devices)
    out.print(
        f"modelled: {len(modelled)} cells; measured: {len(measured)} from {results}"
        + (f"; older sweeps of the same settings left out: {num_older}" if num_older else ""),
        markup=False,
    )
    for count, reason in count_missing(cells):
        out.print(f"cannot be computed: {count} of the modelled cells: {reason}", markup=False)
    for reason, count in Counter(left_out).most_common():
        out.print(
            f"no curve of bandwidth: {count} of {len(names[0]) * len(names[1])}: {reason}", markup=False
        )
    out.print(str(folder), markup=False)


def _names(text: str, what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise PlanError(f"{what} names nothing")
    return names


def _measured(results: Path) -> tuple[list[MatrixCell], int]:
    """Cells of the newest sweep of each setting, and how many older ones gave way to them."""
    cells: list[MatrixCell] = []
    for folder in reversed(find_results(results)):
        run, (samples, _) = read_run(folder), read_samples(folder)
        if samples and not run.plan.suffix_tokens:
            cells += _cells_of(run, samples, analyse(run, samples))
    newest = {cell.place: cell for cell in cells}
    return list(newest.values()), len(cells) - len(newest)


def _cells_of(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> Iterator[MatrixCell]:
    """A cell for each load series, by what it loads from; those of one storage by their series too."""
    name = f"{run.plan.model} ({run.plan.dtype})"
    spots = {series: asked_spot(run, analysis, series) for series in load_series(run, analysis)}
    storages = {series: storage_name(run, series) for series, spot in spots.items() if spot is not None}
    shared = Counter(storages.values())
    for series, storage in storages.items():
        spot = spots[series]
        if spot is not None and spot.kind == "whole":
            place = storage if shared[storage] == 1 else f"{storage} ({series})"
            suspects = suspect_codes(run, samples, analysis, series=series)
            unfinished = () if run.state == "complete" else (f"the sweep is {run.state}",)
            cell = MatrixCell("measured", name, device_name(run), place, run.plan.tensor_parallel)
            yield with_spot(replace(cell, suspect=", ".join((*suspects, *unfinished))), spot)


def _trace_curves(
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


def _write_curves(
    folder: Path, models: Sequence[str], curves: Sequence[BandwidthCurve], devices: Devices
) -> None:
    rows = [
        ("modelled", one.model, one.dtype, one.device, n, b, wins_beyond)
        for one in curves
        for n, b, wins_beyond in zip(one.tokens, one.bytes_per_s, one.wins_beyond, strict=True)
    ]
    write_frame(folder / "bandwidth.csv", pd.DataFrame(rows, columns=list(CURVE_COLUMNS)))
    drives = {}
    for ssd in devices.ssds.values():
        if ssd.read_bytes_per_s or ssd.measured_read_bytes_per_s:
            drives[ssd.key] = find_storage_rate(devices, ssd.key)[1].value
    for key in models:
        ours = [curve for curve in curves if curve.model == key]
        content = png_of(lambda axes, ours=ours: draw_curves(axes, ours, drives), (8.0, 5.4))
        write_bytes_safely(folder / f"bandwidth-{Path(key).name}.png", content)
