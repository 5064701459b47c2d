"""What requests ask of GPUs and storage when part of each prompt is found in a store; modelled.

Means over requests, no queueing: what must be sustained, not what a burst needs.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.catalog.models.geometry import Geometry
from bench.catalog.models.kv_capacity import Cache
from bench.predict.curve import MeasuredCurve
from bench.record.validate import InputError, require_count, require_positive, require_share

# work to prefill a prompt of the first number of tokens, the second number of which are in place
Work = Callable[[int, int], float]
Request = tuple[int, int]  # tokens of the prompt, tokens of it that are found


@dataclass(frozen=True, slots=True)
class Demand:
    """Means over all requests.

    Args:
        requests_per_s: to be sustained.
        input_tokens: of a prompt.
        hit_tokens: of it found in the store; at least one token of every prompt is computed.
        full_work, marginal_work: to prefill the whole prompt, and only the tokens not found, in one unit.
        load_bytes: KV brought in; every rank reads what it keeps.
        new_bytes: KV written once: all planes of each token not found, and of each token generated if kept.
        token_bytes: KV of one stored token, over all ranks.
        state_bytes: linear-attention states of one stored prefix, over all ranks.
    """

    requests_per_s: float
    input_tokens: float
    hit_tokens: float
    full_work: float
    marginal_work: float
    load_bytes: float
    new_bytes: float
    token_bytes: int
    state_bytes: int = 0

    @property
    def hit_ratio(self) -> float:
        """Hit tokens / input tokens."""
        return self.hit_tokens / self.input_tokens

    @property
    def marginal_share(self) -> float:
        """Share of the prefill work that is still done."""
        return self.marginal_work / self.full_work

    @property
    def tokens_per_s(self) -> float:
        """Prompt tokens per second."""
        return self.requests_per_s * self.input_tokens

    @property
    def read_bytes_per_s(self) -> float:
        """KV that storage must give."""
        return self.requests_per_s * self.load_bytes

    @property
    def write_bytes_per_s(self) -> float:
        """KV that storage must take."""
        return self.requests_per_s * self.new_bytes


def work_in_flops(geometry: Geometry) -> Work:
    """Operations of the prefill: what the tokens not found cost, each attending to all before it."""
    return lambda tokens, past: float(geometry.prefill_flops(tokens - past, past))


def work_in_seconds(recompute_s: MeasuredCurve, step_s: MeasuredCurve | None = None) -> Work:
    """Seconds T(n) - T(h) of a measured recompute arm, at least the step that every prompt ends with, at most T(n).

    Args:
        recompute_s: T(n), which ends with the logits.
        step_s: F(n), the first-token step after n tokens; None where nobody measured it, which leaves at least 0.
    """

    def work(tokens: int, past: int) -> float:
        whole_s = recompute_s.at(tokens)
        if past == 0:
            return whole_s
        least_s = 0.0 if step_s is None else min(step_s.at(tokens), whole_s)
        return max(whole_s - recompute_s.at(past), least_s)

    return work


def mean_request(input_tokens: int, hit_ratio: float) -> Request:
    """One request that stands for all: every prompt as long, every prompt hit alike.

    Raises:
        InputError: no token, or a ratio that is none.
    """
    require_count("input tokens", input_tokens)
    require_share("hit ratio", hit_ratio)
    return input_tokens, min(round(input_tokens * hit_ratio), input_tokens - 1)


def find_demand(
    requests: Iterable[Request],
    cache: Cache,
    work: Work,
    *,
    requests_per_s: float,
    kept_output_tokens: float = 0,
) -> Demand:
    """The means over `requests`.

        load bytes  = KV of the tokens found, as layers and ranks keep them (windows stop growing)
        new bytes   = (tokens not found + tokens generated and kept) x bytes of a token + states

    A store is written before anybody knows which prefix will be asked for, so that layers with windows write
    every token too.

    Args:
        requests: (tokens of the prompt, tokens found).
        cache: whose KV is stored.
        work: of a prefill.
        requests_per_s: to be sustained.
        kept_output_tokens: mean of the tokens generated whose KV is stored as well.

    Raises:
        InputError: no requests, or a rate that is not positive.
    """
    require_positive("requests per second", requests_per_s)
    if not 0 <= kept_output_tokens < math.inf:
        raise InputError(f"kept output tokens must be 0 or more, not {kept_output_tokens:g}")
    found = [(tokens, min(hit, tokens - 1)) for tokens, hit in requests]
    if not found:
        raise InputError("no request to size for")
    new_tokens = _mean(tokens - hit for tokens, hit in found) + kept_output_tokens
    return Demand(
        requests_per_s=requests_per_s,
        input_tokens=_mean(tokens for tokens, _ in found),
        hit_tokens=_mean(hit for _, hit in found),
        full_work=_mean(work(tokens, 0) for tokens, _ in found),
        marginal_work=_mean(work(tokens, hit) for tokens, hit in found),
        load_bytes=_mean(cache.bytes_on_ranks(hit) for _, hit in found),
        new_bytes=new_tokens * cache.token_bytes + cache.state_bytes,
        token_bytes=cache.token_bytes,
        state_bytes=cache.state_bytes,
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
