"""`reuse`: how often a request trace hits a cache of a given size, and what that is worth; modelled."""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.kv_capacity import format_states
from bench.catalog.models.resolve import AUTO
from bench.cli.options import Catalogue, option, out, require_unused
from bench.record.units import parse_rate
from bench.record.validate import parsed
from bench.report.figures.reuse_figure import write_reuse_figure
from bench.report.result_files import write_frame, writing
from bench.report.text.reuse_text import (
    beyond_lines,
    depth_lines,
    describe_most,
    describe_prices,
    describe_trace,
    hit_lines,
    saving_lines,
)
from bench.reuse.fleet import open_fleet
from bench.reuse.hit_tables import choose_capacities, depth_table, hit_table
from bench.reuse.pools import run_here
from bench.reuse.reuse_prices import Machine, find_fetches, find_prices, find_stored
from bench.reuse.reuse_scenario import (
    Question,
    Routing,
    Workload,
    find_instances,
    format_routing,
    make_pools,
    parse_capacities,
    parse_policies,
    parse_tiers,
    read_workload,
    require_fitting,
    require_outputs,
    require_unit,
)

SUSPECT = 3


def reuse(
    context: typer.Context,
    trace: Annotated[Path | None, typer.Argument(help="Mooncake-format JSON lines, plain or gzip")] = None,
    capacity: Annotated[
        str, option("of all instances together: tokens (1e6,3e6) or bytes (100GB,1TB); auto: 1-2-5 series")
    ] = "auto",
    policy: Annotated[str, option("lru, lfu, fifo, optimal; several with commas")] = "lru",
    unit: Annotated[
        str, option("tokens: a partial last block takes its tokens; blocks: it takes a whole block")
    ] = "tokens",
    block_tokens: Annotated[int, option("tokens that one hash id of the trace stands for")] = 512,
    merge: Annotated[int, option("simulate blocks so many times as large")] = 1,
    skip_bad: Annotated[bool, option("leave out lines that cannot be read, and count them")] = False,
    model: Annotated[str | None, option("whose KV is kept: for capacities in bytes, and with --gpu")] = None,
    kv_dtype: Annotated[
        str, option("of --model's KV: bfloat16, fp8 …; auto: the checkpoint's, else bfloat16")
    ] = AUTO,
    bytes_per_token: Annotated[float | None, option("KV bytes of a token, in place of --model")] = None,
    instances: Annotated[int, option("serving instances: pools of their own against one shared pool")] = 1,
    route: Annotated[str, option("how requests reach instances: session or round-robin")] = "session",
    session_blocks: Annotated[int, option("requests equal in so many first blocks are one session")] = 2,
    tier: Annotated[
        list[str] | None,
        option("NAME=CAPACITY[:through|back|selective][:shared][:RATE], from the top; once for each tier"),
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="price the hits with the curves of this result folder")
    ] = None,
    series: Annotated[str | None, option("the load series of --from, when it has several")] = None,
    curve: Annotated[
        Path | None, option("price the hits with a CSV: prefix_tokens,recompute_s,load_s[,first_token_s]")
    ] = None,
    gpu: Annotated[
        str | None, option("price the hits with the cost model: this GPU of the catalogue running --model")
    ] = None,
    ssd: Annotated[str | None, option("with --gpu: drive or network of the catalogue, or dram")] = None,
    bandwidth: Annotated[str | None, option("with --gpu: rate of the storage, such as 10GB/s")] = None,
    dtype: Annotated[str, option("with --gpu: of the weights, bfloat16, float16, fp8")] = "bfloat16",
    engine: Annotated[str, option("with --gpu: vllm, or kernels for a bound without an engine")] = "vllm",
    catalogue: Catalogue = None,
    gpus: Annotated[
        int | None,
        option(
            "GPUs that run the model together, for GPU-seconds, --gpu and the bytes that all of them keep of"
            " --model's KV; default: 1, or the ranks of --from"
        ),
    ] = None,
    generate: Annotated[
        str | None,
        option("made-up conversations: users=50,rounds=10,system=1000,history=20000,question=50,answer=100"),
    ] = None,
    csv: Annotated[Path | None, option("write the table to this file")] = None,
    plot: Annotated[Path | None, option("draw it into this file: .png, .svg or .pdf")] = None,
    ray: Annotated[
        str | None, option("run pools and policies on Ray: local, or the address of a cluster")
    ] = None,
) -> None:
    """Hit ratio of a request trace against the capacity of a cache, and what the hits are worth; modelled."""
    require_outputs(csv, plot)
    _require_used(context, gpu=gpu, sweep=from_, priced=gpu or from_ or curve, model=model)
    _require_used_workload(context, instances=instances, trace=trace)
    machine = Machine(model, gpu, ssd, parsed(parse_rate, bandwidth), dtype, kv_dtype, engine)
    prices = find_prices(from_, curve, machine, read_devices(catalogue), series=series, num_gpus=gpus)
    stored = find_stored(model, bytes_per_token, kv_dtype=kv_dtype, sweep=from_, num_gpus=gpus)
    question = Question(
        stored=stored,
        prices=prices,
        unit=require_unit(unit),
        policies=parse_policies(policy),
        capacities_tokens=parse_capacities(capacity, stored.per_token),
        tiers=parse_tiers(tier or (), stored.per_token),
        routing=Routing(instances, route, session_blocks),
        fleet=ray,
    )
    require_fitting(question, plot, is_made_up=generate is not None)
    workload = read_workload(trace, generate, block_tokens=block_tokens, merge=merge, skip_bad=skip_bad)
    _format_message([describe_trace(workload.trace, workload.name)])
    table = _show_tiers(question, workload) if question.tiers else _show_capacities(question, workload)
    _format_message(
        f"notice: {notice}" for notice in (*workload.trace.notices, *format_states(stored.states))
    )
    if csv is not None:
        with writing(csv):
            write_frame(csv, table.assign(origin=table.attrs["origin"]))
        _format_message([str(csv)])
    if plot is not None:
        with writing(plot):
            write_reuse_figure(plot, table, question.prices)
        _format_message([str(plot)])
    if question.prices is not None and not question.prices.conclusive:
        raise typer.Exit(SUSPECT)


