"""Derive the answer of one run: samples → valid → paired → per length, sweet spots, hybrids; then `tiers`.

1. Valid samples (`valid_samples`): an impossible row stops the analysis; samples with wrong bytes, or without the
   requested cache state, are excluded with a notice.
2. Pairs (`paired_rounds`): the unit is the round, one fresh process.  The advantage of load in round r at length n is
   D_r(n) = log(recompute_s / load_s), of medians within the round; a monotone cubic interpolates it over n.
3. Intervals (`intervals`): the median over rounds with a 95 % interval, from order statistics for 6 rounds or more,
   Student's t for 3 to 5, none below.
4. Per length (`per_length`, `bandwidth`): seconds, ratio, read rate, break-even rate, MFU, noise and drift.
5. Sweet spots (`crossover`, `sweet_spots`): C* is where the median of D is 0 between two lengths whose intervals
   exclude 0 with opposite signs; its interval is the set of lengths where the band contains 0.  P* is the same for the
   next chunk only; p95 and p99 (`tail_latency`) take a quantile of the load time and resample whole rounds.
"""

from collections.abc import Sequence

from bench.estimate.hybrid_gain import make_curves
from bench.estimate.paired_rounds import list_fits, make_pairings
from bench.estimate.per_length import make_points, notice_noise
from bench.estimate.results import Analysis
from bench.estimate.sweet_spots import make_spots
from bench.estimate.valid_samples import notice_depths, notice_unknown_series, tabulate
from bench.record.notices import Notice
from bench.record.run import RunRecord
from bench.record.sample import Sample


def analyse(run: RunRecord, samples: Sequence[Sample]) -> Analysis:
    """Points, sweet spots and fits of every load series of `run` against its recompute series."""
    pairings = make_pairings(run, samples)
    points = tuple(point for pairing in pairings for point in make_points(pairing))
    spots = tuple(spot for pairing in pairings for spot in make_spots(pairing))
    notices = [notice for spot in spots for notice in spot.notices]
    notices += [*notice_noise(points), *notice_depths(samples), *notice_unknown_series(run, samples)]
    if not pairings:
        notices.append(Notice(kind="no_load_series", detail="nothing to compare with recompute"))
    tables = {series: table for (arm, series, _), table in tabulate(samples).items() if arm == "hybrid"}
    hybrids = make_curves(run, pairings, tables)
    return Analysis(points, spots, list_fits(pairings), tuple(dict.fromkeys(notices)), hybrids)
