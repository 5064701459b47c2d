"""Which lengths to measure in the next round, and when to stop: pure, so that it is tested without a clock.

    round 0, 1    the coarse grid: powers of two, from the shortest length to the longest that is affordable
    round 2 …     each crossing of the median so far is bracketed by two lengths, as near as the noise allows:
                  far enough that both signs get decided, near enough that interpolation adds no error
    no crossing   the lengths whose sign is still undecided, and longer ones while there are any

A bracket is about a power of sqrt(2) wide under the usual noise and closes to chunk steps as noise allows.
It is kept while the crossing stays inside, so that rounds stay paired and no new files have to be written.

The refinement as a runner's policy: from how far a sweep has come to the lengths of its next round.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from bench.estimate.crossover import CrossoverReading, centre_roots, decide
from bench.estimate.intervals import AnalysisError, half_width
from bench.estimate.paired_rounds import PairedRounds, make_pairings
from bench.estimate.round_curves import RoundCurve, RoundCurves, direct_band
from bench.estimate.valid_samples import TRIES, round_medians
from bench.record.progress import NO_ROOM, End, Progress
from bench.record.sample import Sample

FLOOR_ROUNDS = 6  # no early stop before: the interval of fewer rounds is too often narrow by luck
COARSE_ROUNDS = 2
MAX_TARGETS = 2  # sign changes of the median to aim at before any is decided; more are noise around a tie
REACH = 2.5  # bracket half-width in noise / slope: about three half-widths of the final interval
DEFAULT_NOISE = 0.05  # of log(recompute / load) between rounds, until two rounds say better
SPACING = 1.25  # a coarse length nearer than this to a bracket adds nothing
MIN_NOISE = 0.005
MIN_SLOPE = 0.1  # of log(recompute / load) per log(length)


@dataclass(frozen=True, slots=True, eq=False)
class RefineState:
    """The input of the policy."""

    # per load series, one curve per finished round, oldest first
    curves: tuple[tuple[RoundCurve, ...], ...]
    step_tokens: int  # allowed lengths: its multiples from min_tokens to max_tokens
    min_tokens: int
    max_tokens: int
    num_rounds: int  # maximum rounds, whatever the precision
    precision: float  # requested relative half-width of the interval of C*
    rounds_done: int  # finished rounds
    remaining_s: float | None = None  # budget left; None: unlimited
    # measured seconds of all arms in one round, by length
    cost_s: Mapping[int, float] = field(default_factory=dict)
    # rounds by length, with valid samples or not
    tried: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shortest > self.longest:
            raise AnalysisError(
                f"no multiple of {self.step_tokens} tokens between {self.min_tokens} and {self.max_tokens}"
            )

    @property
    def shortest(self) -> int:
        """Shortest allowed length."""
        return max(1, -(-self.min_tokens // self.step_tokens)) * self.step_tokens

    @property
    def longest(self) -> int:
        """Longest allowed length."""
        return self.max_tokens // self.step_tokens * self.step_tokens


def coarse_grid(state: RefineState) -> tuple[int, ...]:
    """Powers of two times the shortest length, and the longest."""
    lengths = [state.shortest]
    while lengths[-1] * 2 <= state.longest:
        lengths.append(lengths[-1] * 2)
    if lengths[-1] != state.longest:
        if len(lengths) > 1 and state.longest < 1.3 * lengths[-1]:
            lengths.pop()
        lengths.append(state.longest)
    return tuple(lengths)


def predict_cost_s(state: RefineState, tokens: int) -> float:
    """Seconds of one round at `tokens`: interpolated, beyond the longest measured length as its square."""
    if tokens in state.cost_s:
        return state.cost_s[tokens]
    if not state.cost_s:
        return 0.0
    known = sorted(state.cost_s)
    if tokens > known[-1]:
        return state.cost_s[known[-1]] * (tokens / known[-1]) ** 2
    costs = [math.log(state.cost_s[n]) for n in known]
    return math.exp(float(np.interp(math.log(tokens), np.log(known), costs)))


def next_lengths(state: RefineState) -> tuple[int, ...]:
    """Lengths to measure in the next round, ascending; empty when nothing fits into the budget."""
    grid = coarse_grid(state)
    if state.rounds_done == 0 or not any(state.curves):
        first = [n for n in grid if n <= max(state.longest // 4, 2 * state.shortest)]
        return tuple(first)
    if state.rounds_done < COARSE_ROUNDS:
        return _affordable(state, (), grid)
    wanted: set[int] = set()
    for rounds in state.curves:
        wanted.update(_allowed(state, _wanted(state, rounds)) if rounds else grid)
    return _affordable(state, tuple(sorted(wanted)), _seldom(state, grid))


def _allowed(state: RefineState, wanted: set[int]) -> set[int]:
    """The lengths still allowed (earlier rounds may have lengths refused since), else the coarse ones."""
    return {n for n in wanted if state.shortest <= n <= state.longest} or set(coarse_grid(state))


def _affordable(state: RefineState, first: tuple[int, ...], then: tuple[int, ...]) -> tuple[int, ...]:
    """As many of `first`, then of `then` (short ones before long ones) as the budget allows.

    `then` is not urgent: it leaves budget for later rounds, unless nothing else can be measured.
    """
    left = math.inf if state.remaining_s is None else state.remaining_s
    chosen: list[int] = []
    for group, share in ((first, 1.0), (then, 0.6)):
        for tokens in (n for n in group if n not in chosen):
            cost = predict_cost_s(state, tokens)
            if cost > left * (share if chosen else 1.0):
                break
            chosen.append(tokens)
            left -= cost
    return tuple(sorted(chosen))


def _seldom(state: RefineState, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Coarse lengths measured in fewer than COARSE_ROUNDS rounds, unless TRIES rounds failed there."""
    return tuple(
        n
        for n in grid
        if min(_times(rounds, n) for rounds in state.curves) < COARSE_ROUNDS and state.tried.get(n, 0) < TRIES
    )


