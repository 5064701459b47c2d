"""Select the valid samples by arm, series, length and round; each exclusion gives a notice.

An impossible row stops the analysis.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.estimate.intervals import AnalysisError
from bench.record.notices import Notice
from bench.record.run import RunRecord
from bench.record.sample import ArmName, Case, Outcome, Sample

SHARES = ("open_s", "read_s", "h2d_s", "scatter_s")
MIN_SHARE = 0.98  # of the sum of parts, in seconds: a GPU times copies by a clock of its own


def require_sound(sample: Sample) -> None:
    """Stop on impossible seconds, lengths or bytes."""
    seconds = sample.outcome.seconds
    case = sample.case
    if case.prefix_tokens < 1 - (case.arm == "gemm") or (sample.outcome.num_bytes or 0) < 0:
        raise AnalysisError(
            f"{case.arm} {case.series}, round {sample.round + 1}, sample {sample.sample}: {case.prefix_tokens} tokens and "
            f"{sample.outcome.num_bytes} bytes are impossible. Delete that row of samples.csv."
        )
    parts = (sample.outcome.first_token_s, *(getattr(sample.outcome, name) for name in SHARES))
    if not math.isfinite(seconds) or seconds <= 0 or not all(math.isfinite(part or 0.0) for part in parts):
        raise _impossible(sample, f"{seconds!r} s is not a duration")


def require_measurable(run: RunRecord, samples: Sequence[Sample]) -> None:
    """Stop on samples that are impossible for this run."""
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
        f"sample {sample.sample}: {what}. Delete that row of samples.csv or measure again."
    )


def _require_parts(sample: Sample, *, ranks: int) -> None:
    """Seconds cover the longest share of a load plus, on a single rank, the first-token step."""
    outcome = sample.outcome
    longest_s = max(getattr(outcome, name) or 0.0 for name in SHARES)
    step_s = outcome.first_token_s or 0.0
    least_s = longest_s + step_s if ranks == 1 else max(longest_s, step_s)
    if outcome.seconds < MIN_SHARE * least_s:
        raise _impossible(
            sample, f"{outcome.seconds:.6g} s in total is less than the {least_s:.6g} s of its parts"
        )


def _require_length(run: RunRecord, sample: Sample) -> None:
    """`kv_bytes_at` has every doubling up to the model's maximum, so the maximum is below the next doubling."""
    tokens = _tokens_of(sample.case)
    if run.kv_bytes_at and tokens >= 2 * max(run.kv_bytes_at):
        raise _impossible(sample, f"{tokens} tokens exceed the maximum of {run.model_name}")


def _tokens_of(case: Case) -> int:
    return case.prefix_tokens + case.suffix_tokens


def _require_bytes(run: RunRecord, sample: Sample) -> None:
    """A load reads all tokens but the last, a hybrid some; without windows and states the bytes are exact."""
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
    """Every load of one series at one length reads the same bytes."""
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


