"""Both arms at one length, with their intervals and what is suspect there."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from bench.estimate.bandwidth import break_even_bytes_per_s, fixed_of
from bench.estimate.intervals import summarise_positive
from bench.estimate.paired_rounds import Pairing
from bench.estimate.pointdoubts import find_doubts
from bench.estimate.results import Point
from bench.estimate.tail_latency import tail_seconds
from bench.estimate.valid_samples import Rounds
from bench.record.sample import Outcome


def make_points(pairing: Pairing) -> tuple[Point, ...]:
    """One point for each length that either arm measured."""
    pairing = _as_asked(pairing)
    lengths = sorted(pairing.recompute.keys() | pairing.load.table.keys())
    return tuple(_make_point(pairing, tokens) for tokens in lengths)


def _as_asked(pairing: Pairing) -> Pairing:
    """A run that asked the marginal question has its points there: seconds of the next tokens."""
    if pairing.recompute or pairing.load.table:
        return pairing
    return replace(pairing, recompute=pairing.recompute_next, load=pairing.load_next)


def _make_point(pairing: Pairing, tokens: int) -> Point:
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
    """Median seconds of the first-token step in each round that knows them."""
    medians = {number: _median(o.first_token_s for o in found) for number, found in load.items()}
    return {number: step_s for number, step_s in medians.items() if step_s is not None}


def _is_scaled(outcome: Outcome) -> bool:
    measured, total = outcome.measured_layers, outcome.total_layers
    return measured is not None and total is not None and measured < total


def _rates(load: Rounds, fixed_s: Mapping[int, float]) -> list[float]:
    """Payload bytes per second of transfer, one for each round that has any."""
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
