"""Arms with a known truth, on a virtual clock: what the estimator, the runner and the budget are tested on."""

import math
import random
from collections.abc import Callable

from bench.arms.case import ArmName, Case, Outcome


class SimulatedArm:
    """Takes `truth_s(prefix, suffix)` seconds of virtual time, times noise of the round and of the sample.

    Args:
        arm: which arm it stands for.
        truth_s: seconds without noise, from (prefix_tokens, suffix_tokens).
        advance: lets virtual time pass, in seconds.
        num_bytes: payload of a load at n tokens; None for arms that move nothing.
        round_noise, sample_noise: standard deviations of the log of the time, per round and case and per sample.
        seed: of this round; the same seed gives the same seconds.
    """

    def __init__(
        self,
        arm: ArmName,
        truth_s: Callable[[int, int], float],
        *,
        advance: Callable[[float], None],
        num_bytes: Callable[[int], int] | None = None,
        round_noise: float = 0.0,
        sample_noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._arm = arm
        self._truth_s = truth_s
        self._advance = advance
        self._num_bytes = num_bytes
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
        return Outcome(
            seconds,
            read_s=seconds,
            first_token_s=0.0,
            num_bytes=self._num_bytes(case.prefix_tokens),
            data_path="simulated",
        )

    def close(self) -> None:
        """Nothing to release."""
