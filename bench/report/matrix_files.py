"""Files of `matrix`: modelled cells, measured ones of result folders, and curves of the bandwidth."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis
from bench.predict.matrix import BandwidthCurve, MatrixCell, matrix_frame, with_spot
from bench.record.atomic_write import write_bytes_safely
from bench.record.folder import find_results
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples
from bench.report.figures.matrix_figure import draw_curves, draw_matrix, png_of
from bench.report.notice_text import suspect_codes
from bench.report.result_files import write_frame
from bench.report.run_facts import device_name, load_series, storage_name
from bench.report.text.main_answer import asked_spot

CURVE_COLUMNS = (
    "origin",
    "model",
    "dtype",
    "device",
    "crossover_tokens",
    "read_bytes_per_s",
    "load_wins_beyond",
)


def write_cells(folder: Path, cells: Sequence[MatrixCell], *, num_storages: int) -> None:
    """Write matrix.csv and matrix.png."""
    size = (
        max(7.0, 4.5 + 0.9 * len({cell.storage for cell in cells})),  # title and key have to fit as well
        max(3.6, 1.6 + 0.3 * (len(cells) / num_storages + 2)),
    )
    write_frame(folder / "matrix.csv", matrix_frame(cells))
    write_bytes_safely(folder / "matrix.png", png_of(lambda axes: draw_matrix(axes, cells), size))


def read_measured(results: Path) -> tuple[list[MatrixCell], int]:
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


def write_curves(
    folder: Path, models: Sequence[str], curves: Sequence[BandwidthCurve], drives: Mapping[str, float]
) -> None:
    """Write bandwidth.csv and a figure for each model, with the rates of `drives` in bytes per second."""
    rows = [
        ("modelled", one.model, one.dtype, one.device, n, b, wins_beyond)
        for one in curves
        for n, b, wins_beyond in zip(one.tokens, one.bytes_per_s, one.wins_beyond, strict=True)
    ]
    write_frame(folder / "bandwidth.csv", pd.DataFrame(rows, columns=list(CURVE_COLUMNS)))
    for key in models:
        ours = [curve for curve in curves if curve.model == key]
        content = png_of(lambda axes, ours=ours: draw_curves(axes, ours, drives), (8.0, 5.4))
        write_bytes_safely(folder / f"bandwidth-{Path(key).name}.png", content)
