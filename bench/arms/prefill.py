"""One forward over tokens that follow a prefix, with its KV left in the blocks.

The first-token step: with the KV of all tokens but the last in place, the forward of the last one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch

from bench.arms import ranks as group
from bench.arms.model.build import BuiltModel
from bench.arms.model.depth_scaling import DepthPlan, plan_depths, time_depths
from bench.arms.model.kv_cache import BlockCache, cache_over
from kvio.loading.blocks import KVBlocks


class PrefixTooLongError(Exception):
    """The model has no position for so many tokens."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """A built model over KV blocks."""

    built: BuiltModel  # the model
    blocks: KVBlocks  # that the KV goes to
    cache: BlockCache  # the model's cache over them
    kv_dtype: torch.dtype  # of the KV in the blocks

    def forward(self, token_ids: torch.Tensor, past_tokens: int = 0) -> torch.Tensor:
        """Logits (vocab,) of the last of `token_ids` (1, q), which come after `past_tokens` in the blocks."""
        with torch.inference_mode():
            return self.forward_visibly(token_ids, past_tokens)

    def forward_visibly(self, token_ids: torch.Tensor, past_tokens: int = 0) -> torch.Tensor:
        """Like `forward` but outside inference mode, where operators can be watched."""
        self.cache.begin(past_tokens)
        result = self.built.model(input_ids=token_ids, cache=self.cache, use_cache=True, logits_to_keep=1)
        self.cache.end()
        return result.logits[0, -1]  # type: ignore[no-any-return]

    def fill(self, token_ids: torch.Tensor, past_tokens: int = 0) -> None:
        """Leave the KV of `token_ids` in the blocks; no logits, as of all pieces of a prefix but its last."""
        nothing = torch.empty(0, dtype=torch.long, device=token_ids.device)
        with torch.inference_mode():
            self.cache.begin(past_tokens)
            self.built.model(input_ids=token_ids, cache=self.cache, use_cache=True, logits_to_keep=nothing)
            self.cache.end()

    def with_own_state(self) -> "Prefill":
        """The model over the same memory for tokens (from token 0 on), beside states of its own."""
        return prefill_over(self.built, self.blocks.with_own_state(), kv_dtype=self.kv_dtype)

    def forward_in_chunks(
        self, token_ids: torch.Tensor, past_tokens: int = 0, *, chunk_tokens: int | None = None
    ) -> torch.Tensor:
        """Like `forward`, at most `chunk_tokens` at a time, as serving engines do."""
        pieces = torch.split(token_ids, chunk_tokens or token_ids.shape[1], dim=1)
        for piece in pieces[:-1]:
            self.forward(piece, past_tokens)
            past_tokens += piece.shape[1]
        return self.forward(pieces[-1], past_tokens)


def prefill_over(
    built: BuiltModel, blocks: KVBlocks, *, kv_dtype: torch.dtype | None = None, first_slot: int = 0
) -> Prefill:
    """A prefill that leaves its KV in `blocks`, from token `first_slot` on.

    Args:
        built: the model.
        blocks: memory whose layout describes exactly the built layers (see `sub_layout`).
        kv_dtype: None keeps the model's own dtype.
        first_slot: the model's token 0 lies at this token of the blocks.
    """
    kv_dtype = kv_dtype or built.dtype
    cache = cache_over(built.model, blocks, kv_dtype=kv_dtype, first_slot=first_slot)
    return Prefill(built, blocks, cache, kv_dtype)


def draw_tokens(built: BuiltModel, num_tokens: int, *, seed: int) -> torch.Tensor:
    """Token ids (1, num_tokens), drawn evenly from the vocabulary.

    Raises:
        PrefixTooLongError: positions are learned and there are fewer of them.
    """
    require_positions(built, num_tokens)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(built.vocab_size, (1, num_tokens), generator=generator).to(built.device)


def require_positions(built: BuiltModel, num_tokens: int) -> None:
    """Stop where a learned position table ends; rotary positions have no end."""
    for module in built.model.modules():
        table = getattr(module, "embed_positions", None)
        if table is not None and num_tokens > (limit := built.model.config.max_position_embeddings):
            raise PrefixTooLongError(
                f"{built.model.config.model_type} has learned positions for {limit} tokens, not for "
                f"{num_tokens}; choose shorter prefixes"
            )


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given, and so have those of all other ranks.

    What is timed from one `synchronize` to the next therefore takes as long as the slowest rank.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    group.wait()


def finish_stream(device: torch.device) -> None:
    """Wait until the device has done all that this thread gave it; copies on other streams are not waited for."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


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
        synchronize(device)
        started_s = self._now_s()
        self._prefill.forward(token, past_tokens)
        synchronize(device)
        return self._now_s() - started_s
