"""Prices of recomputing and loading on a described machine: the cost model's seconds and its C*; modelled."""

import math
from functools import partial

from bench.estimate.results import Crossing, Verdict
from bench.predict.cost_model import TimeModel
from bench.predict.prediction import SHORTEST, find_doubts, find_whole, gap_whole, verdict_of
from bench.predict.sweep_model import curve_of
from bench.reuse.savings import CostCurves, HitPrices


def prices_of_model(model: TimeModel, *, longest: int, num_gpus: int = 1) -> HitPrices:
    """What the cost model says that recomputing and loading cost, and from which prefix on loading is faster.

        T(n) = recompute_s(n)      F(n) = fixed_s(n)      L(n) = fixed_s(n) + transfer_s(n)

    each of them at every length as `predict` prints it, none interpolated.

    Args:
        model: of the machine.
        longest: tokens up to which C* is looked for; longer prompts say that they are extrapolated.
        num_gpus: GPUs that run the model together.

    Source: formulas and their measured errors are in docs/model.md.
    """
    curves = CostCurves(
        recompute_s=curve_of(model.recompute_s),
        load_s=curve_of(lambda n: model.fixed_s(n) + model.transfer_s(n)),
        first_token_s=curve_of(model.fixed_s),
        measured_range=(1, longest),
    )
    crossings = find_whole(model, SHORTEST, longest)
    verdict = verdict_of(crossings, gap_whole(model)(longest))
    tokens = {"load_always_wins": 0.0, "recompute_always_wins": math.inf}.get(verdict)
    if verdict == "crossover" and crossings[0].load_wins_beyond:
        tokens = crossings[0].tokens.value
    return HitPrices(
        curves=curves,
        crossover_tokens=tokens,
        source=f"the cost model, nothing was measured: {model.label}",
        num_gpus=num_gpus,
        notices=(*_format_verdict(verdict, crossings, longest), *_format_doubts(model, verdict, longest)),
        modelled=True,
        supposed=model.notices,
    )


def _format_verdict(verdict: str, crossings: tuple[Crossing, ...], longest: int) -> tuple[str, ...]:
    """What C* alone does not say: its bounds, or why there is none."""
    searched = f"between {SHORTEST:,} and {longest:,} tokens"
    if verdict != "crossover":
        return (f"modelled {searched}: {verdict.replace('_', ' ')}",)
    low, high = crossings[0].tokens.low, crossings[0].tokens.high
    if not crossings[0].load_wins_beyond:
        return (f"modelled {searched}: loading is faster only below {crossings[0].tokens.value:,.0f} tokens",)
    if low is None or high is None:
        return (f"the modelled C* has no bounds of its own, looked for {searched}",)
    return (f"the modelled C* lies between {low:,.0f} and {high:,.0f} tokens by the range of its rates",)


def _format_doubts(model: TimeModel, verdict: Verdict, longest: int) -> tuple[str, ...]:
    """The other verdicts that the ranges of the rates allow."""
    if not any(model.has_bounds):
        return ()
    doubts = find_doubts(partial(gap_whole, model), verdict, (SHORTEST, longest))
    return tuple(f"undecided: {name.replace('_', ' ')} within the range of the rates too" for name in doubts)
