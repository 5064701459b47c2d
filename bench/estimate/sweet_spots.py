"""Sweet spots of one load series: C* of the p50, p95 and p99 load time, and P*."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from bench.estimate.bandwidth import find_sensitivity
from bench.estimate.crossover import CrossoverReading, decide, describe_disagreement, extrapolate
from bench.estimate.intervals import MIN_ROUNDS_FOR_INTERVAL, MIN_ROUNDS_FOR_MEDIAN
from bench.estimate.paired_rounds import PairedRounds
from bench.estimate.results import Crossing, Kind, SweetSpot
from bench.estimate.round_curves import AdvantageCurve, RoundCurves, direct_band, slope_band
from bench.estimate.tail_latency import MIN_SAMPLES, enough_samples, pair_table, tail_band
from bench.estimate.valid_samples import Selection, Table, round_medians
from bench.record.notices import Notice

COARSE_BRACKET = 1.9  # neighbours about a power of two apart: the end of a tier between them would go unseen
NO_ROUND = "no round measured both arms at the same length"

Statistic = Literal["p50", "p95", "p99"]


def make_spots(pairing: PairedRounds) -> tuple[SweetSpot, ...]:
    """C* of p50 and p95, of p99 where two lengths have the samples for it, and P*."""
    tails: list[Statistic] = ["p95"]
    if len(enough_samples(pair_table(pairing.recompute_s, pairing.load.table), "p99")) >= 2:
        tails.append("p99")
    whole = [_whole_spot(pairing), *(_tail_spot(pairing, statistic) for statistic in tails)]
    return (*whole, _marginal_spot(pairing))


def round_up(tokens: float, chunk_tokens: int) -> int:
    """Tokens rounded up to whole chunks: what a serving stack's knob takes.

    The value is rounded, not the upper end of its interval: who wants to be sure reads the interval.
    """
    return math.ceil(tokens / chunk_tokens - 1e-9) * chunk_tokens


def _export(crossings: Sequence[Crossing], chunk_tokens: int) -> int | None:
    """The last crossing, if load wins beyond it and it was measured."""
    if not crossings or crossings[-1].extrapolated or not crossings[-1].load_wins_beyond:
        return None
    return round_up(crossings[-1].tokens.value, chunk_tokens)


def _whole_spot(pairing: PairedRounds) -> SweetSpot:
    missing = _describe_whole_missing(pairing)
    reading = decide(pairing.band) if not missing else CrossoverReading("inconclusive", reason=missing)
    beyond = _extrapolate(pairing) if reading.verdict.endswith("always_wins") else None
    crossings = reading.crossings if beyond is None else (beyond,)
    return SweetSpot(
        series=pairing.series,
        kind="whole",
        statistic="p50",
        verdict=reading.verdict,
        measured_range=pairing.measured_range,
        crossings=crossings,
        export_tokens=_export(crossings, pairing.chunk_tokens),
        sensitivity=find_sensitivity(pairing.recompute_s, pairing.load_s, pairing.fixed_s),
        reason=reading.reason,
        notices=(*pairing.load.notices, *_whole_notices(pairing, reading, crossings)),
    )


def _extrapolate(pairing: PairedRounds) -> Crossing | None:
    recompute, load, measured = pairing.recompute_fit, pairing.load_fit, pairing.measured_range
    return extrapolate(recompute, load, measured) if recompute and load and measured else None


def _whole_notices(
    pairing: PairedRounds, reading: CrossoverReading, crossings: Sequence[Crossing]
) -> Iterator[Notice]:
    """What makes a whole-prefix crossing suspect."""
    num_rounds = len(pairing.band.rounds)
    if MIN_ROUNDS_FOR_INTERVAL <= num_rounds < MIN_ROUNDS_FOR_MEDIAN:
        detail = f"{num_rounds} rounds, so the interval assumes normally distributed noise"
        yield Notice(kind="few_rounds", series=pairing.series, detail=detail)
    if reading.opposite:
        places = ", ".join(map(str, reading.opposite))
        detail = f"the median has the other sign at {places} tokens, within the noise"
        yield Notice(kind="possible_crossing", series=pairing.series, detail=detail)
    for crossing in crossings:
        yield from _crossing_notices(pairing, crossing)


def _crossing_notices(pairing: PairedRounds, crossing: Crossing) -> Iterator[Notice]:
    below, above = crossing.bracket
    if crossing.extrapolated:
        tokens = crossing.tokens.value
        detail = f"the fitted curves cross at {tokens:.0f} tokens, outside the measured range"
        yield Notice(kind="extrapolated", series=pairing.series, detail=detail)
    elif above > COARSE_BRACKET * below:
        detail = (
            f"nothing was measured between {below} and {above} tokens; "
            "the interval assumes a smooth curve there"
        )
        yield Notice(kind="coarse_bracket", series=pairing.series, detail=detail)
    if pairing.recompute_fit and pairing.load_fit:
        disagreement = describe_disagreement(pairing.recompute_fit, pairing.load_fit, crossing)
        if disagreement:
            yield Notice(kind="fit_disagrees", series=pairing.series, detail=disagreement)


def _describe_missing(recompute: Table, load: Selection) -> str:
    """Which arm has nothing to compare; empty when both have."""
    if not recompute:
        return "no recompute samples"
    if not load.table:
        left_out = load.num_left_out
        return f"none of {left_out} load samples counts" if left_out else "no load samples"
    return ""


def _describe_whole_missing(pairing: PairedRounds) -> str:
    """Why there is no C* to look for; empty when there is."""
    if pairing.suffix_tokens and not (pairing.recompute or pairing.load.table or pairing.load.num_left_out):
        return f"only the next {pairing.suffix_tokens:,} tokens were timed, no whole prefixes"
    missing = _describe_missing(pairing.recompute, pairing.load)
    return missing or ("" if pairing.band.rounds else NO_ROUND)


def _tail_spot(pairing: PairedRounds, statistic: Statistic) -> SweetSpot:
    load = pair_table(pairing.recompute_s, pairing.load.table)
    band = tail_band(pairing.recompute_s, load, statistic)
    if band is None:
        num = len(enough_samples(load, statistic))
        have = "length has" if num == 1 else "lengths have"
        reason = (
            f"{num} {have} {MIN_SAMPLES[statistic]} load samples in rounds of both arms; needs at least 2"
        )
        return SweetSpot(pairing.series, "whole", statistic, "inconclusive", None, reason=reason)
    reading = decide(band)
    reason, notices = reading.reason, pairing.load.notices
    return _spot(pairing, "whole", statistic, band=band, reading=reading, reason=reason, notices=notices)


def _marginal_spot(pairing: PairedRounds) -> SweetSpot:
    if pairing.recompute_next and pairing.load_next.table:
        band = direct_band(round_medians(pairing.recompute_next), round_medians(pairing.load_next.table))
        return _judge_marginal(
            pairing, band, ("measured directly with a suffix", NO_ROUND), notices=pairing.load_next.notices
        )
    missing, notices = _describe_whole_missing(pairing), (*pairing.load.notices, *pairing.load_next.notices)
    if missing:
        if pairing.suffix_tokens:  # what was asked for is missing too
            missing = _describe_missing(pairing.recompute_next, pairing.load_next)
        return SweetSpot(
            pairing.series, "marginal", "p50", "inconclusive", None, reason=missing, notices=notices
        )
    band = slope_band(pairing.recompute_s, pairing.load_s, chunk_tokens=pairing.chunk_tokens)
    how = "from slopes between neighbouring measured lengths"
    if len(band.lengths) == 1:
        reason = f"{how}; only one pair of lengths has a slope, and P* needs two (more --tokens, or a longer --budget)"
        return SweetSpot(
            pairing.series, "marginal", "p50", "inconclusive", None, reason=reason, notices=notices
        )
    said = (how, "no round measured two lengths a factor sqrt(2) apart")
    return _judge_marginal(pairing, band, said, notices=notices)


def _judge_marginal(
    pairing: PairedRounds, band: RoundCurves, said: tuple[str, str], *, notices: tuple[Notice, ...]
) -> SweetSpot:
    """P* from a band; `said` is how it was found, and why where no round tells."""
    how, why_not = said
    reading = decide(band) if band.rounds else CrossoverReading("inconclusive", reason=why_not)
    reason = "; ".join(filter(None, (how, reading.reason)))
    return _spot(pairing, "marginal", "p50", band=band, reading=reading, reason=reason, notices=notices)


def _spot(
    pairing: PairedRounds,
    kind: Kind,
    statistic: Statistic,
    *,
    band: AdvantageCurve,
    reading: CrossoverReading,
    reason: str,
    notices: tuple[Notice, ...],
) -> SweetSpot:
    lengths = band.lengths
    return SweetSpot(
        series=pairing.series,
        kind=kind,
        statistic=statistic,
        verdict=reading.verdict,
        measured_range=(int(lengths[0]), int(lengths[-1])) if len(lengths) else None,
        crossings=reading.crossings,
        export_tokens=_export(reading.crossings, pairing.chunk_tokens),
        reason=reason,
        notices=notices,
    )