def _require_used(
    context: typer.Context, *, gpu: str | None, sweep: Path | None, priced: object, model: str | None
) -> None:
    """Stop on options that nothing would read."""
    if gpu is None:
        names = ("ssd", "bandwidth", "dtype", "engine", "catalogue")
        require_unused(context, names, "describes the machine of --gpu: add --gpu and --model")
    if sweep is None:
        require_unused(context, ("series",), "chooses a load series of --from: add --from RESULT")
    if priced is None and model is None:
        why = (
            "counts GPU-seconds, which need prices, and KV of --model: add --gpu, --from, --curve or --model"
        )
        require_unused(context, ("gpus",), why)
    if model is None:
        require_unused(context, ("kv_dtype",), "is of --model: add --model")


def _require_used_workload(context: typer.Context, *, instances: int, trace: Path | None) -> None:
    """Stop on options about instances and files where there are none."""
    if instances == 1:
        why = "is of several instances: add --instances N"
        require_unused(context, ("route", "session_blocks"), why)
    if trace is None:
        require_unused(context, ("skip_bad",), "is of a trace in a file: name one")


def _format_message(lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, markup=False)


def _show_capacities(question: Question, workload: Workload) -> pd.DataFrame:
    """Print hit ratios, and savings where there are prices; the table."""
    trace, routing = workload.trace, question.routing
    with nullcontext(run_here) if question.fleet is None else open_fleet(question.fleet) as run:
        table = hit_table(
            trace,
            question.capacities_tokens or choose_capacities(trace),
            question.policies,
            unit=question.unit,
            pools=make_pools(trace, find_instances(workload, routing), routing.num_instances),
            prices=question.prices,
            run=run,
        )
    _format_message(format_routing(routing, tiers=False))
    _format_message([*describe_most(table), "", *hit_lines(table, question.stored.per_token)])
    if question.prices is not None:
        _format_message(["", *saving_lines(table, question.prices), *beyond_lines(question.prices, trace)])
    return table


def _show_tiers(question: Question, workload: Workload) -> pd.DataFrame:
    """Print what each further tier adds, per round for made-up conversations; the table."""
    prices = question.prices
    table = depth_table(
        workload.trace,
        [tier for tier, _ in question.tiers],
        rounds=workload.rounds,
        instances=find_instances(workload, question.routing),
        curves=None if prices is None else prices.curves,
        fetches_s=find_fetches(question.tiers, prices, question.stored),
    )
    _format_message(format_routing(question.routing, tiers=True))
    _format_message([*describe_most(table), "", *depth_lines(table, question.stored.per_token)])
    if prices is not None:
        _format_message(["", *describe_prices(table, prices), *beyond_lines(prices, workload.trace)])
    return table