def _times(rounds: Sequence[RoundCurve], tokens: int) -> int:
    return sum(tokens in curve.lengths for curve in rounds)


@lru_cache(maxsize=16)
def _read(rounds: tuple[RoundCurve, ...]) -> tuple[RoundCurves, CrossoverReading]:
    """Cached: stopping and refining read the same rounds."""
    band = RoundCurves(rounds)
    return band, decide(band)


def _wanted(state: RefineState, rounds: tuple[RoundCurve, ...]) -> set[int]:
    """Lengths that one series needs next."""
    band, reading = _read(rounds)
    targets = tuple(crossing.tokens.value for crossing in reading.crossings) or centre_roots(band)
    if 0 < len(targets) <= max(len(reading.crossings), MAX_TARGETS):
        return {n for target in targets for n in _around(state, band, target)} | set(reading.doubts)
    undecided = {int(n) for n, sign in zip(band.lengths, reading.signs, strict=False) if sign == 0}
    if undecided:
        return undecided & set(coarse_grid(state)) or undecided
    nearest = np.argsort(np.abs(reading.centres))[:2]
    return {int(band.lengths[i]) for i in nearest}


def _around(state: RefineState, band: RoundCurves, root: float) -> set[int]:
    """The bracket of `root`, coarse lengths inside a wide one, and two coarse lengths below it.

    With two lengths alone a round is a chord, which lies above a convex curve and puts C* too low; the third
    gives it the bend.  It is taken below the bracket, where measuring is cheap; the fourth gives slopes
    around P*.
    """
    low, high = _bracket(state, band, root)
    grid = coarse_grid(state)
    inside = {n for n in grid if low * SPACING < n < high / SPACING}
    below = [n for n in grid if n * SPACING <= low]
    above = [n for n in grid if n >= high * SPACING]
    return {low, high} | inside | set(below[-2:] or above[:1])


