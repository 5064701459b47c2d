"""P*: the prefix length beyond which loading the next chunk is cheaper than computing it.

Measured directly when the run timed both arms with a suffix (what do the next tokens cost when the KV of the
prefix is in place?), else from slopes between neighbouring measured lengths of one round:

    slope(n_i, n_j) = (T(n_j) - T(n_i)) / (n_j - n_i)

which for a + b n + c n^2 is the cost of the chunk whose middle is (n_i + n_j) / 2.  Neighbours nearer than a
factor sqrt(2) are not used: their slope is mostly noise.
"""

import math
from collections.abc import Mapping

from bench.estimate.round_curves import RoundBand, band_of
from bench.estimate.valid_samples import Medians, pair_rounds

MIN_RATIO = math.sqrt(2) * 0.98  # lengths are rounded to chunks


def direct_band(recompute: Medians, load: Medians) -> RoundBand:
    """Band of log(recompute / load) of the next tokens, by prefix length."""
    return band_of(pair_rounds(recompute, load))


def slope_band(recompute: Medians, load: Medians, *, chunk_tokens: int) -> RoundBand:
    """Band of recompute's slope minus load's (seconds per token), by the prefix before the chunk."""
    rounds: dict[int, dict[int, tuple[float, float]]] = {}
    for tokens in recompute.keys() & load.keys():
        for number in recompute[tokens].keys() & load[tokens].keys():
            rounds.setdefault(number, {})[tokens] = (recompute[tokens][number], load[tokens][number])
    slopes = [_slopes(rounds[number], chunk_tokens) for number in sorted(rounds)]
    return band_of(slopes, axis="linear")


def _slopes(seconds: Mapping[int, tuple[float, float]], chunk_tokens: int) -> dict[float, float]:
    """Advantage of load in seconds per token, by prefix length, of one round."""
    lengths = sorted(seconds)
    found: dict[float, float] = {}
    left = 0
    for right in range(1, len(lengths)):
        low, high = lengths[left], lengths[right]
        if high < low * MIN_RATIO:
            continue
        prefix = max((low + high - chunk_tokens) / 2, 1.0)
        gap = [(seconds[high][arm] - seconds[low][arm]) / (high - low) for arm in (0, 1)]
        found[prefix] = gap[0] - gap[1]
        left = right
    return found
