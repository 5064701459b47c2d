"""What requests ask of GPUs and storage when part of each prompt is found in a store; modelled.

Means over requests, no queueing: what must be sustained, not what a burst needs.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.catalog.models.geometry import Geometry
from bench.catalog.models.kv_capacity import Cache, format_states
from bench.predict.curve import MeasuredCurve
from bench.record.units import count_of, format_duration, round_digits
from bench.record.validate import InputError, parsed, require_count, require_positive, require_share
from bench.reuse.eviction import capacity_in_tokens, require_policy, simulate
from bench.reuse.trace import Trace, read_trace
from bench.sizing.size_scenario import AskedRequests, StoreSpec, TraceRequests

# work to prefill a prompt of the first number of tokens, the second number of which are in place
Work = Callable[[int, int], float]
Request = tuple[int, int]  # tokens of the prompt, tokens of it that are found
MILLISECONDS = 1e3  # in a second; a rate is as many times too high where timestamps are really in seconds
MAX_TOKENS_PER_S = 1e6  # prompt tokens, more than a hundred GPUs prefill


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


@dataclass(frozen=True, slots=True)
class RequestList:
    """The requests to size for, the trace that they are of, and how their hits were found."""

    listed: list[Request]
    trace: Trace | None = None
    hits_how: tuple[str, ...] = ()


def list_requests(asked: AskedRequests, cache: Cache, capacity_bytes: int | None) -> RequestList:
    """One mean request, or those of a trace against a cache of `capacity_bytes`.

    Raises:
        InputError: a trace that cannot be read, or a figure out of its range.
    """
    if not isinstance(asked, TraceRequests):
        return RequestList([mean_request(asked.input_tokens, asked.hit_ratio)])
    if not asked.trace.exists():
        raise InputError(f"{asked.trace}: no such file; a trace in Mooncake's format is needed")
    if asked.block_tokens < 1:
        raise InputError(f"requests.block_tokens must be at least 1, not {asked.block_tokens}")
    trace = read_trace(asked.trace, asked.block_tokens, skip_bad=asked.skip_bad)
    tokens = parsed(lambda size: capacity_in_tokens(size, cache.token_bytes), capacity_bytes) or 0
    policy = parsed(require_policy, asked.policy) or "lru"
    hits = simulate(trace, policy, capacities_tokens=[tokens])[0]
    listed = list(zip(trace.input_tokens.tolist(), hits.tolist(), strict=True))
    requests = count_of(trace.num_requests, "request")
    simulated = f"{asked.policy} over {asked.trace.name}, {requests}, from a cold start"
    return RequestList(listed, trace, (simulated, *trace.notices, *format_states(cache.state_bytes)))


def find_rate(asked: AskedRequests, requests: RequestList) -> tuple[float, str]:
    """Requests per second as given, from prompt tokens per second, or the trace's own; and its formula.

    Raises:
        InputError: none is known.
    """
    if asked.per_s is not None:
        return asked.per_s, ""
    if asked.target is not None:
        require_positive("target", asked.target, unit="tokens/s")
        total_tokens = sum(tokens for tokens, _ in requests.listed)
        return asked.target * len(requests.listed) / total_tokens, ""
    rate = None if requests.trace is None else requests.trace.requests_per_s
    if requests.trace is None or rate is None:
        raise InputError("the rate is not known: give requests.per_s or requests.target (prompt tokens/s)")
    return rate, _format_own_rate(requests.trace, rate)


def _format_own_rate(trace: Trace, rate_per_s: float) -> str:
    gaps = count_of(trace.num_requests - 1, "gap")
    how = f"the trace's own: {gaps} between requests in {format_duration(trace.span_s)}"
    tokens_per_s = rate_per_s * float(trace.input_tokens.mean())
    if tokens_per_s <= MAX_TOKENS_PER_S:
        return how
    seconds = format_duration(trace.span_s * MILLISECONDS)
    return (
        f"{how}; {round_digits(tokens_per_s / 1e6)} million prompt tokens/s are much: timestamps are read as"
        f" milliseconds, and in seconds they would be {seconds}"
    )


def find_stored(store: StoreSpec, requests: RequestList, demand: Demand) -> tuple[float | None, str]:
    """Bytes kept in the store, None where not known, and their formula."""
    if store.capacity is not None:
        return store.capacity, "; ".join(("as given", *requests.hits_how))
    if store.retention is None:
        return None, ""
    stored_bytes = demand.write_bytes_per_s * store.retention
    return stored_bytes, f"write bandwidth x retention of {store.retention:g} s"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
