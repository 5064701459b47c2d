"""`size`: how many GPUs, how much storage and what cost, with and without reuse."""

from pathlib import Path
from typing import Annotated

import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.cli.options import Json, option
from bench.cli.outputs import Csv, Plot, require_places, show_tables
from bench.report.figures.sizing_figure import write_sizing_figure
from bench.report.text.sizing_text import sizing_text
from bench.sizing.demand import find_demand, find_rate, find_stored, list_requests
from bench.sizing.deployment import Prices, Sizing
from bench.sizing.drives import find_drive
from bench.sizing.size_scenario import read_scenario
from bench.sizing.sizing_tables import size_tables
from bench.sizing.throughput import read_basis, read_throughput
from bench.sizing.tokencost import find_media


def size(
    scenario: Annotated[
        Path,
        typer.Argument(help="TOML file with requests, store, drive and prices; see docs/examples/size.toml"),
    ],
    model: Annotated[str | None, option("catalogue key, config.json or hub name")] = None,
    throughput: Annotated[
        float | None, option("prompt tokens/s measured at this length, without reuse")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="model and throughput of this result folder")
    ] = None,
    gpu: Annotated[str | None, option("throughput of --model on this GPU of the catalogue, modelled")] = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """GPUs, storage and cost of a target throughput, with and without reuse; modelled from one rate."""
    require_places(csv, plot)
    asked = read_scenario(scenario, model=model, tokens_per_s=throughput, sweep=from_, gpu=gpu)
    devices = read_devices(asked.catalogue)
    basis = read_basis(asked.throughput, devices)
    drive = None if asked.drive is None else find_drive(asked.drive, devices)
    media = find_media(asked.prices, asked.store.occupancy)
    requests = list_requests(asked.requests, basis.cache, asked.store.capacity)
    rate_per_s, rate_how = find_rate(asked.requests, requests)
    demand = find_demand(
        requests.listed,
        basis.cache,
        basis.work,
        requests_per_s=rate_per_s,
        kept_output_tokens=asked.requests.kept_output_tokens,
    )
    stored_bytes, stored_how = find_stored(asked.store, requests, demand)
    sizing = Sizing(
        demand=demand,
        measured=read_throughput(basis, demand, requests.listed),
        utilisation=asked.throughput.utilisation,
        work_unit=basis.work_unit,
        stored_bytes=stored_bytes,
        stored_how=stored_how,
        rate_how=rate_how,
        drive=drive,
        write_amplification=1.0 if asked.drive is None else asked.drive.write_amplification,
        occupancy=asked.store.occupancy,
        prices=Prices(asked.prices.gpu_hour, media, asked.prices.reuse_per_day),
    )
    tables = size_tables(sizing, basis.cache, basis.work)
    show_tables(tables, text=sizing_text, draw=write_sizing_figure, csv=csv, plot=plot, as_json=as_json)
