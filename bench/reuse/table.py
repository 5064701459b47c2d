"""Hit ratio against capacity, for policies and pools, and what the hits are worth; every figure is modelled."""

from collections.abc import Iterator, Sequence

import pandas as pd

from bench.reuse.pools import Job, Pool, Runner, join_parts, pool_jobs, run_here, shared_pool
from bench.reuse.savings import Prices, price_hits
from bench.reuse.simulate_reuse import ORIGIN, most_hit_tokens, require_policy
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
    prices: Prices | None = None,
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
    jobs: list[Job] = []
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
