"""The first-token step: with the KV of all tokens but the last in place, the forward of the last one."""

from collections.abc import Callable
from random import Random

import torch

from bench.arms.model.depth_scaling import DepthPlan, plan_depths, time_depths
from bench.arms.prefill import Prefill, draw_tokens, finish


class FirstTokenStep:
    """What every arm ends with; without it a full hit would look free.

    Args:
        prefill: the model over the blocks that hold the KV.
        now_s: the host's monotonic clock.
        plan: which depths run; None takes the whole model, or what a few layers need.
        seed: of the token id and of the order of depths.
    """

    def __init__(
        self,
        prefill: Prefill,
        *,
        now_s: Callable[[], float],
        plan: DepthPlan | None = None,
        seed: int = 0,
    ) -> None:
        self._prefill = prefill
        self._now_s = now_s
        self._plan = plan or plan_depths(prefill.built)
        self._seed = seed
        self._random = Random(seed)

    def time(self, num_tokens: int) -> float:
        """Seconds of the real model's step when the last of `num_tokens` tokens is missing."""
        token = draw_tokens(self._prefill.built, num_tokens, seed=self._seed)[:, -1:]
        timed = time_depths(
            self._prefill.built,
            self._plan,
            time_once=lambda: self._time(token, num_tokens - 1),
            random=self._random,
        )
        return timed.seconds

    def logits(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Logits (vocab,) after `token_ids` (1, n), of which only the last one is computed."""
        return self._prefill.forward(token_ids[:, -1:], token_ids.shape[1] - 1)

    def _time(self, token: torch.Tensor, past_tokens: int) -> float:
        device = self._prefill.built.device
        finish(device)
        started_s = self._now_s()
        self._prefill.forward(token, past_tokens)
        finish(device)
        return self._now_s() - started_s
