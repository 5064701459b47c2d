"""`matrix`: the cost model over many settings, as CSV and figures."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import AUTO
from bench.cli.options import RESULTS, SCRATCH, Catalogue, option, out
from bench.record.atomic_write import writing
from bench.record.plan import PlanError

MODELS = "qwen3-8b,llama-3.1-8b,qwen3-32b,llama-3.1-70b,gpt-oss-120b,deepseek-v3"
GPUS = "l40s,a100-sxm-80gb,h100-sxm,h200-sxm,b200-sxm"
STORAGES = "ceph-rgw-s3,pm9a3,d7-ps1010,4x pm9a3,ethernet-400g,mooncake-4x200g"


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
    # pandas, scipy and matplotlib take seconds, which --help and usage errors must not cost
    from bench.predict.matrix import fill_matrix, read_rates, trace_curves
    from bench.report.figures.matrix_figure import count_missing
    from bench.report.matrix_files import read_measured, write_cells, write_curves

    modelled = fill_matrix(names[0], names[1], names[2], devices, dtype=dtype)
    measured, num_older = read_measured(results)
    cells = [*modelled, *measured]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_cells(folder, cells, num_storages=len(names[2]))
        curves, left_out = trace_curves(names[0], names[1], devices, dtype=dtype)
        write_curves(folder, names[0], curves, read_rates(devices))
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
