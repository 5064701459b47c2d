"""Rows that no clock and no read can have given: one of them stops the analysis, with its place."""

import math
from collections import Counter
from collections.abc import Sequence

from bench.estimate.intervals import AnalysisError
from bench.record.run import RunRecord, Sample
from bench.record.sample import Case

SHARES = ("open_s", "read_s", "h2d_s", "scatter_s")
LEAST_SHARE = 0.98  # of the sum of parts, in seconds: a GPU times copies by a clock of its own


def require_sound(sample: Sample) -> None:
    """Stop on seconds that no clock can have measured."""
    seconds = sample.outcome.seconds
    case = sample.case
    if case.prefix_tokens < 1 - (case.arm == "gemm") or (sample.outcome.num_bytes or 0) < 0:
        raise AnalysisError(
            f"{case.arm} {case.series}, round {sample.round + 1}, sample {sample.sample}: {case.prefix_tokens} tokens and "
            f"{sample.outcome.num_bytes} bytes cannot have been measured; delete that row of samples.csv"
        )
    parts = (sample.outcome.first_token_s, *(getattr(sample.outcome, name) for name in SHARES))
    if not math.isfinite(seconds) or seconds <= 0 or not all(math.isfinite(part or 0.0) for part in parts):
        raise _impossible(sample, f"{seconds!r} s is not a duration")


def require_measurable(run: RunRecord, samples: Sequence[Sample]) -> None:
    """Stop on samples that this run cannot have taken.

    Raises:
        AnalysisError: less time than one of its parts, a prefix beyond the model's maximum, or bytes that a prefix
            of this length has not.
    """
    for sample in samples:
        require_sound(sample)
        _require_parts(sample, ranks=run.plan.tensor_parallel)
        _require_length(run, sample)
        _require_bytes(run, sample)
    _require_alike(samples)


def _impossible(sample: Sample, what: str) -> AnalysisError:
    case = sample.case
    return AnalysisError(
        f"{case.arm} {case.series} at {case.prefix_tokens} tokens, round {sample.round + 1}, "
        f"sample {sample.sample}: {what}; delete that row of samples.csv or measure again"
    )


def _require_parts(sample: Sample, *, ranks: int) -> None:
    """Shares of a load may overlap one another; the first-token step comes after them, on one and the same rank."""
    outcome = sample.outcome
    longest_s = max(getattr(outcome, name) or 0.0 for name in SHARES)
    step_s = outcome.first_token_s or 0.0
    least_s = longest_s + step_s if ranks == 1 else max(longest_s, step_s)
    if outcome.seconds < LEAST_SHARE * least_s:
        raise _impossible(
            sample, f"{outcome.seconds:.6g} s in all are less than the {least_s:.6g} s of its parts"
        )


def _require_length(run: RunRecord, sample: Sample) -> None:
    """The header gives bytes at every doubling up to the model's maximum, which is therefore less than one more."""
    tokens = _tokens_of(sample.case)
    if run.kv_bytes_at and tokens >= 2 * max(run.kv_bytes_at):
        raise _impossible(sample, f"{tokens} tokens are beyond the maximum of {run.model_name}")


def _tokens_of(case: Case) -> int:
    return case.prefix_tokens + case.suffix_tokens


def _require_bytes(run: RunRecord, sample: Sample) -> None:
    """A load brings in all tokens but the last, a hybrid some; without windows and states the bytes are exact."""
    case, num_bytes = sample.case, sample.outcome.num_bytes
    if num_bytes is None or not run.kv_bytes_at or case.arm not in {"load", "hybrid"}:
        return
    even = all(size == n * run.kv_bytes_per_token for n, size in run.kv_bytes_at.items())
    even = even and _tokens_of(case) <= max(run.kv_bytes_at)  # a wider window may begin to bind beyond
    tokens = case.suffix_tokens or case.prefix_tokens
    states = 0 if even else run.kv_bytes_at[min(run.kv_bytes_at)]  # at most
    least = (tokens - 1) * run.kv_bytes_per_token if even and case.arm == "load" else 0
    if not least <= num_bytes <= tokens * run.kv_bytes_per_token + states:
        raise _impossible(sample, f"{num_bytes} bytes are not those of {tokens} tokens of {run.model_name}")


def _require_alike(samples: Sequence[Sample]) -> None:
    """Every load of one series at one length brings in the same bytes."""
    found: dict[Case, Counter[int]] = {}
    for sample in samples:
        if sample.case.arm == "load" and sample.outcome.num_bytes is not None:
            found.setdefault(sample.case, Counter())[sample.outcome.num_bytes] += 1
    for sample in samples:
        sizes = found.get(sample.case, Counter())
        if len(sizes) < 2 or sample.outcome.num_bytes is None:
            continue
        usual, _ = sizes.most_common(1)[0]
        if sample.outcome.num_bytes != usual:
            raise _impossible(
                sample, f"{sample.outcome.num_bytes} bytes where others of this length have {usual}"
            )
