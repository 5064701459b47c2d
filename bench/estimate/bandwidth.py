"""Read rate of a load, its break-even with recompute, and C* at other rates.

    bytes_per_s            = num_bytes / (load_s - fixed_s)
    break_even_bytes_per_s = num_bytes / (recompute_s - fixed_s)

`fixed_s` does not depend on the read rate: `first_token_s` + `open_s`, else the `a` of the fit a + b n.
"""

from collections.abc import Sequence

import numpy as np

from bench.estimate.crossover import decide
from bench.estimate.results import Estimate
from bench.estimate.round_curves import band_of
from bench.estimate.valid_samples import Medians, Table, pair_rounds
from bench.record.sample import Outcome

SCALES = (0.5, 0.8, 1.25, 2.0)


def fixed_seconds(outcomes: Sequence[Outcome], intercept_s: float) -> float:
    """Median fixed seconds of one round's loads."""
    fixed = [
        fixed_of(o, intercept_s) for o in outcomes if o.first_token_s is not None or o.open_s is not None
    ]
    return float(np.median(fixed)) if fixed else intercept_s


def fixed_of(outcome: Outcome, otherwise_s: float) -> float:
    """Fixed seconds of one load: as recorded, else `otherwise_s`."""
    if outcome.first_token_s is None and outcome.open_s is None:
        return otherwise_s
    return (outcome.first_token_s or 0.0) + (outcome.open_s or 0.0)


def break_even_bytes_per_s(num_bytes: int | None, recompute_s: float, fixed_s: float) -> float | None:
    """Read rate at which load ties with recompute; None if nothing is read or fixed costs exceed recompute."""
    if not num_bytes or recompute_s <= fixed_s:
        return None
    return num_bytes / (recompute_s - fixed_s)


def scale_bandwidth(load: Medians, fixed: Medians, scale: float) -> dict[int, dict[int, float]]:
    """Seconds by length and round, were the read rate `scale` times as high."""
    return {
        tokens: {
            number: min(fixed[tokens][number], seconds) + max(seconds - fixed[tokens][number], 0.0) / scale
            for number, seconds in rounds.items()
        }
        for tokens, rounds in load.items()
    }


def find_sensitivity(recompute: Medians, load: Medians, fixed: Medians) -> dict[str, Estimate | None]:
    """C* at each of SCALES times the bandwidth; None unless exactly one crossing is decided."""
    found: dict[str, Estimate | None] = {}
    for scale in SCALES:
        rounds = pair_rounds(recompute, scale_bandwidth(load, fixed, scale))
        crossings = decide(band_of(rounds)).crossings if rounds else ()
        found[f"{scale:g}x"] = crossings[0].tokens if len(crossings) == 1 else None
    return found


def fixed_by_round(table: Table, intercept_s: float) -> dict[int, dict[int, float]]:
    """`fixed_seconds` by length and round."""
    return {
        tokens: {number: fixed_seconds(outcomes, intercept_s) for number, outcomes in rounds.items()}
        for tokens, rounds in table.items()
    }
