"""What each further tier adds: the first tier alone, the first two, and so on, per round if asked; modelled."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from bench.predict.curve import Curve, FloatArray
from bench.reuse.savings import CostCurves, finish_seconds, outside_range
from bench.reuse.simulate_reuse import ORIGIN, most_hit_tokens
from bench.reuse.tier_hits import Tier, TierHits, simulate_tiers
from bench.reuse.trace import IntArray, Trace

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
    tiers: Sequence[Tier],
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