Rounds = Mapping[int, Sequence[Outcome]]  # by round
Table = Mapping[int, Rounds]  # by prefix length
Medians = Mapping[int, Mapping[int, float]]  # seconds by prefix length, then by round
COLD = frozenset({"cold", "direct"})
LOADING = frozenset({"load", "hybrid"})
TRIES = 3  # rounds after which a length may be given up
USABLE_SHARE = (
    0.5  # of the rounds that tried a length; below it, what is left is chosen by what spoilt the rest
)
# kinds of notice that exclude samples, and why they do
FAULTS = {
    "label_disproved": "labelled cold or direct, but their counters or the storage disprove it",
    "not_cold": "not proved cold or direct as requested",
    "above_limit": "faster than their read limit",
    "unchecked_bytes": "not compared with the store",
    "wrong_bytes": "bytes differ from the store",
    "seldom_usable": "at lengths where most rounds have no valid sample",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The valid samples of one series, and notices of the excluded ones."""

    table: Table
    num_left_out: int = 0
    notices: tuple[Notice, ...] = ()


def tabulate(
    samples: Iterable[Sample],
) -> dict[tuple[ArmName, str, int], dict[int, dict[int, list[Outcome]]]]:
    """Outcomes by (arm, series, suffix_tokens), then prefix length, then round."""
    tables: dict[tuple[ArmName, str, int], dict[int, dict[int, list[Outcome]]]] = {}
    for sample in samples:
        require_sound(sample)
        case = sample.case
        table = tables.setdefault((case.arm, case.series, case.suffix_tokens), {})
        table.setdefault(case.prefix_tokens, {}).setdefault(sample.round, []).append(sample.outcome)
    return tables


def select_load(run: RunRecord, series: str, table: Table) -> Selection:
    """Valid samples of a load series: right bytes, in the requested cache state."""
    settings = run.series[series].settings if series in run.series else {}
    asked, in_memory = settings.get("cache_state"), run.in_memory and "server" not in settings
    kept: dict[int, dict[int, list[Outcome]]] = {}
    left_out: Counter[str] = Counter()
    total = 0
    for tokens, number, outcome in _each(table):
        total += 1
        fault = _find_fault(outcome, asked, tokens=tokens, in_memory=in_memory)
        if fault:
            left_out[fault] += 1
        else:
            kept.setdefault(tokens, {}).setdefault(number, []).append(outcome)
    seldom = _seldom_usable(table, kept)
    for tokens in seldom:
        left_out["seldom_usable"] += sum(map(len, kept.pop(tokens, {}).values()))
    notices = [
        Notice(kind=fault, series=series, detail=f"{num} of {total} samples excluded: {FAULTS[fault]}")
        for fault, num in sorted(left_out.items())
        if num
    ]
    notices += [
        Notice(kind="seldom_usable", series=series, detail=f"length {tokens} excluded") for tokens in seldom
    ]
    if asked == "warm":
        detail = "read from a warm page cache, as requested; this is not a cold crossover"
        notices.append(Notice(kind="warm", series=series, detail=detail))
    return Selection(kept, left_out.total(), tuple(notices))


def samples_that_count(run: RunRecord, samples: Iterable[Sample], series: str) -> list[Sample]:
    """The valid samples of one series in their order; all of them if the arm loads nothing."""
    found = [sample for sample in samples if sample.case.series == series]
    kept: set[int] = set()
    for (arm, _, _), table in tabulate(found).items():
        counted = select_load(run, series, table).table if arm in LOADING else table
        kept |= {id(outcome) for _, _, outcome in _each(counted)}
    return [sample for sample in found if id(sample.outcome) in kept]


def _seldom_usable(tried: Table, kept: Table) -> list[int]:
    """Lengths at which less than USABLE_SHARE of the rounds have a valid sample, ascending."""
    return sorted(
        tokens
        for tokens, rounds in tried.items()
        if len(rounds) >= TRIES and 0 < len(kept.get(tokens, {})) < USABLE_SHARE * len(rounds)
    )


def _each(table: Table) -> Iterator[tuple[int, int, Outcome]]:
    for tokens, rounds in table.items():
        for number, outcomes in rounds.items():
            yield from ((tokens, number, outcome) for outcome in outcomes)


def _find_fault(outcome: Outcome, asked: object, *, tokens: int, in_memory: bool) -> str:
    """The fault of a load sample, empty if valid.  An unchecked state is no proof; `in_memory`: no read is cold."""
    if outcome.verified is False:
        return "wrong_bytes"
    if outcome.load_fraction == 0 and not outcome.num_bytes:
        return ""  # recompute was done first: nothing was read, so there is nothing to prove
    if tokens == 1 and outcome.num_bytes == 0:
        return ""  # nor is anything of one token, which the first-token step computes
    if asked is not None and outcome.verified is None:
        return "unchecked_bytes"
    if "above_limit" in outcome.notices:
        return "above_limit"
    if outcome.cache_state in COLD and (in_memory or outcome.served_from_cache):
        return "label_disproved"
    return "not_cold" if asked in COLD and outcome.cache_state not in COLD else ""


def round_medians(table: Table) -> dict[int, dict[int, float]]:
    """Median seconds of the samples of each round: samples of one process are pooled only here."""
    return {
        tokens: {
            number: float(np.median([o.seconds for o in outcomes])) for number, outcomes in rounds.items()
        }
        for tokens, rounds in table.items()
    }


def pair_rounds(recompute: Medians, load: Medians) -> list[dict[float, float]]:
    """Per round {length: log(recompute / load)} where that round measured both arms, in order of rounds."""
    rounds: dict[int, dict[float, float]] = {}
    for tokens in recompute.keys() & load.keys():
        for number in recompute[tokens].keys() & load[tokens].keys():
            ratio = math.log(recompute[tokens][number]) - math.log(load[tokens][number])
            rounds.setdefault(number, {})[float(tokens)] = ratio
    return [rounds[number] for number in sorted(rounds)]


def notice_depths(samples: Sequence[Sample]) -> list[Notice]:
    """Notice samples of different depths in one series: each depth has its own scaling error."""
    depths: dict[str, set[int]] = {}
    for sample in samples:
        if sample.outcome.measured_layers is not None:
            depths.setdefault(sample.case.series, set()).add(sample.outcome.measured_layers)
    return [
        Notice(
            kind="mixed_depths",
            series=series,
            detail=f"samples with {' and '.join(map(str, sorted(found)))} layers are pooled",
        )
        for series, found in depths.items()
        if len(found) > 1
    ]


def notice_unknown_series(run: RunRecord, samples: Sequence[Sample]) -> list[Notice]:
    """Notice series missing from run.json: their cache state and layout are unknown."""
    known = {(name, info.arm) for name, info in run.series.items()}
    measured = dict.fromkeys((sample.case.series, sample.case.arm) for sample in samples)
    return [
        Notice(kind="unknown_series", series=name, detail=f"run.json names no {arm} series {name}")
        for name, arm in measured
        if (name, arm) not in known
    ]
