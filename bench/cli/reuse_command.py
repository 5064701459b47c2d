"""`reuse`: how often a request trace hits a cache of a given size, and what that is worth; modelled."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import AUTO
from bench.cli.options import Catalogue, option, out, require_unused
from bench.record.atomic_write import writing
from bench.record.plan import PlanError
from bench.record.units import parse_rate
from bench.record.validate import parsed

FIGURE_FORMS = (".png", ".svg", ".pdf")
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
    _require_outputs(csv, plot)
    _require_used(context, gpu=gpu, sweep=from_, priced=gpu or from_ or curve, model=model)
    _require_used_workload(context, instances=instances, trace=trace)
    bytes_per_s = parsed(parse_rate, bandwidth)
    # numpy, pandas and matplotlib take seconds, which --help and usage errors must not cost
    from bench.catalog.models.kv_capacity import format_states
    from bench.report.figures.reuse_figure import write_reuse_figure
    from bench.report.result_files import write_frame
    from bench.report.text.reuse_text import answer_lines, describe_trace
    from bench.reuse.hit_tables import simulate_question
    from bench.reuse.reuse_prices import Machine, find_prices, find_stored
    from bench.reuse.reuse_scenario import (
        Question,
        Routing,
        parse_capacities,
        parse_policies,
        parse_tiers,
        read_workload,
        require_fitting,
        require_unit,
    )

    machine = Machine(model, gpu, ssd, bytes_per_s, dtype, kv_dtype, engine)
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
    _print([describe_trace(workload.trace, workload.name)])
    table = simulate_question(question, workload)
    _print(answer_lines(table, question, workload.trace))
    _print(f"notice: {notice}" for notice in (*workload.trace.notices, *format_states(stored.states)))
    if csv is not None:
        with writing(csv):
            write_frame(csv, table.assign(origin=table.attrs["origin"]))
        _print([str(csv)])
    if plot is not None:
        with writing(plot):
            write_reuse_figure(plot, table, question.prices)
        _print([str(plot)])
    if question.prices is not None and not question.prices.conclusive:
        raise typer.Exit(SUSPECT)


def _require_outputs(csv: Path | None, plot: Path | None) -> None:
    """Stop before the work when an output has nowhere to go, or a form that is not known."""
    for path in (csv, plot):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise PlanError(
                f"{path}: cannot be written there: its folder is missing, or it is a folder itself"
            )
    if plot is not None and plot.suffix not in FIGURE_FORMS:
        raise PlanError(f"--plot {plot}: the name must end in one of {', '.join(FIGURE_FORMS)}")


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


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, markup=False)
