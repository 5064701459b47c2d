"""What speaks against the numbers of one length: few rounds, noise, drift, others on the drive."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bench.analyse.drift import drifts
from bench.analyse.stats import MIN_ROUNDS_FOR_INTERVAL, MIN_ROUNDS_FOR_MEDIAN
from bench.arms.case import Outcome

NOISY = 0.10  # robust standard deviation of log seconds between rounds from which a case is called noisy
MFU_SURPRISE = 1.05
SHARED = (
    1.10  # bytes that the drive gave for each one that went to the load, from which others were reading it
)


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
        part = arm if arm == "recompute" else _find_cause(load_s, first_tokens_s)
        if _spread(logs) > NOISY:
            found.append(f"noisy_{part}")
        if drifts(logs):
            found.append(f"drift_{part}")
    return tuple(found)


def _shares_drive(outcomes: Sequence[Outcome]) -> bool:
    """Whether the drive gave more bytes than the load asked for, as by the median sample that counted both."""
    shares = [
        outcome.device_bytes / outcome.process_bytes
        for outcome in outcomes
        if outcome.process_bytes and outcome.device_bytes is not None
    ]
    return bool(shares) and float(np.median(shares)) > SHARED


def _find_cause(load_s: Mapping[int, float], first_tokens_s: Mapping[int, float]) -> str:
    """The part of a load that most of its variance between rounds comes from; "load" where its parts are unknown."""
    if not load_s or load_s.keys() - first_tokens_s.keys():
        return "load"
    totals = np.array([load_s[number] for number in sorted(load_s)])
    steps = np.array([first_tokens_s[number] for number in sorted(load_s)])
    around = totals - totals.mean()
    return "first_token" if float(around @ steps) > float(around @ (totals - steps)) else "reading"


def _spread(logs: Sequence[float]) -> float:
    """Robust standard deviation between rounds; 0 for fewer than three."""
    if len(logs) < 3:
        return 0.0
    return 1.4826 * float(np.median(np.abs(np.asarray(logs) - np.median(logs))))
