"""The refinement as a runner's policy: from how far a sweep has come to the lengths of its next round."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bench.estimate.analysis import make_pairings
from bench.estimate.crossover import read_band
from bench.estimate.marginal import direct_band
from bench.estimate.next_lengths import RefineState, coarse_grid, next_lengths, should_stop
from bench.estimate.paired_rounds import Pairing
from bench.estimate.round_curves import RoundBand
from bench.estimate.valid_samples import round_medians
from bench.record.progress import NO_ROOM, End, Progress
from bench.record.run import Sample

MOST_SIMULATED_ROUNDS = 40  # virtual time passes so fast that the real one would be spent on analysing
UNLIMITED = 10**6  # rounds, when only the budget ends a sweep


def choose_lengths(progress: Progress) -> tuple[int, ...] | End:
    """Lengths of the next round; the end when every C* is as precise as asked, the rounds are used up, or none fits.

    A sweep whose arms never cross goes on until its budget is spent, over all lengths: there is no interval
    to narrow, but each length's ratio gets surer.  A list of lengths that the user gave is measured as given.
    """
    plan = progress.run.plan
    if plan.num_rounds is not None and progress.rounds_done >= plan.num_rounds:
        return End(f"the rounds that --rounds asked for, {plan.num_rounds}, are measured")
    if plan.simulation is not None and progress.rounds_done >= MOST_SIMULATED_ROUNDS:
        return End(f"a simulation ends after {MOST_SIMULATED_ROUNDS} rounds")
    bands = _bands(progress)
    state = RefineState(
        curves=tuple(band.rounds for band in bands),
        step_tokens=1 if plan.tokens is not None else progress.run.chunk_tokens,
        min_tokens=progress.allowed[0],
        max_tokens=progress.allowed[-1],
        num_rounds=plan.num_rounds or UNLIMITED,
        precision=plan.precision,
        rounds_done=progress.rounds_done,
        remaining_s=progress.budget_left_s - progress.startup_s,
        cost_s=progress.cost_s,
        tried=_count_rounds(progress.samples),
    )
    if not _never_cross(bands) and should_stop(replace(state, remaining_s=None)):
        return End(
            f"every crossover is known to ±{plan.precision * 100:g} %, as --precision asked (a smaller one goes on)"
        )
    if plan.tokens is not None or len(progress.allowed) == 1:
        return progress.allowed
    if _never_cross(bands):
        return coarse_grid(state)
    return next_lengths(state) or End(NO_ROOM, next_lengths(replace(state, remaining_s=None)))


def _bands(progress: Progress) -> list[RoundBand]:
    """Of each load series that is still measured: one that broke tells nothing more, so it asks for nothing."""
    return [
        _band(pairing, progress.run.plan.suffix_tokens)
        for pairing in make_pairings(progress.run, progress.samples)
        if pairing.series in progress.loads
    ]


def _count_rounds(samples: Sequence[Sample]) -> Counter[int]:
    """By length, the rounds that measured it."""
    return Counter(tokens for tokens, _ in {(s.case.prefix_tokens, s.round) for s in samples})


def _band(pairing: Pairing, suffix_tokens: int) -> RoundBand:
    if not suffix_tokens:
        return pairing.band
    return direct_band(round_medians(pairing.recompute_next), round_medians(pairing.load_next.table))


def _never_cross(bands: Sequence[RoundBand]) -> bool:
    return bool(bands) and all(
        len(band.lengths) and read_band(band).verdict in {"load_always_wins", "recompute_always_wins"}
        for band in bands
    )
