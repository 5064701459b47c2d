"""How many requests per second a trace itself has."""

from dataclasses import dataclass

from bench.record.units import count_of, format_duration, round_digits
from bench.reuse.trace import Trace

MILLISECONDS = 1e3  # in a second; a rate is as many times too high where timestamps are really in seconds
MAX_TOKENS_PER_S = 1e6  # prompt tokens, more than a hundred GPUs prefill; hardly any one trace has them


@dataclass(frozen=True, slots=True)
class OwnRate:
    """Requests per second, and how that comes about."""

    per_s: float
    how: str


def find_own_rate(trace: Trace) -> OwnRate | None:
    """Gaps between requests over the time from the earliest to the latest, whatever their order in the file.

    None where all come at once.
    """
    span_s = float(trace.timestamps_s.max() - trace.timestamps_s.min())
    if span_s <= 0:
        return None
    gaps = trace.num_requests - 1
    how = f"the trace's own: {count_of(gaps, 'gap')} between requests in {format_duration(span_s)}"
    tokens_per_s = gaps / span_s * float(trace.input_tokens.mean())
    if tokens_per_s > MAX_TOKENS_PER_S:
        seconds = format_duration(span_s * MILLISECONDS)
        how += (
            f"; {round_digits(tokens_per_s / 1e6)} million prompt tokens/s are much: timestamps are read as"
            f" milliseconds, and in seconds they would be {seconds}"
        )
    return OwnRate(gaps / span_s, how)
