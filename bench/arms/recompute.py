"""The recompute arm: prefill the prefix, as one real forward of the model (or of a few of its layers)."""

from collections.abc import Callable
from random import Random

import torch

from bench.arms.model.attention_kernel import observe_attention
from bench.arms.model.build import UNFUSED_NOTICE
from bench.arms.model.depth_scaling import DepthPlan, plan_depths, time_depths
from bench.arms.model.memory import require_memory, workspace_bytes
from bench.arms.prefill import Prefill, draw_tokens, synchronize
from bench.record.sample import Case, Outcome


class RecomputeArm:
    """Times T(n), a forward of n tokens whose KV is kept, or T(p+s) - T(p) directly.

    Args:
        prefill: the model over its KV blocks, with room for the longest prefix and suffix.
        now_s: the host's monotonic clock.
        flops: floating-point operations of the real model for (num_tokens, past_tokens).
        prefill_chunk: tokens of one forward at most; None takes all at once.
        plan: which depths run; None takes the whole model, or what a few layers need.
        seed: of the token ids and of the order of depths.
    """

    def __init__(
        self,
        prefill: Prefill,
        *,
        now_s: Callable[[], float],
        flops: Callable[[int, int], float],
        prefill_chunk: int | None = None,
        plan: DepthPlan | None = None,
        seed: int = 0,
    ) -> None:
        self._prefill = prefill
        self._now_s = now_s
        self._flops = flops
        self._prefill_chunk = prefill_chunk
        self._plan = plan or plan_depths(prefill.built)
        self._seed = seed
        self._random = Random(seed)
        self._kernels: dict[tuple[int, int], str] = {}
        self._in_place_tokens = 0

    def warm_up(self, case: Case) -> None:
        """Run every depth once, and once more under watch, to see which attention kernel this length takes.

        Raises:
            MemoryShortError: the device has not the memory for a forward of this length.
        """
        tokens, past_tokens = self._tokens(case)
        self._require_memory(tokens, past_tokens)
        self._put_in_place(past_tokens)
        built = self._prefill.built
        for depth in self._plan.depths:
            with built.only(depth.positions):
                self._time(tokens, past_tokens)
        key = (case.prefix_tokens, case.suffix_tokens)
        if key not in self._kernels:
            last_tokens, last_past_tokens = self._last_forward(tokens, past_tokens)
            self._kernels[key] = observe_attention(
                lambda: self._prefill.forward_visibly(last_tokens, last_past_tokens),
                implementation=built.attention,
            )
        synchronize(built.device)

    def prepare(self, case: Case) -> None:
        """Have the prefix's KV in place where the question is about what comes after it.

        Raises:
            MemoryShortError: the device has not the memory for a forward of this length.
        """
        tokens, past_tokens = self._tokens(case)
        self._require_memory(tokens, past_tokens)
        self._put_in_place(past_tokens)

    def run(self, case: Case) -> Outcome:
        """Seconds of the real model's prefill."""
        tokens, past_tokens = self._tokens(case)
        built = self._prefill.built
        kernel = self._kernel_of(case)
        slow = (UNFUSED_NOTICE,) if kernel is not None and "math" in kernel else ()
        timed = time_depths(
            built, self._plan, time_once=lambda: self._time(tokens, past_tokens), random=self._random
        )
        return Outcome(
            seconds=timed.seconds,
            attention_kernel=kernel,
            flops=self._flops(tokens.shape[1], past_tokens),
            depth_s=timed.depth_s,
            measured_layers=self._plan.measured_layers,
            total_layers=self._plan.total_layers,
            notices=built.notices + slow,
        )

    def _kernel_of(self, case: Case) -> str | None:
        """The kernel seen in this case's warm-up, else in that of the longest case warmed up."""
        return self._kernels.get(
            (case.prefix_tokens, case.suffix_tokens),
            self._kernels[max(self._kernels)] if self._kernels else None,
        )

    def close(self) -> None:
        """Nothing is held that its owner does not release."""

    def _tokens(self, case: Case) -> tuple[torch.Tensor, int]:
        """Tokens to run, and how many come before them."""
        num_tokens = case.suffix_tokens or case.prefix_tokens
        past_tokens = case.prefix_tokens if case.suffix_tokens else 0
        ids = draw_tokens(self._prefill.built, past_tokens + num_tokens, seed=self._seed)
        return ids[:, past_tokens:], past_tokens

    def _require_memory(self, tokens: torch.Tensor, past_tokens: int) -> None:
        built = self._prefill.built
        last_tokens, last_past_tokens = self._last_forward(tokens, past_tokens)
        num_tokens = min(tokens.shape[1], self._prefill_chunk or tokens.shape[1])
        needed = workspace_bytes(
            built.model.config,
            num_tokens,
            past_tokens=last_past_tokens + last_tokens.shape[1] - num_tokens,
            element_bytes=built.dtype.itemsize,
            fused=built.attention != "eager",
        )
        require_memory(needed, built.device, purpose=f"a forward of {num_tokens} tokens ({built.attention})")

    def _last_forward(self, tokens: torch.Tensor, past_tokens: int) -> tuple[torch.Tensor, int]:
        """The last forward of a prefill in chunks: it attends to all that came before."""
        num_tokens = tokens.shape[1]
        chunk_tokens = self._prefill_chunk or num_tokens
        done = (num_tokens - 1) // chunk_tokens * chunk_tokens
        return tokens[:, done:], past_tokens + done

    def _put_in_place(self, past_tokens: int) -> None:
        """Finite KV of realistic size; its values do not change how long attention takes."""
        if past_tokens > self._in_place_tokens:
            self._prefill.cache.randomize(self._seed)
            self._in_place_tokens = past_tokens

    def _time(self, tokens: torch.Tensor, past_tokens: int) -> float:
        device = self._prefill.built.device
        synchronize(device)
        started_s = self._now_s()
        self._prefill.forward_in_chunks(tokens, past_tokens, chunk_tokens=self._prefill_chunk)
        synchronize(device)
        return self._now_s() - started_s
