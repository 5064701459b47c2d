"""The logits check: logits after a load and the first-token step are those that recompute gives.

A check that cannot fail proves nothing, so every one is made twice: once with the chunks where they belong,
and once with the chunks rotated among each other, where it must fail.

One prompt alone would not do.  Keys are stored with their rotary position inside, so attention over a *set*
of tokens does not care in which slots they lie: the chunks of one prompt may be permuted and the logits
stay the same. The store therefore holds two prompts, the other one in front, and the answer is asked of the
second: a rotation loads a chunk of the other prompt into its slots.

Of several ranks each stores and loads its own KV.  The answer must be right on all of them, and a rotation on
any one of them alone must be seen.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from bench.arms import ranks as group
from bench.arms.model.build import BuiltModel
from bench.arms.prefill import draw_tokens, prefill_over
from kvio.layout.planes import KVLayout
from kvio.loading.blocks import KVBlocks

# of the logits' standard deviation; kernels for one token and for many round differently
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.25}


class AnswerCheckError(Exception):
    """Loaded KV gives another answer than recompute, or the check could not have seen it."""


class StoreAndLoad(Protocol):
    """Stores the first `num_tokens` of `source` and loads them into `target`."""

    def __call__(
        self, source: KVBlocks, target: KVBlocks, *, num_tokens: int, rotate: bool, prompt: torch.Tensor
    ) -> None:
        """With `rotate` every whole chunk lands in the place of another; `prompt` are the ids (1, m) of the last m."""


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Outcome of one check; differences are the largest over the logits, in units of their standard
    deviation.
    """

    max_difference: float  # after a right load against recompute
    control_difference: float  # after a rotated load against recompute
    tolerance: float  # what rounding may do in this dtype
    same_token: bool  # the most likely token is the same, or no less likely than rounding explains

    @property
    def blind(self) -> bool:
        """True when rotated chunks pass as well, so that the check proves nothing."""
        return not self.control_difference > self.tolerance

    @property
    def passed(self) -> bool:
        """True when the logits agree and wrong chunks would have been detected."""
        return self.max_difference <= self.tolerance and self.same_token and not self.blind


def check_answer(
    built: BuiltModel,
    layout: KVLayout,
    num_tokens: int,
    *,
    store_and_load: StoreAndLoad,
    kv_dtype: torch.dtype | None = None,
    seed: int = 0,
) -> AnswerCheck:
    """Compare the answer after loading with that of recompute, for a prompt of `num_tokens`.

    Args:
        built: the model, with real or realistic weights: with KV near zero every load looks right.
        layout: of exactly the built layers (see `sub_layout`).
        num_tokens: of the prompt; twice as many less two are stored, in chunks shorter than the prompt.
        store_and_load: the way to be checked.
        kv_dtype: of the stored KV; None is the model's.
        seed: of the two prompts.
    """
    kept = num_tokens - 1
    other, prompt = (draw_tokens(built, num_tokens, seed=seed + number) for number in (0, 1))
    source = KVBlocks(layout, 2 * kept + 1, built.device)
    prefill_over(built, source, kv_dtype=kv_dtype).forward(other[:, :kept])
    prefill = prefill_over(built, source, kv_dtype=kv_dtype, first_slot=kept)
    expected = prefill.forward(prompt).float()
    prefill.forward(prompt[:, :kept])  # once more, so that states are those before the last token

    def answer(*, rotate: bool = False) -> torch.Tensor:
        target = KVBlocks(layout, 2 * kept + 1, built.device)
        target.poison()
        store_and_load(source, target, num_tokens=2 * kept, rotate=rotate, prompt=prompt[:, :kept])
        loaded = prefill_over(built, target, kv_dtype=kv_dtype, first_slot=kept)
        return loaded.forward(prompt[:, kept:], kept).float()

    tolerance = TOLERANCE[built.dtype]
    right = answer()
    spread = float(expected.std())
    loss = float(expected.max() - expected[right.argmax()])
    controls = [answer(rotate=group.rank() == wrong) for wrong in range(group.size())]
    return AnswerCheck(
        max_difference=max(group.gather(_largest(right - expected) / spread)),
        control_difference=min(
            max(group.gather(_largest(control - expected) / spread)) for control in controls
        ),
        tolerance=tolerance,
        same_token=all(group.gather(loss <= tolerance * spread)),
    )


def require_answer(check: AnswerCheck) -> None:
    """Stop unless the check passed.

    Raises:
        AnswerCheckError: the answer is wrong, or the check is blind.
    """
    if check.blind:
        raise AnswerCheckError(
            f"rotated chunks change the logits by only {check.control_difference:.2g} standard deviations; "
            "the check sees nothing: use more tokens than two chunks hold, or weights of a realistic size"
        )
    if not check.passed:
        raise AnswerCheckError(
            f"logits after loading differ from recompute by {check.max_difference:.2g} standard deviations, "
            f"{check.tolerance:.2g} are allowed: wrong or misplaced KV was loaded"
        )


def _largest(difference: torch.Tensor) -> float:
    """Largest magnitude; infinite where a logit is not a number."""
    largest = float(difference.abs().max())
    return largest if largest == largest else float("inf")