def _bracket(state: RefineState, band: RoundCurves, root: float) -> tuple[int, int]:
    """Two allowed lengths around `root`; those of the last round when they still fit."""
    reach = max(REACH * find_noise(band) / _slope(band, root), math.log1p(state.step_tokens / root))
    last = band.rounds[-1].lengths
    last = last[(last >= state.shortest) & (last <= state.longest)]
    for low, high in pairwise(last):
        fits_low = _fits(math.log(root / low), reach, low <= state.shortest)
        if low < root < high and fits_low and _fits(math.log(high / root), reach, high >= state.longest):
            return int(low), int(high)
    step = state.step_tokens
    low = min(max(int(root * math.exp(-reach) // step) * step, state.shortest), state.longest)
    high = min(-int(-root * math.exp(reach) // step) * step, state.longest)
    return (low, high) if low < high else (low, min(low + step, state.longest))


def _fits(distance: float, reach: float, limit: bool) -> bool:
    """An end of the old bracket is neither too near nor too far (as near as allowed counts as fine)."""
    return 0.6 * reach <= distance <= 1.6 * reach or (limit and distance <= 1.6 * reach)


def find_noise(band: RoundCurves) -> float:
    """Spread of one round's log(recompute / load) around the truth, from pairs of rounds at equal lengths."""
    differences = []
    for older, newer in pairwise(band.rounds):
        _, a, b = np.intersect1d(older.lengths, newer.lengths, return_indices=True)
        differences.extend(np.abs(older.values[a] - newer.values[b]).tolist())
    if not differences:
        return DEFAULT_NOISE
    return max(1.4826 * float(np.median(differences)) / math.sqrt(2), MIN_NOISE)


def _slope(band: RoundCurves, root: float) -> float:
    """Steepness of the median advantage around `root`, per log length."""
    ends = np.clip([root / math.sqrt(2), root * math.sqrt(2)], band.lengths[0], band.lengths[-1])
    centre, _, _ = band.at(ends)
    width = math.log(ends[1] / ends[0])
    rise = abs(float(centre[1] - centre[0]))
    return max(rise / width, MIN_SLOPE) if width > 0 and math.isfinite(rise) else MIN_SLOPE


def should_stop(state: RefineState) -> bool:
    """True when every series is answered as precisely as asked, or rounds or budget are used up."""
    if state.rounds_done >= state.num_rounds:
        return True
    if state.remaining_s is not None and state.remaining_s <= 0:
        return True
    if state.rounds_done < min(FLOOR_ROUNDS, state.num_rounds):
        return False
    return all(rounds and _answered(state, _read(rounds)[1]) for rounds in state.curves)


def _answered(state: RefineState, reading: CrossoverReading) -> bool:
    if reading.verdict == "inconclusive":
        return False
    widths = [half_width(crossing.tokens) for crossing in reading.crossings]
    return all(width is not None and width <= state.precision for width in widths)


MAX_SIMULATED_ROUNDS = 40  # virtual time is fast: more rounds would spend real time on analysis
UNLIMITED = 10**6  # rounds, when only the budget ends a sweep


def choose_lengths(progress: Progress) -> tuple[int, ...] | End:
    """Lengths of the next round; the end when every C* is as precise as asked, the rounds are used up, or none fits.

    A sweep whose arms never cross uses its whole budget over all lengths: each ratio becomes more precise.
    A list of lengths given by the user is measured as given.
    """
    plan = progress.run.plan
    if plan.num_rounds is not None and progress.rounds_done >= plan.num_rounds:
        return End(f"all {plan.num_rounds} rounds of --rounds are measured")
    if plan.simulation is not None and progress.rounds_done >= MAX_SIMULATED_ROUNDS:
        return End(f"a simulation ends after {MAX_SIMULATED_ROUNDS} rounds")
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
            f"every crossover is within ±{plan.precision * 100:g} % (--precision; a smaller value continues)"
        )
    if plan.tokens is not None or len(progress.allowed) == 1:
        return progress.allowed
    if _never_cross(bands):
        return coarse_grid(state)
    return next_lengths(state) or End(NO_ROOM, next_lengths(replace(state, remaining_s=None)))


def _bands(progress: Progress) -> list[RoundCurves]:
    """One band per load series still measured; failed series need no lengths."""
    return [
        _band(pairing, progress.run.plan.suffix_tokens)
        for pairing in make_pairings(progress.run, progress.samples)
        if pairing.series in progress.loads
    ]


def _count_rounds(samples: Sequence[Sample]) -> Counter[int]:
    """By length, the rounds that measured it."""
    return Counter(tokens for tokens, _ in {(s.case.prefix_tokens, s.round) for s in samples})


def _band(pairing: PairedRounds, suffix_tokens: int) -> RoundCurves:
    if not suffix_tokens:
        return pairing.band
    return direct_band(round_medians(pairing.recompute_next), round_medians(pairing.load_next.table))


def _never_cross(bands: Sequence[RoundCurves]) -> bool:
    return bool(bands) and all(
        len(band.lengths) and decide(band).verdict in {"load_always_wins", "recompute_always_wins"}
        for band in bands
    )
