"""Arms with a known truth, on a virtual clock: what the estimator, the runner and the budget are tested on."""

import math
import random
from collections.abc import Callable

from bench.record.sample import ArmName, Case, Outcome


class SimulatedArm:
    """Takes `truth_s(prefix, suffix)` seconds of virtual time, times noise of the round and of the sample.

    Args:
        arm: which arm it stands for.
        truth_s: seconds without noise, from (prefix_tokens, suffix_tokens).
        advance: lets virtual time pass, in seconds.
        num_bytes: payload of a load, from (prefix_tokens, suffix_tokens); None for arms that move nothing.
        load_fraction: share that a hybrid loads at n tokens; None for the other arms.
        round_noise, sample_noise: standard deviations of the log of the time, per round and case and per sample.
        seed: of this round; the same seed gives the same seconds.
    """

    def __init__(
        self,
        arm: ArmName,
        truth_s: Callable[[int, int], float],
        *,
        advance: Callable[[float], None],
        num_bytes: Callable[[int, int], int] | None = None,
        load_fraction: Callable[[int], float] | None = None,
        round_noise: float = 0.0,
        sample_noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._arm = arm
        self._truth_s = truth_s
        self._advance = advance
        self._num_bytes = num_bytes
        self._load_fraction = load_fraction
        self._round_noise = round_noise
        self._sample_noise = sample_noise
        self._seed = seed
        self._chance = random.Random(f"{seed}/{arm}")

    def warm_up(self, case: Case) -> None:
        """Nothing to warm."""

    def prepare(self, case: Case) -> None:
        """Nothing to prepare."""

    def run(self, case: Case) -> Outcome:
        """Let the simulated time pass."""
        of_round = random.Random(f"{self._seed}/{case}").gauss(0.0, self._round_noise)
        of_sample = self._chance.gauss(0.0, self._sample_noise)
        seconds = self._truth_s(case.prefix_tokens, case.suffix_tokens) * math.exp(of_round + of_sample)
        self._advance(seconds)
        if self._num_bytes is None:
            return Outcome(seconds, attention_kernel="simulated")
        payload = self._num_bytes(case.prefix_tokens, case.suffix_tokens)
        fraction = None if self._load_fraction is None else self._load_fraction(case.prefix_tokens)
        return Outcome(
            seconds,
            read_s=seconds,
            first_token_s=0.0,
            num_bytes=round((1.0 if fraction is None else fraction) * payload),
            load_fraction=fraction,
            data_path="simulated",
        )

    def close(self) -> None:
        """Nothing to release."""


def meet_simulated(
    recompute_s: Callable[[float], float], load_s: Callable[[float], float], num_tokens: int
) -> tuple[float, float]:
    """Seconds until recompute of the front and loading of the back of `num_tokens` meet, and the share loaded.

    They meet where both take equally long; where one of them has not begun to pay by the time that the other is
    done with everything, that other does everything.
    """
    if recompute_s(0.0) >= load_s(num_tokens):
        return load_s(num_tokens), 1.0
    if load_s(0.0) >= recompute_s(num_tokens):
        return recompute_s(num_tokens), 0.0
    low, high = 0.0, float(num_tokens)
    for _ in range(60):  # halvings: far below a token
        middle = (low + high) / 2
        early = recompute_s(middle) < load_s(num_tokens - middle)
        low, high = (middle, high) if early else (low, middle)
    return recompute_s(low), 1.0 - low / num_tokens
