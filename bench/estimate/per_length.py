"""Both arms at one length with intervals, and doubts: few rounds, noise, drift, interference on the drive.

Drift is tested in two ways, each requiring a change above DRIFT; steady rounds pass either at most once in 200 times:

    trend   Kendall's rank correlation with the round number, and the Theil-Sen line
    jump    the split of the rounds with the largest t, corrected for the number of splits; a rank test of its two
            parts must confirm it, since one slow round next to a normal one gives a large t
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import stdtr
from scipy.stats import kendalltau, mannwhitneyu, theilslopes  # type: ignore[attr-defined]

from bench.estimate.bandwidth import break_even_bytes_per_s, fixed_of
from bench.estimate.intervals import (
    MIN_ROUNDS_FOR_INTERVAL,
    MIN_ROUNDS_FOR_MEDIAN,
    Floats,
    summarise_positive,
)
from bench.estimate.paired_rounds import PairedRounds
from bench.estimate.results import Point
from bench.estimate.tail_latency import tail_seconds
from bench.estimate.valid_samples import Rounds
from bench.record.notices import Notice
from bench.record.sample import Outcome

DRIFT = 0.10  # log change over the rounds, above which a case drifts
MIN_ROUNDS = 6  # fewer rounds are in order by chance too often
CHANCE = 0.005  # false-positive rate of either test
MIN_PART = 2  # rounds on each side of a change


def drifts(logs: Sequence[float]) -> bool:
    """True when log seconds, one per round in order, changed significantly and by more than DRIFT."""
    if len(logs) < MIN_ROUNDS:
        return False
    return _trends(logs) or _jumps(logs)


def _trends(logs: Sequence[float]) -> bool:
    numbers = np.arange(len(logs))
    change = float(theilslopes(logs, numbers).slope) * (len(logs) - 1)
    return abs(change) > DRIFT and float(kendalltau(numbers, logs).pvalue) < CHANCE


def _jumps(logs: Sequence[float]) -> bool:
    values, total = np.asarray(logs), len(logs)
    splits = range(MIN_PART, total - MIN_PART + 1)
    scores = [_score(values[:split], values[split:]) for split in splits]
    best = int(np.argmax(scores))
    first, last = values[: splits[best]], values[splits[best] :]
    if abs(float(np.median(last) - np.median(first))) <= DRIFT:
        return False
    if 2 * float(stdtr(total - 2, -scores[best])) * len(splits) >= CHANCE:
        return False
    clearest = 2 / math.comb(total, len(first))  # no order of so few rounds is less likely
    return float(mannwhitneyu(first, last).pvalue) <= max(CHANCE / len(splits), clearest * (1 + 1e-9))


def _score(first: Floats, last: Floats) -> float:
    """Student's t of the difference of two parts, without its sign."""
    inside = float(np.sum((first - first.mean()) ** 2) + np.sum((last - last.mean()) ** 2))
    spread = math.sqrt(inside / (len(first) + len(last) - 2) * (1 / len(first) + 1 / len(last)))
    return abs(float(last.mean() - first.mean())) / max(spread, 1e-12)


NOISY = 0.10  # robust standard deviation of log seconds between rounds, above which a case is noisy
MFU_SURPRISE = 1.05
SHARED = 1.10  # bytes read by the drive per byte requested, above which other processes read too
SHARED_SAMPLES = 0.25  # of the samples of a length
STANDS_OUT = 2.0  # a part is blamed if it varies this many times more than the other


def find_doubts(
    outcomes: Sequence[Outcome],
    recompute_s: Mapping[int, float],
    load_s: Mapping[int, float],
    *,
    first_tokens_s: Mapping[int, float],
    mfu: float | None,
) -> tuple[str, ...]:
    """Codes of the notices of one length, each once; `first_tokens_s` has only rounds that recorded the step."""
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
    """Whether the drive read more bytes than requested in SHARED_SAMPLES of the samples with both counters."""
    shares = [
        outcome.device_bytes / outcome.process_bytes
        for outcome in outcomes
        if outcome.process_bytes and outcome.device_bytes is not None
    ]
    return bool(shares) and sum(share > SHARED for share in shares) >= SHARED_SAMPLES * len(shares)


def _parts_of(load_s: Mapping[int, float], first_tokens_s: Mapping[int, float]) -> dict[str, list[float]]:
    """Seconds of both parts of a load by round; empty if a round lacks them."""
    if load_s.keys() - first_tokens_s.keys():
        return {}
    numbers = sorted(load_s)
    return {
        "reading": [load_s[number] - first_tokens_s[number] for number in numbers],
        "first_token": [first_tokens_s[number] for number in numbers],
    }


def _blame(parts: Mapping[str, Sequence[float]], measure: Callable[[Sequence[float]], float]) -> str | None:
    """The part that varies STANDS_OUT times more than the other; None without one."""
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


