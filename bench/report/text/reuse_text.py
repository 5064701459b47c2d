"""The tables of a reuse simulation as lines of text; every figure is modelled, and says so."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from bench.estimate.crossover import format_factor
from bench.predict.prediction import answer
from bench.record.units import MISSING, count_of, format_bytes, format_tokens, printable, round_digits
from bench.report.figures.reuse_figure import LABELS, WHERE_FASTER, strategy_names
from bench.report.text.format import format_seconds_estimate
from bench.report.text.terminal import align
from bench.reuse.reuse_scenario import Question, Routing
from bench.reuse.savings import HitPrices
from bench.reuse.trace import Trace

ARMS = ("recompute", "load")
PER_HEADING = {
    "recompute_s": "recompute [s]",
    "always_load_s": "load every hit [s]",
    "where_faster_s": f"{WHERE_FASTER} [s]",
}


def describe_trace(trace: Trace, name: str) -> str:
    """What is simulated, in one line."""
    return (
        f"{name}: {count_of(trace.num_requests, 'request')},"
        f" {count_of(int(trace.input_tokens.sum()), 'input token')},"
        f" {count_of(len(trace.ids), 'block')} of {count_of(trace.block_tokens, 'token')}"
        f" ({format_tokens(trace.num_ids)} different)"
    )


def answer_lines(table: pd.DataFrame, question: Question, trace: Trace) -> Iterator[str]:
    """Hits by capacity or by tier, and savings if the question has prices."""
    prices, per_token = question.prices, question.stored.per_token
    yield from _format_routing(question.routing, tiers=bool(question.tiers))
    yield from (*describe_most(table), "")
    yield from depth_lines(table, per_token) if question.tiers else hit_lines(table, per_token)
    if prices is not None:
        yield ""
        yield from describe_prices(table, prices) if question.tiers else saving_lines(table, prices)
        yield from beyond_lines(prices, trace)


def _format_routing(routing: Routing, *, tiers: bool) -> Iterator[str]:
    """How requests reach instances, when there are several."""
    whose = "of each instance, or of the one pool when shared" if tiers else "of all together"
    if routing.num_instances > 1:
        yield f"{routing.num_instances} instances, routed by {routing.route}; a capacity is that {whose}"


def describe_most(table: pd.DataFrame) -> Iterator[str]:
    """The theoretical maximum, in total and for pools that share nothing."""
    most = table.attrs["max_hit_ratio"]
    yield f"maximum (one pool that never drops a block): hit ratio {most:.3f}"
    apart = table.attrs.get("pool_max_hit_ratios", {}).get("per-instance")
    if apart is not None:
        yield f"maximum of pools per instance that never drop a block: hit ratio {apart:.3f}"


def hit_lines(table: pd.DataFrame, kv_bytes_per_token: float | None) -> list[str]:
    """Hit ratio and share of the maximum by pool, policy and capacity."""
    heading = ["pool", "policy", "capacity [tokens]", "capacity", "hit ratio", "of the maximum"]
    rows = [heading]
    several = table["pool"].nunique() > 1
    for row in records(table):
        size = None if kv_bytes_per_token is None else row["capacity_tokens"] * kv_bytes_per_token
        rows.append(
            [
                row["pool"] if several else MISSING,
                LABELS[row["policy"]],
                format_tokens(row["capacity_tokens"]),
                format_bytes(size),
                f"{row['hit_ratio']:.3f}",
                _share(row["share_of_max"]),
            ]
        )
    return align(_without_missing_columns(rows))


def saving_lines(table: pd.DataFrame, prices: HitPrices) -> list[str]:
    """Prefill seconds saved by each strategy, and the GPU-seconds of the bound and of the best that loading can do."""
    names = strategy_names(prices)
    gpu = {"free_hit": "GPU-s if free", "where_faster": "GPU-s where faster"}
    heading = [
        "pool",
        "policy",
        "capacity [tokens]",
        *(f"{name} [s]" for name in names.values()),
        *gpu.values(),
    ]
    rows = [heading]
    several = table["pool"].nunique() > 1
    for row in records(table):
        saved = [row[f"{strategy}_saved_s"] for strategy in names]
        rows.append(
            [
                row["pool"] if several else MISSING,
                LABELS[row["policy"]],
                format_tokens(row["capacity_tokens"]),
                *(f"{round_digits(seconds)} ({seconds / row['recompute_s']:.1%})" for seconds in saved),
                *(round_digits(row[f"{strategy}_gpu_saved_s"]) for strategy in gpu),
            ]
        )
    return [*describe_prices(table, prices), "saved by", *align(_without_missing_columns(rows))]


def describe_prices(table: pd.DataFrame, prices: HitPrices) -> Iterator[str]:
    """Where the seconds come from, and how far they can be trusted."""
    low, high = prices.curves.measured_range or (None, None)
    yield f"prefill seconds, modelled without queueing or batching, from {printable(prices.source)}"
    share = float(table["extrapolated_share"].max()) if "extrapolated_share" in table and len(table) else 0.0
    if share > 0:
        yield (
            f"extrapolated: up to {share:.1%} of the requests have a prompt or a hit outside the curves'"
            f" {format_tokens(low)} to {format_tokens(high)} tokens"
        )
    if "recompute_s" in table and len(table) and "free_hit_saved_s" in table:
        yield f"recomputing everything takes {round_digits(float(table['recompute_s'].iloc[0]))} s of prefill"
    yield from (f"notice: {printable(notice)}" for notice in prices.notices)
    yield from (f"supposed: {printable(notice)}" for notice in prices.supposed)


def beyond_lines(prices: HitPrices, trace: Trace) -> Iterator[str]:
    """How far the prompts reach outside of the lengths measured, and the bounds of the model that is used there."""
    measured = prices.curves.measured_range
    if prices.beyond is None or measured is None:
        return
    longest, factor = int(trace.input_tokens.max()), format_factor(trace.input_tokens.tolist(), measured)
    if factor is not None:
        yield f"extrapolated: {factor}, by the model calibrated on the sweep"
    if longest > measured[1]:
        (point,) = answer(prices.beyond, (longest,)).points
        times = (format_seconds_estimate(one) for one in (point.recompute_s, point.load_s))
        yield f"the model at {longest:,} tokens: {', '.join(map(' '.join, zip(ARMS, times, strict=True)))}"


def depth_lines(table: pd.DataFrame, kv_bytes_per_token: float | None) -> list[str]:
    """Hit ratio by tiers (and round), what the lowest of them served and was written, and mean prefill seconds."""
    priced = [name for name in PER_HEADING if name in table]
    rounds = "round" in table
    written = "written" if kv_bytes_per_token else "written [tokens]"
    rows = [
        [
            *("tiers", *(["round"] if rounds else []), "hit ratio", "of the maximum", "lowest tier"),
            *([] if rounds else [written]),
            *(PER_HEADING[name] for name in priced),
        ]
    ]
    for row in records(table):
        tokens = row["written_tokens"]
        amount = format_bytes(tokens * kv_bytes_per_token) if kv_bytes_per_token else format_tokens(tokens)
        rows.append(
            [
                *(str(row["tiers"]), *([str(row["round"])] if rounds else [])),
                *(f"{row['hit_ratio']:.3f}", _share(row["share_of_max"]), f"{row['last_hit_ratio']:.3f}"),
                *([] if rounds else [amount]),
                *(round_digits(row[name]) for name in priced),
            ]
        )
    return align(rows)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows by column name."""
    return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]


def _share(share: float) -> str:
    return MISSING if math.isnan(share) else f"{share:.1%}"


def _without_missing_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows, the first a heading, without the columns in which every cell is missing."""
    kept = [i for i in range(len(rows[0])) if any(row[i] != MISSING for row in rows[1:])]
    return [[row[i] for i in kept] for row in rows]
