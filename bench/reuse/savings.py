"""What hits are worth: seconds to the first token and GPU-seconds, modelled from cost curves.

For a request of n input tokens of which h hit:

    T(n)      recompute_s: prefill of n tokens
    L(h)      load_s: bring h tokens in, and the first-token step
    F(n)      first_token_s: that step alone
    finish    max(T(n) - T(h), F(n)) for h > 0: the rest of the prompt is still computed, at least one step, and
              at most T(n)

    recompute          T(n)
    free hit           finish                     what a hit ratio alone promises
    always load        L(h) - F(h) + finish
    beyond crossover   the same where h reaches the crossover (none given: where it is faster), else T(n)
    where faster       the lesser of always load and T(n), for each request: the best that loading or not can do

A crossover C* compares L(h) with T(h), so it charges the first-token step to the load; a prompt that goes on behind
its hit takes that step either way.  `where faster` charges it to neither, and never costs more than the others.

No queueing and no batching: these are engine-free seconds, not the TTFT that a client sees.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.predict.cost_model import TimeModel
from bench.predict.curve import Curve, FloatArray
from bench.reuse.eviction import ORIGIN
from bench.reuse.trace import IntArray

STRATEGIES = ("recompute", "free_hit", "always_load", "beyond_crossover", "where_faster")


def _no_seconds(tokens: FloatArray) -> FloatArray:
    return np.zeros_like(tokens)


@dataclass(frozen=True, slots=True)
class CostCurves:
    """The two arms as functions of the number of tokens.

    Args:
        recompute_s: prefill of n tokens.
        load_s: load of n tokens with the first-token step, as the load arm measures it.
        first_token_s: the first-token step after n tokens; nothing when `load_s` does not contain it.
        measured_range: lengths that the curves were measured at; outside, rows say `extrapolated`.
    """

    recompute_s: Curve
    load_s: Curve
    first_token_s: Curve = _no_seconds
    measured_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class HitPrices:
    """What recomputing and loading cost, and from which prefix on prefixes are loaded.

    Args:
        curves: seconds of both arms.
        crossover_tokens: C*; infinite when loading never wins, 0 when it always does; None loads each prefix
            that the curves say is faster to load.
        source: where the curves come from, for people.
        num_gpus: GPUs that run the model together.
        conclusive: False when C* was asked for and could not be told.
        notices: what makes them suspect.
        modelled: whether curves and C* are a cost model's.
        supposed: what that model had to suppose.
        beyond: the model that gives the curves outside of the lengths measured, if one does.
    """

    curves: CostCurves
    crossover_tokens: float | None
    source: str
    num_gpus: int = 1
    conclusive: bool = True
    notices: tuple[str, ...] = ()
    modelled: bool = False
    supposed: tuple[str, ...] = ()
    beyond: TimeModel | None = None


def fetch_seconds(hit_tokens: IntArray | FloatArray, curves: CostCurves) -> FloatArray:
    """Seconds to bring the hits in, the first-token step taken off; 0 for none."""
    h = hit_tokens.astype(np.float64)
    return np.where(h > 0, np.maximum(curves.load_s(h) - curves.first_token_s(h), 0.0), 0.0)


def finish_seconds(input_tokens: IntArray, hit_tokens: IntArray, curves: CostCurves) -> FloatArray:
    """Seconds to compute what did not hit: at least one step, at most the whole prompt."""
    n, h = input_tokens.astype(np.float64), hit_tokens.astype(np.float64)
    whole = curves.recompute_s(n)
    rest = np.maximum(whole - curves.recompute_s(h), np.minimum(curves.first_token_s(n), whole))
    return np.where(hit_tokens > 0, rest, whole)


def _require_hits(input_tokens: IntArray, hit_tokens: IntArray) -> None:
    if input_tokens.shape != hit_tokens.shape:
        raise ValueError(f"{hit_tokens.shape} hit tokens for {input_tokens.shape} requests")
    if ((hit_tokens < 0) | (hit_tokens > input_tokens)).any():
        raise ValueError("hit tokens must lie between 0 and the input tokens of their request")


def outside_range(curves: CostCurves, input_tokens: IntArray, hit_tokens: IntArray) -> NDArray[np.bool_]:
    """(num_requests,) True where a prompt or a hit is longer or shorter than what was measured."""
    if curves.measured_range is None:
        return np.zeros(len(input_tokens), dtype=np.bool_)
    low, high = curves.measured_range
    hit_outside = (hit_tokens > 0) & ((hit_tokens < low) | (hit_tokens > high))
    return (input_tokens < low) | (input_tokens > high) | hit_outside


def request_costs(
    input_tokens: IntArray,
    hit_tokens: IntArray,
    *,
    curves: CostCurves,
    crossover_tokens: float | None = None,
) -> pd.DataFrame:
    """Seconds of each request under each strategy; modelled.

    Columns: input_tokens, hit_tokens, loaded (beyond the crossover), faster (loaded so), extrapolated, finish_s, and
    `<strategy>_s` for each of STRATEGIES.

    Args:
        input_tokens: (num_requests,) of each prompt.
        hit_tokens: (num_requests,) that the cache holds.
        curves: what recomputing and loading cost.
        crossover_tokens: prefix length from which on prefixes are loaded; None loads where it is faster.
    """
    _require_hits(input_tokens, hit_tokens)
    recompute_s = curves.recompute_s(input_tokens.astype(np.float64))
    finish_s = finish_seconds(input_tokens, hit_tokens, curves)
    always_s = fetch_seconds(hit_tokens, curves) + finish_s
    faster = (hit_tokens > 0) & (always_s < recompute_s)
    loaded = faster if crossover_tokens is None else (hit_tokens > 0) & (hit_tokens >= crossover_tokens)
    table = pd.DataFrame(
        {
            "input_tokens": input_tokens,
            "hit_tokens": hit_tokens,
            "loaded": loaded,
            "faster": faster,
            "extrapolated": outside_range(curves, input_tokens, hit_tokens),
            "finish_s": finish_s,
            "recompute_s": recompute_s,
            "free_hit_s": finish_s,
            "always_load_s": always_s,
            "beyond_crossover_s": np.where(loaded, always_s, recompute_s),
            "where_faster_s": np.where(faster, always_s, recompute_s),
        }
    )
    table.attrs["origin"] = ORIGIN
    return table


def total_costs(costs: pd.DataFrame, num_gpus: int = 1) -> pd.DataFrame:
    """One row per strategy: seconds, saved_s, saved_share, gpu_s, gpu_saved_s, extrapolated_share; modelled.

    `gpu_s` counts the seconds in which the GPUs compute, times `num_gpus`; while KV comes in they are free
    for other requests.

    Args:
        costs: of `request_costs`.
        num_gpus: GPUs that run the model together.
    """
    base_s = float(costs["recompute_s"].sum())
    busy_s = {
        "recompute": base_s,
        "free_hit": float(costs["finish_s"].sum()),
        "always_load": float(costs["finish_s"].sum()),
        "beyond_crossover": float(costs["finish_s"].where(costs["loaded"], costs["recompute_s"]).sum()),
        "where_faster": float(costs["finish_s"].where(costs["faster"], costs["recompute_s"]).sum()),
    }
    rows = []
    for strategy in STRATEGIES:
        seconds = float(costs[f"{strategy}_s"].sum())
        gpu_s = busy_s[strategy] * num_gpus
        saved_s = base_s - seconds
        rows.append((strategy, seconds, saved_s, saved_s / base_s, gpu_s, base_s * num_gpus - gpu_s))
    columns = ["strategy", "seconds", "saved_s", "saved_share", "gpu_s", "gpu_saved_s"]
    table = pd.DataFrame(rows, columns=columns)
    table["extrapolated_share"] = float(costs["extrapolated"].mean())
    table.attrs["origin"] = ORIGIN
    return table


def price_hits(input_tokens: IntArray, hit_tokens: IntArray, prices: HitPrices) -> dict[str, float]:
    """Totals over all requests, by column of a table: `<strategy>_saved_s` and `_gpu_saved_s`; modelled."""
    costs = request_costs(
        input_tokens, hit_tokens, curves=prices.curves, crossover_tokens=prices.crossover_tokens
    )
    totals = total_costs(costs, prices.num_gpus)
    found = {"recompute_s": float(costs["recompute_s"].sum())}
    columns = (totals[name] for name in ("strategy", "saved_s", "gpu_saved_s"))
    for strategy, saved_s, gpu_saved_s in zip(*columns, strict=True):
        if strategy != "recompute":
            found[f"{strategy}_saved_s"] = float(saved_s)
            found[f"{strategy}_gpu_saved_s"] = float(gpu_saved_s)
    found["extrapolated_share"] = float(costs["extrapolated"].mean())
    return found
