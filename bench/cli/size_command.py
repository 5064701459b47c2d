"""`size`: how many GPUs, how much storage and what cost, with and without reuse."""

from pathlib import Path
from typing import Annotated

import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import AUTO
from bench.cli.options import Catalogue, Json, option, require_unused
from bench.cli.outputs import Csv, Plot, require_places, show_tables
from bench.predict.machine_spec import MachineSpec
from bench.record.units import parse_bytes, parse_duration, parse_rate
from bench.record.validate import parsed
from bench.report.figures.sizing_figure import write_sizing_figure
from bench.report.text.sizing_text import sizing_text
from bench.sizing.demand import find_demand
from bench.sizing.deployment import Prices, Sizing
from bench.sizing.size_basis import read_basis, read_throughput
from bench.sizing.size_scenario import (
    find_drive,
    find_media,
    find_rate,
    find_stored,
    read_requests,
)
from bench.sizing.sizing_tables import size_tables

OF_A_MACHINE = ("num_gpus", "dtype", "engine")


def size(
    context: typer.Context,
    model: Annotated[str | None, option("catalogue key, config.json or hub name")] = None,
    throughput: Annotated[
        float | None, option("prompt tokens/s measured at this length, without reuse")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="model and throughput of this result folder")
    ] = None,
    gpu: Annotated[
        str | None, option("throughput of --model on this GPU of the catalogue, modelled and not measured")
    ] = None,
    num_gpus: Annotated[int, option("with --gpu: tensor-parallel GPUs that run the model together")] = 1,
    dtype: Annotated[str, option("with --gpu: of the weights, bfloat16, float16, fp8")] = "bfloat16",
    engine: Annotated[str, option("with --gpu: vllm, or kernels for a bound without an engine")] = "vllm",
    measured_gpus: Annotated[
        int | None, option("GPUs that measured it together; default: --tp, or the ranks of --from")
    ] = None,
    utilisation: Annotated[float, option("share of the measured throughput to plan with")] = 1.0,
    requests_per_s: Annotated[float | None, option("requests to sustain")] = None,
    target: Annotated[float | None, option("prompt tokens/s to sustain, in place of requests")] = None,
    input_tokens: Annotated[int | None, option("tokens of a prompt, mean")] = None,
    hit_ratio: Annotated[float | None, option("hit tokens / prompt tokens, from 0 to 1")] = None,
    trace: Annotated[
        Path | None, option("prompts and hits of a Mooncake-format trace against --capacity")
    ] = None,
    block_tokens: Annotated[int, option("tokens that one hash id of the trace stands for")] = 512,
    skip_bad: Annotated[
        bool, option("leave out lines of the trace that cannot be read, and count them")
    ] = False,
    policy: Annotated[str, option("of the trace's cache: lru, lfu, fifo, optimal")] = "lru",
    kept_output_tokens: Annotated[float, option("generated tokens of a request whose KV is stored")] = 0.0,
    kv_dtype: Annotated[
        str | None, option("dtype of the KV cache; default: the sweep's, the checkpoint's, else bfloat16")
    ] = None,
    tp: Annotated[
        int | None,
        option("tensor-parallel ranks; each stores and loads what it keeps; default: 1, or those of --from"),
    ] = None,
    capacity: Annotated[str | None, option("bytes of the KV store, such as 10TB")] = None,
    retention: Annotated[
        str | None, option("how long KV is kept, such as 24h, in place of --capacity")
    ] = None,
    ssd: Annotated[str | None, option("a drive of the catalogue")] = None,
    drive_capacity: Annotated[str | None, option("of one drive, such as 7.68TB")] = None,
    drive_read: Annotated[str | None, option("sustained read rate of one drive, such as 12GB/s")] = None,
    dwpd: Annotated[float | None, option("rated drive writes per day, of the host")] = None,
    tbw: Annotated[
        str | None, option("rated bytes written by the host, such as 14PB, in place of --dwpd")
    ] = None,
    warranty_years: Annotated[float, option("years that the rating holds for")] = 5.0,
    write_amplification: Annotated[
        float, option("times that a byte written counts against the rating; 1: rated for the host's writes")
    ] = 1.0,
    price_gpu_hour: Annotated[float | None, option("of one GPU")] = None,
    price_dram_gb: Annotated[float | None, option("of a GB (1e9 bytes) of DRAM")] = None,
    price_ssd_gb: Annotated[float | None, option("of a GB of SSD")] = None,
    lifetime_years: Annotated[float | None, option("over which DRAM and SSD are written off")] = None,
    occupancy: Annotated[float, option("share of what is bought that holds KV")] = 1.0,
    reuse_per_day: Annotated[
        float | None, option("reuses of a stored token; default: from --capacity")
    ] = None,
    catalogue: Catalogue = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """GPUs, storage and cost of a target throughput, with and without reuse; modelled from one rate."""
    require_places(csv, plot)
    _refuse_unused(context, gpu=gpu, ssd=ssd, trace=trace, prices=(price_dram_gb, price_ssd_gb))
    devices, machine = read_devices(catalogue), None
    if gpu is not None:
        machine = MachineSpec(gpu, num_gpus, dtype, kv_dtype or AUTO, engine)
    basis = read_basis(
        model,
        from_,
        throughput=throughput,
        machine=machine,
        devices=devices,
        kv_dtype=kv_dtype,
        tp=tp,
        measured_gpus=measured_gpus,
    )
    drive = find_drive(
        ssd,
        devices,
        capacity_bytes=parsed(parse_bytes, drive_capacity),
        read_bytes_per_s=parsed(parse_rate, drive_read),
        dwpd=dwpd,
        tbw_bytes=parsed(parse_bytes, tbw),
        warranty_years=warranty_years,
    )
    if drive is None:
        require_unused(context, ("warranty_years", "write_amplification"), "is of a drive: add --ssd NAME")
        if price_dram_gb is None and price_ssd_gb is None:
            require_unused(context, ("occupancy",), "is of a drive or of priced memory: add --ssd or a price")
    media = find_media(
        dram_gb=price_dram_gb, ssd_gb=price_ssd_gb, lifetime_years=lifetime_years, occupancy=occupancy
    )
    requests = read_requests(
        basis.cache,
        input_tokens=input_tokens,
        hit_ratio=hit_ratio,
        trace=trace,
        policy=policy,
        block_tokens=block_tokens,
        skip_bad=skip_bad,
        capacity_bytes=parsed(parse_bytes, capacity),
    )
    rate_per_s, rate_how = find_rate(requests, requests_per_s, target)
    demand = find_demand(
        requests.listed,
        basis.cache,
        basis.work,
        requests_per_s=rate_per_s,
        kept_output_tokens=kept_output_tokens,
    )
    stored_bytes, stored_how = find_stored(requests, demand, parsed(parse_duration, retention))
    sizing = Sizing(
        demand=demand,
        measured=read_throughput(basis, demand, requests.listed, given=throughput),
        utilisation=utilisation,
        work_unit=basis.work_unit,
        stored_bytes=stored_bytes,
        stored_how=stored_how,
        rate_how=rate_how,
        drive=drive,
        write_amplification=write_amplification,
        occupancy=occupancy,
        prices=Prices(price_gpu_hour, media, reuse_per_day),
    )
    tables = size_tables(sizing, basis.cache, basis.work)
    show_tables(tables, text=sizing_text, draw=write_sizing_figure, csv=csv, plot=plot, as_json=as_json)


def _refuse_unused(
    context: typer.Context,
    *,
    gpu: str | None,
    ssd: str | None,
    trace: Path | None,
    prices: tuple[float | None, float | None],
) -> None:
    """Stop on options that nothing would read."""
    if gpu is None:
        require_unused(context, OF_A_MACHINE, "describes the machine of --gpu: add --gpu and --model")
    else:
        require_unused(context, ("tp", "measured_gpus"), "is what --num-gpus says of --gpu: leave it out")
    if gpu is None and ssd is None:
        require_unused(context, ("catalogue",), "has devices, and none is named: add --gpu or --ssd")
    if trace is None:
        require_unused(context, ("policy", "block_tokens", "skip_bad"), "is of --trace: add --trace FILE")
    if prices == (None, None):
        why = "is of priced memory: add --price-dram-gb or --price-ssd-gb"
        require_unused(context, ("lifetime_years", "reuse_per_day"), why)
