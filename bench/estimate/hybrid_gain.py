"""Compare the hybrid arm with the better of recompute and load, by length."""

from collections.abc import Mapping, Sequence

import numpy as np

from bench.estimate.intervals import MIN_ROUNDS_FOR_MEDIAN, summarise_positive
from bench.estimate.paired_rounds import PairedRounds
from bench.estimate.results import BetterArm, HybridCurve, HybridPoint
from bench.estimate.valid_samples import Rounds, Table, round_medians, select_load
from bench.record.run import RunRecord


def make_curves(
    run: RunRecord, pairings: Sequence[PairedRounds], tables: Mapping[str, Table]
) -> tuple[HybridCurve, ...]:
    """One curve per hybrid series of the run, measured or not, from its samples in `tables`."""
    beside = {pairing.series: pairing for pairing in pairings}
    curves = []
    for series, info in run.series.items():
        if info.arm != "hybrid":
            continue
        load_series = str(info.settings.get("load_series", ""))
        selection = select_load(run, series, tables.get(series, {}))
        pairing = beside.get(load_series)
        points = tuple(
            _make_point(pairing, tokens, rounds) for tokens, rounds in sorted(selection.table.items())
        )
        curves.append(HybridCurve(series, load_series, points, info.skipped, selection.notices))
    return tuple(curves)


def _make_point(pairing: PairedRounds | None, tokens: int, rounds: Rounds) -> HybridPoint:
    hybrid_s = round_medians({tokens: rounds})[tokens]
    outcomes = [outcome for found in rounds.values() for outcome in found]
    fractions = [o.load_fraction for o in outcomes if o.load_fraction is not None]
    better, better_s = _find_better(pairing, tokens)
    both = sorted(hybrid_s.keys() & better_s.keys())
    few = ("few_rounds",) if len(both) < MIN_ROUNDS_FOR_MEDIAN else ()
    return HybridPoint(
        prefix_tokens=tokens,
        num_rounds=len(both),
        num_samples=len(outcomes),
        hybrid_s=summarise_positive(list(hybrid_s.values())),
        load_fraction=float(np.median(fractions)) if fractions else None,
        better_arm=better,
        speedup=summarise_positive([better_s[number] / hybrid_s[number] for number in both]),
        notices=tuple(dict.fromkeys((*(code for o in outcomes for code in o.notices), *few))),
    )


def _find_better(pairing: PairedRounds | None, tokens: int) -> tuple[BetterArm | None, Mapping[int, float]]:
    """The arm with the smaller median over rounds at this length, and its seconds by round.

    One arm for all rounds: the smaller of two noisy times in each round would be too small where both tie.
    """
    if pairing is None:
        return None, {}
    arms: dict[BetterArm, Mapping[int, float]] = {
        "recompute": pairing.recompute_s.get(tokens, {}),
        "load": pairing.load_s.get(tokens, {}),
    }
    if not all(arms.values()):
        return None, {}
    better = min(arms, key=lambda arm: float(np.median(list(arms[arm].values()))))
    return better, arms[better]