def make_points(pairing: PairedRounds) -> tuple[Point, ...]:
    """One point per length measured by either arm."""
    pairing = _as_asked(pairing)
    lengths = sorted(pairing.recompute.keys() | pairing.load.table.keys())
    return tuple(_make_point(pairing, tokens) for tokens in lengths)


def _as_asked(pairing: PairedRounds) -> PairedRounds:
    """With a suffix only, points are the seconds of the next tokens."""
    if pairing.recompute or pairing.load.table:
        return pairing
    return replace(pairing, recompute=pairing.recompute_next, load=pairing.load_next)


def _make_point(pairing: PairedRounds, tokens: int) -> Point:
    recompute = pairing.recompute.get(tokens, {})
    load = pairing.load.table.get(tokens, {})
    recompute_s = pairing.recompute_s.get(tokens, {})
    load_s = pairing.load_s.get(tokens, {})
    both = sorted(recompute_s.keys() & load_s.keys())
    fixed_s = pairing.fixed_s.get(tokens, {})
    outcomes = [o for rounds in (recompute, load) for found in rounds.values() for o in found]
    num_bytes = _median([o.num_bytes for o in _flat(load)])
    recompute_estimate = summarise_positive(list(recompute_s.values()))
    mfu = _find_mfu(recompute, pairing.gemm_flops_per_s)
    seconds = {number: [o.seconds for o in found] for number, found in load.items()}
    first_tokens_s = _first_tokens(load)
    # by the estimator of the load it is part of
    first_token = summarise_positive([step_s for step_s in first_tokens_s.values() if step_s])
    return Point(
        series=pairing.series,
        prefix_tokens=tokens,
        num_rounds=len(both) or max(len(recompute_s), len(load_s)),
        num_samples=len(outcomes),
        recompute_s=recompute_estimate,
        load_s=summarise_positive(list(load_s.values())),
        ratio=summarise_positive([recompute_s[number] / load_s[number] for number in both]),
        load_p95_s=tail_seconds(seconds, "p95"),
        load_p99_s=tail_seconds(seconds, "p99"),
        first_token_s=None if first_token is None else first_token.value,
        num_bytes=None if num_bytes is None else int(num_bytes),
        bytes_per_s=summarise_positive(_rates(load, fixed_s)),
        break_even_bytes_per_s=None
        if recompute_estimate is None or not fixed_s or num_bytes is None
        else break_even_bytes_per_s(
            int(num_bytes), recompute_estimate.value, float(np.median(list(fixed_s.values())))
        ),
        mfu=mfu,
        recompute_scaled=any(_is_scaled(o) for o in _flat(recompute)),
        load_scaled=any(o.first_token_s is not None and _is_scaled(o) for o in _flat(load)),
        notices=find_doubts(outcomes, recompute_s, load_s, first_tokens_s=first_tokens_s, mfu=mfu),
    )


def _flat(rounds: Rounds) -> list[Outcome]:
    return [outcome for found in rounds.values() for outcome in found]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _first_tokens(load: Rounds) -> dict[int, float]:
    """Median seconds of the first-token step, by round that recorded it."""
    medians = {number: _median(o.first_token_s for o in found) for number, found in load.items()}
    return {number: step_s for number, step_s in medians.items() if step_s is not None}


def _is_scaled(outcome: Outcome) -> bool:
    measured, total = outcome.measured_layers, outcome.total_layers
    return measured is not None and total is not None and measured < total


def _rates(load: Rounds, fixed_s: Mapping[int, float]) -> list[float]:
    """Payload bytes per second of transfer, one per round with any."""
    rates = []
    for number, outcomes in sorted(load.items()):
        transfers = [(o.num_bytes, o.seconds - fixed_of(o, fixed_s[number])) for o in outcomes if o.num_bytes]
        found = [num_bytes / seconds for num_bytes, seconds in transfers if seconds > 0]
        if found:
            rates.append(float(np.median(found)))
    return rates


def _find_mfu(recompute: Rounds, gemm_flops_per_s: Mapping[int, float]) -> float | None:
    """Median over rounds of flops / (seconds x that round's gemm rate)."""
    shares = []
    for number, outcomes in recompute.items():
        rates = [o.flops / o.seconds for o in outcomes if o.flops is not None]
        if rates and number in gemm_flops_per_s:
            shares.append(float(np.median(rates)) / gemm_flops_per_s[number])
    return _median(shares)


def notice_noise(points: Sequence[Point]) -> list[Notice]:
    """One notice per series and kind of noise or drift, with its lengths."""
    lengths: dict[tuple[str, str], list[int]] = {}
    for point in points:
        for kind in point.notices:
            if kind.startswith(("noisy_", "drift_")):
                lengths.setdefault((kind, point.series), []).append(point.prefix_tokens)
    return [
        Notice(kind=kind, series=series, detail=f"at {', '.join(map(str, found))} tokens")
        for (kind, series), found in lengths.items()
    ]
