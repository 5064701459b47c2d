"""What speaks against the numbers of one length: few rounds, noise, drift, others on the drive."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bench.estimate.drift import drifts
from bench.estimate.intervals import MIN_ROUNDS_FOR_INTERVAL, MIN_ROUNDS_FOR_MEDIAN
from bench.record.sample import Outcome

NOISY = 0.10  # robust standard deviation of log seconds between rounds from which a case is called noisy
MFU_SURPRISE = 1.05
SHARED = 1.10  # bytes that the drive gave for each one that the load asked for, beyond which others read too
SHARED_SAMPLES = 0.25  # of the samples of a length, from which it is said
STANDS_OUT = 2.0  # times what the other part of a load varies, from which one is named


def find_doubts(
    outcomes: Sequence[Outcome],
    recompute_s: Mapping[int, float],
    load_s: Mapping[int, float],
    *,
    first_tokens_s: Mapping[int, float],
    mfu: float | None,
) -> tuple[str, ...]:
    """Codes of what is noticed of one length, each once.

    Args:
        outcomes: of both arms, all rounds.
        recompute_s, load_s: median seconds by round.
        first_tokens_s: of the load, median seconds of its first-token step by round; of rounds that know it.
        mfu: of recompute; None where unknown.
    """
    found = list(dict.fromkeys(code for outcome in outcomes for code in outcome.notices))
    rounds = min(len(recompute_s), len(load_s))
    if MIN_ROUNDS_FOR_INTERVAL <= rounds < MIN_ROUNDS_FOR_MEDIAN:
        found.append("few_rounds")
    if mfu is not None and mfu > MFU_SURPRISE:
        found.append("mfu_above_one")
    if _shares_drive(outcomes):
        found.append("drive_shared")
    for arm, medians in (("recompute", recompute_s), ("load", load_s)):
        logs = [math.log(medians[number]) for number in sorted(medians)]
        parts = {} if arm == "recompute" else _parts_of(load_s, first_tokens_s)
        if _spread(logs) > NOISY:
            found.append(f"noisy_{_blame(parts, _spread) or arm}")
        if drifts(logs):
            found.append(f"drift_{_blame(parts, _change) or arm}")
    return tuple(found)


def _shares_drive(outcomes: Sequence[Outcome]) -> bool:
    """Whether the drive gave more bytes than the load asked for, in a quarter of the samples that counted both."""
    shares = [
        outcome.device_bytes / outcome.process_bytes
        for outcome in outcomes
        if outcome.process_bytes and outcome.device_bytes is not None
    ]
    return bool(shares) and sum(share > SHARED for share in shares) >= SHARED_SAMPLES * len(shares)


def _parts_of(load_s: Mapping[int, float], first_tokens_s: Mapping[int, float]) -> dict[str, list[float]]:
    """Seconds of both parts of a load, by round; none where a round does not know them."""
    if load_s.keys() - first_tokens_s.keys():
        return {}
    numbers = sorted(load_s)
    return {
        "reading": [load_s[number] - first_tokens_s[number] for number in numbers],
        "first_token": [first_tokens_s[number] for number in numbers],
    }


def _blame(parts: Mapping[str, Sequence[float]], measure: Callable[[Sequence[float]], float]) -> str | None:
    """The part whose seconds vary far more than the other's do; None where neither does."""
    ranked = sorted(parts, key=lambda part: measure(parts[part]))
    if not ranked or measure(parts[ranked[-1]]) <= STANDS_OUT * measure(parts[ranked[0]]):
        return None
    return ranked[-1]


def _spread(values: Sequence[float]) -> float:
    """Robust standard deviation between rounds; 0 for fewer than three."""
    if len(values) < 3:
        return 0.0
    return 1.4826 * float(np.median(np.abs(np.asarray(values) - np.median(values))))


def _change(values: Sequence[float]) -> float:
    """How far the last third of the rounds lies from the first."""
    third = max(1, len(values) // 3)
    return abs(float(np.median(values[-third:]) - np.median(values[:third])))
