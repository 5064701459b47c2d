"""The machine's own matrix rate: what the recompute arm could reach at best."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import linear

from bench.arms.model.weights import fill_normal
from bench.arms.prefill import synchronize
from bench.record.sample import Case, Outcome


class GemmArm:
    """Times linear layers of the given shapes, one after the other, on as many tokens as the case has.

    Args:
        shapes: (out_features, in_features) of each; those of one decoder layer, for a fair comparison.
        dtype: of weights and activations.
        device: where.
        now_s: the host's monotonic clock.
        seed: of the values, which are normal: zeros would be multiplied faster.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        *,
        dtype: torch.dtype,
        device: torch.device,
        now_s: Callable[[], float],
        seed: int = 0,
    ) -> None:
        self._device, self._now_s, self._seed = device, now_s, seed
        self._weights = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        for number, weight in enumerate(self._weights):
            fill_normal(weight, seed, number=number, std=weight.shape[1] ** -0.5)
        self._inputs: dict[tuple[int, int], torch.Tensor] = {}

    def warm_up(self, case: Case) -> None:
        """Run once."""
        self.run(case)

    def prepare(self, case: Case) -> None:
        """Draw the activations."""
        for weight in self._weights:
            key = (case.prefix_tokens, weight.shape[1])
            if key not in self._inputs:
                self._inputs[key] = torch.empty(key, dtype=weight.dtype, device=self._device)
                fill_normal(self._inputs[key], self._seed, number=len(self._weights), std=1.0)

    @torch.inference_mode()
    def run(self, case: Case) -> Outcome:
        """Seconds of all products, and their rate."""
        self.prepare(case)
        pairs = [(self._inputs[case.prefix_tokens, weight.shape[1]], weight) for weight in self._weights]
        synchronize(self._device)
        started_s = self._now_s()
        for values, weight in pairs:
            linear(values, weight)
        synchronize(self._device)
        seconds = self._now_s() - started_s
        flops = 2.0 * case.prefix_tokens * sum(weight.numel() for weight in self._weights)
        return Outcome(seconds=seconds, flops=flops, flops_per_s=flops / seconds)

    def close(self) -> None:
        """Release the matrices."""
        self._weights, self._inputs = [], {}
