"""What each further tier adds: the first tier alone, the first two, and so on, per round if asked; modelled.

Hit ratio against capacity, for policies and pools, and what the hits are worth; every figure is modelled.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import pandas as pd

from bench.predict.curve import Curve, FloatArray
from bench.reuse.eviction import ORIGIN, most_hit_tokens, require_policy
from bench.reuse.fleet import open_fleet
from bench.reuse.pools import Pool, PoolJob, Runner, join_parts, pool_jobs, run_here, shared_pool
from bench.reuse.reuse_prices import find_fetches
from bench.reuse.reuse_scenario import Question, Workload, find_instances, make_pools
from bench.reuse.savings import CostCurves, HitPrices, finish_seconds, outside_range, price_hits
from bench.reuse.tier_hits import CacheTier, TierHits, simulate_tiers
from bench.reuse.trace import IntArray, Trace, Unit

COLUMNS = ["pool", "policy", "capacity_tokens", "hit_ratio", "share_of_max"]
STEPS = (1, 2, 5)


def choose_capacities(trace: Trace) -> tuple[int, ...]:
    """A rising 1-2-5 series of capacities in tokens, three decades up to one that holds the whole trace."""
    most = int(trace.weights("blocks").sum()) * trace.block_tokens
    series = [step * 10**power for power in range(19) for step in STEPS]
    end = next(index for index, capacity in enumerate(series) if capacity >= most)
    return tuple(series[max(0, end - 9) : end + 1])


def hit_table(
    trace: Trace,
    capacities_tokens: Sequence[int],
    policies: Sequence[str] = ("lru",),
    *,
    unit: Unit = "tokens",
    pools: Sequence[Pool] = (),
    prices: HitPrices | None = None,
    run: Runner = run_here,
) -> pd.DataFrame:
    """One row per policy, pool and capacity: COLUMNS, and those of `price_hits` when prices are given; modelled.

    `hit_ratio` is hit tokens / input tokens; `share_of_max` compares it with one pool that never drops a
    block, and is missing when nothing can ever hit.  `table.attrs` says origin, unit, notices, the maximum,
    and `pool_max_hit_ratios`: what each kind of pool reaches when it never drops a block.

    Args:
        trace: requests in order.
        capacities_tokens: of all instances together.
        policies: of POLICIES.
        unit: see `simulate`.
        pools: how the capacity is cut; one shared pool when empty.
        prices: what recomputing and loading cost.
        run: where the jobs are run.

    Raises:
        ValueError: unknown policy.
    """
    names = [require_policy(name) for name in policies]
    cuts = tuple(pools) or (shared_pool(trace),)
    total = int(trace.input_tokens.sum())
    most = {pool.name: sum(int(most_hit_tokens(part.trace).sum()) for part in pool.parts) for pool in cuts}
    best = most["shared"] if "shared" in most else int(most_hit_tokens(trace).sum())
    jobs: list[PoolJob] = []
    for name in names:
        for pool in cuts:
            jobs += pool_jobs(pool, name, capacities_tokens=capacities_tokens, unit=unit)
    results = iter(run(jobs))
    rows = []
    for name in names:
        for pool in cuts:
            for capacity, hits in _each_capacity(trace, pool, results, capacities_tokens=capacities_tokens):
                worth = {} if prices is None else price_hits(trace.input_tokens, hits, prices)
                hit = int(hits.sum())
                rows.append(
                    (pool.name, name, capacity, hit / total, hit / best if best else None, *worth.values())
                )
    priced = [] if prices is None or not rows else list(worth)
    table = pd.DataFrame(rows, columns=[*COLUMNS, *priced])
    table["share_of_max"] = table["share_of_max"].astype("float64")
    table.attrs.update(
        origin=ORIGIN,
        unit=unit,
        max_hit_ratio=best / total,
        pool_max_hit_ratios={name: tokens / total for name, tokens in most.items()},
        notices=trace.notices,
    )
    return table


def _each_capacity(
    trace: Trace, pool: Pool, results: Iterator[list[IntArray]], *, capacities_tokens: Sequence[int]
) -> Iterator[tuple[int, IntArray]]:
    joined = join_parts(pool, results, trace.num_requests)
    return zip(capacities_tokens, joined, strict=True)


SECONDS = ("recompute_s", "always_load_s", "where_faster_s")
EXTRAPOLATED = "extrapolated_share"


def request_seconds(
    hits: TierHits, curves: CostCurves, fetches_s: Mapping[str, Curve]
) -> dict[str, FloatArray]:
    """(num_requests,) engine-free seconds to the first token, for each of SECONDS, and EXTRAPOLATED; modelled.

    What the first tier holds is in place.  `always_load_s` brings in every hit of the lower tiers,
    `where_faster_s` only those of requests for which that is faster than computing them.
    """
    n = hits.input_tokens
    recompute_s = curves.recompute_s(n.astype(np.float64))
    without_s = finish_seconds(n, hits.hit_tokens[:, 0], curves)
    with_s = finish_seconds(n, hits.hit_tokens.sum(axis=1), curves)
    for column, name in list(enumerate(hits.names))[1:]:
        with_s = with_s + fetches_s[name](hits.hit_tokens[:, column].astype(np.float64))
    return {
        "recompute_s": recompute_s,
        "always_load_s": with_s,
        "where_faster_s": np.minimum(with_s, without_s),
        EXTRAPOLATED: outside_range(curves, n, hits.hit_tokens.sum(axis=1)).astype(np.float64),
    }


def depth_table(
    trace: Trace,
    tiers: Sequence[CacheTier],
    *,
    rounds: IntArray | None = None,
    instances: IntArray | None = None,
    curves: CostCurves | None = None,
    fetches_s: Mapping[str, Curve] | None = None,
) -> pd.DataFrame:
    """A row for the first tier alone, for the first two, and so on; with `rounds` one for each round; modelled.

    Columns: tiers (such as "gpu+dram"), round (from 1, with `rounds` only), hit_ratio, share_of_max,
    last_hit_ratio (the share that the lowest of the tiers served), written_tokens (to the lowest of the tiers,
    over the whole trace), and with `curves` SECONDS (the mean over requests, no queueing) and EXTRAPOLATED.

    Args:
        trace: requests in order.
        tiers: from the top; what the first one holds is in place and costs nothing.
        rounds: (num_requests,) the round of each request, from 0.
        instances: (num_requests,) as for `simulate_tiers`.
        curves: cost of recomputing.
        fetches_s: seconds to bring n tokens from each lower tier, by its name (0 for 0 tokens), without the
            first-token step.
    """
    fetches = fetches_s or {}
    missing = [tier.name for tier in tiers[1:] if curves is not None and tier.name not in fetches]
    if missing:
        raise ValueError(f"no load curve for tier {', '.join(missing)}; fetches_s has {sorted(fetches)}")
    most = most_hit_tokens(trace)
    tables = []
    for count in range(1, len(tiers) + 1):
        hits = simulate_tiers(trace, tiers[:count], instances=instances)
        seconds = {} if curves is None else request_seconds(hits, curves, fetches)
        requests = pd.DataFrame(
            {
                "round": 0 if rounds is None else rounds + 1,
                "hits": hits.hit_tokens.sum(axis=1),
                "last": hits.hit_tokens[:, -1],
                "inputs": hits.input_tokens,
                "most": most,
                **seconds,
            }
        )
        table = _by_round(requests, list(seconds))
        table.insert(0, "tiers", "+".join(hits.names))
        table["written_tokens"] = int(hits.written_tokens[-1])
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    if rounds is None:
        table = table.drop(columns="round")
    table.attrs.update(origin=ORIGIN, max_hit_ratio=int(most.sum()) / int(trace.input_tokens.sum()))
    return table


def _by_round(requests: pd.DataFrame, seconds: list[str]) -> pd.DataFrame:
    groups = requests.groupby("round")
    sums = groups[["hits", "last", "inputs", "most"]].sum()
    found = pd.DataFrame(
        {
            "hit_ratio": sums["hits"] / sums["inputs"],
            "share_of_max": (sums["hits"] / sums["most"]).where(sums["most"] > 0),
            "last_hit_ratio": sums["last"] / sums["inputs"],
        }
    )
    return found.join(groups[seconds].mean() if seconds else found[[]]).reset_index()


def simulate_question(question: Question, workload: Workload) -> pd.DataFrame:
    """Hits by capacity, or by tier if the question has tiers; savings if it has prices."""
    trace, prices = workload.trace, question.prices
    instances = find_instances(workload, question.routing)
    if question.tiers:
        return depth_table(
            trace,
            [tier for tier, _ in question.tiers],
            rounds=workload.rounds,
            instances=instances,
            curves=None if prices is None else prices.curves,
            fetches_s=find_fetches(question.tiers, prices, question.stored),
        )
    with nullcontext(run_here) if question.fleet is None else open_fleet(question.fleet) as run:
        return hit_table(
            trace,
            question.capacities_tokens or choose_capacities(trace),
            question.policies,
            unit=question.unit,
            pools=make_pools(trace, instances, question.routing.num_instances),
            prices=prices,
            run=run,
        )
