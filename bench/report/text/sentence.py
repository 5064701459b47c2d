"""The answer in one sentence: for which model, device and storage, from where on, and how sure.

What P* compares, in words: the next KV chunk, or the next so many tokens where a suffix was asked for.

How many rounds and samples stand behind an answer: those that count, of rounds that measured both arms.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from bench.estimate.paired_rounds import find_chunk_tokens
from bench.estimate.results import Analysis, Crossing, SweetSpot
from bench.estimate.valid_samples import samples_that_count
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import format_token_range, format_tokens, printable
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import (
    backend_name,
    data_path,
    device_name,
    format_cache,
    format_depth,
    format_model,
    load_series,
    series_label,
    storage_name,
)
from bench.report.text.format import format_tokens_estimate
from bench.report.text.main_answer import asked_spot, main_spot


def format_arms(run: RunRecord, series: str | None) -> tuple[str, str]:
    """What is loaded and what is computed beyond P*: ("loading the next KV chunk", "computing it")."""
    suffix = run.plan.suffix_tokens
    if not suffix:
        return "loading the next KV chunk", "computing it"
    return f"loading {format_suffix(run, series)}", "computing them" if suffix != 1 else "computing it"


def format_suffix(run: RunRecord, series: str | None) -> str:
    """What a run with a suffix asks about: "the next 1,000 tokens (loaded in whole KV chunks of 256)".

    A suffix is loaded with all of the KV chunks that hold it, and computed without the rest of them.
    """
    suffix = run.plan.suffix_tokens
    said = f"the next {format_tokens(suffix)} tokens" if suffix != 1 else "the next token"
    chunk_tokens = find_chunk_tokens(run, series)
    if run.plan.simulation is not None or suffix % chunk_tokens == 0:
        return said
    return f"{said} (loaded in whole KV chunks of {format_tokens(chunk_tokens)})"


def of_suffix(run: RunRecord, spot: SweetSpot) -> str:
    """What stands behind the name of a P* that was asked for with a suffix: " of the next 1,000 tokens"; else nothing."""
    asked = spot.kind == "marginal" and run.plan.suffix_tokens
    return f" of {format_suffix(run, spot.series)}" if asked else ""


Rounds = dict[int, dict[int, tuple[int, int]]]  # by round, by length: samples of recompute and of load


def format_repeats(
    run: RunRecord,
    samples: Sequence[Sample],
    *,
    series: Collection[str] | None = None,
    crossings: Sequence[Crossing] = (),
) -> str:
    """Rounds, and samples of an arm in a round: "8 rounds × 5 samples"; ranges where lengths differ.

    Args:
        run: whose samples these are.
        samples: all of them.
        series: load series whose answer it is; None counts all.
        crossings: the answer.  Then the rounds count that measured on both sides of a crossing, with their samples at
            the nearest lengths there; and it is said where that is not what every length has.
    """
    arms = list(_count_arms(run, samples, series))
    everywhere = _format_message([at for rounds in arms for at in _by_length(rounds)])
    measured = [crossing for crossing in crossings if not crossing.extrapolated]
    if not measured:
        return everywhere
    said = _format_message(
        [_around(rounds, crossing.tokens.value) for rounds in arms for crossing in measured]
    )
    return said if said == everywhere else f"{said} around the crossing{'s' * (len(measured) != 1)}"


def _count_arms(
    run: RunRecord, samples: Sequence[Sample], series: Collection[str] | None
) -> Iterator[Rounds]:
    """Rounds of each load series that measured recompute too, of samples that answer what was asked."""
    asked = [sample for sample in samples if sample.case.suffix_tokens == run.plan.suffix_tokens]
    recompute = _count([sample for sample in asked if sample.case.arm == "recompute"])
    for name in dict.fromkeys(sample.case.series for sample in asked if sample.case.arm == "load"):
        if series is None or name in series:
            load = _count(samples_that_count(run, asked, name))
            rounds: Rounds = {}
            for number, tokens in sorted(recompute.keys() & load.keys()):
                rounds.setdefault(number, {})[tokens] = recompute[number, tokens], load[number, tokens]
            yield rounds


def _count(samples: Sequence[Sample]) -> Counter[tuple[int, int]]:
    return Counter((sample.round, sample.case.prefix_tokens) for sample in samples)


def _by_length(rounds: Rounds) -> Iterator[list[tuple[int, ...]]]:
    """The samples of each round at every length."""
    for tokens in sorted({tokens for lengths in rounds.values() for tokens in lengths}):
        yield [lengths[tokens] for lengths in rounds.values() if tokens in lengths]


def _around(rounds: Rounds, tokens: float) -> list[tuple[int, ...]]:
    """The samples of each round at its nearest lengths on both sides of `tokens`; rounds that have none are left out."""
    found: list[tuple[int, ...]] = []
    for lengths in rounds.values():
        ordered = sorted(lengths)
        below, above = bisect_right(ordered, tokens) - 1, bisect_left(ordered, tokens)
        if below >= 0 and above < len(ordered):
            found.append((*lengths[ordered[below]], *lengths[ordered[above]]))
    return found


def _format_message(places: Sequence[Sequence[Sequence[int]]]) -> str:
    """Of places on the length axis, each with the samples of its rounds."""
    repeats = {count for rounds in places for counts in rounds for count in counts}
    return (
        f"{_format_range({len(rounds) for rounds in places}, 'round')} × {_format_range(repeats, 'sample')}"
    )


def _format_range(counts: Collection[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low}{f' to {high}' if high > low else ''} {noun}{'s' * (high != 1)}"


SYMBOLS = {"whole": "C*", "marginal": "P*"}


def crossover_name(spot: SweetSpot) -> str:
    """C* or P*, with the statistic of the load time unless it is the median: "C* (p95 load)"."""
    symbol = SYMBOLS[spot.kind]
    return symbol if spot.statistic == "p50" else f"{symbol} ({spot.statistic} load)"


def describe_answer(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> str:
    """The sentence of the run's main answer; with nothing analysed, the sentence that says so."""
    spot = main_spot(run, analysis)
    if spot is None:
        return (
            f"For {format_model(run)} on {device_name(run)} "
            f"with {storage_name(run)}, nothing can be said: "
            f"no load series was measured ({format_repeats(run, samples)})."
        )
    return sentence(run, samples, analysis, spot=spot)


def sentence(run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, spot: SweetSpot) -> str:
    """One sentence that says one spot, and all that the answer depends on."""
    path = data_path(run, samples, series=spot.series) or "an unproven data path"
    cache = format_cache(run, samples, series=spot.series)
    backend = backend_name(run, spot.series)
    by = f" by {backend}" if backend is not None else f" by {series_label(run, spot.series)}"
    single = spot.verdict == "crossover"
    qualities = [
        format_interval(spot.crossings[0]) if single else None,
        f"measured {format_token_range(spot.measured_range)}" if spot.measured_range else "no range measured",
        format_repeats(run, samples, series={spot.series}, crossings=spot.crossings),
        format_depth(samples),
    ]
    suspects = suspect_codes(run, samples, analysis, series=spot.series)
    doubt = f"; suspect: {', '.join(suspects)}" if suspects else ""
    return (
        f"For {format_model(run)} on {device_name(run)}, "
        f"loading from {storage_name(run, spot.series)}{by} over {path}{f' ({cache})' if cache else ''}, "
        f"{_predicate(run, spot)} ({', '.join(part for part in qualities if part)}{doubt})."
    )


def describe_undecided(run: RunRecord, analysis: Analysis) -> tuple[str, ...]:
    """One sentence for each load series but that of the main answer of which nothing can be said: why."""
    main = main_spot(run, analysis)
    spots = [asked_spot(run, analysis, series) for series in load_series(run, analysis)]
    return tuple(
        f"Load by {series_label(run, spot.series)}: {_predicate(run, spot)}."
        for spot in spots
        if spot is not None and spot is not main and spot.verdict == "inconclusive"
    )


def short_answer(spot: SweetSpot) -> str:
    """The verdict in a few words: for tiles and comparisons."""
    name = crossover_name(spot)
    if spot.verdict in {"crossover", "multiple_crossings"}:
        return f"{name}{format_places(spot)}"
    return {
        "load_always_wins": f"no {name}: load always wins",
        "recompute_always_wins": f"no {name}: recompute always wins",
        "inconclusive": f"{name} inconclusive",
    }[spot.verdict]


def format_places(spot: SweetSpot) -> str:
    """Where load wins, after the name: " = 7,208 tokens", " = 700 tokens (load wins below)", or of several all."""
    if len(spot.crossings) == 1:
        falling = "" if spot.crossings[0].load_wins_beyond else " (load wins below)"
        return f" = {format_tokens(spot.crossings[0].tokens.value)} tokens{falling}"
    turns = (
        f"{'beyond' if crossing.load_wins_beyond else 'below'} {format_tokens(crossing.tokens.value)}"
        for crossing in spot.crossings
    )
    return f": load wins {' and '.join(turns)} tokens"


def format_crossing(crossing: Crossing) -> str:
    """Tokens with interval of one crossing, and what it is if not the usual: a falling one, an extrapolation."""
    turn = "" if crossing.load_wins_beyond else " (recompute wins beyond)"
    fitted = " (extrapolated)" if crossing.extrapolated else ""
    return format_tokens_estimate(crossing.tokens) + turn + fitted


def format_interval(crossing: Crossing) -> str:
    """The 95 % interval of a crossing, or why there is none."""
    low, high = crossing.tokens.low, crossing.tokens.high
    if crossing.extrapolated:
        return "no 95 % interval: extrapolated"
    if low is None or high is None:
        return "no 95 % interval: too few rounds"
    return f"95 % interval {format_tokens(low)} to {format_tokens(high)} tokens"


def format_guess(crossing: Crossing) -> str:
    """A crossing that is not the answer: where it may lie, and how that is known."""
    if crossing.extrapolated:
        return f"the fitted curves cross at {format_tokens(crossing.tokens.value)} tokens, an extrapolation"
    return f"the best guess is {format_tokens(crossing.tokens.value)} tokens ({format_interval(crossing)})"


def _predicate(run: RunRecord, spot: SweetSpot) -> str:
    name = crossover_name(spot)
    whole = "loading the whole prefix", "recomputing it"
    what = whole if spot.kind == "whole" else format_arms(run, spot.series)
    if spot.verdict == "crossover":
        return _crossover(spot, *what)
    if spot.verdict == "multiple_crossings":
        return _crossings(spot, f"{name}{of_suffix(run, spot)}")
    guess = "".join(f"; {format_guess(crossing)}" for crossing in spot.crossings)
    if spot.verdict == "load_always_wins":
        return (
            f"{what[0]} is faster than {what[1]} at every measured length, "
            f"so no {name} lies in the range{guess}"
        )
    if spot.verdict == "recompute_always_wins":
        return (
            f"{what[0]} is never faster than {what[1]} at any measured length, "
            f"so no {name} lies in the range{guess}"
        )
    return f"no {name}{of_suffix(run, spot)} can be named, because {printable(spot.reason) or 'the rounds disagree'}{guess}"


def _crossover(spot: SweetSpot, loading: str, recomputing: str) -> str:
    crossing = spot.crossings[0]
    turn = "beyond" if crossing.load_wins_beyond else "only below"
    return (
        f"{loading} is faster than {recomputing} {turn} {crossover_name(spot)} = "
        f"{format_tokens(crossing.tokens.value)} tokens"
    )


def _crossings(spot: SweetSpot, name: str) -> str:
    turns = [
        f"{'loading' if crossing.load_wins_beyond else 'recomputing'} wins beyond "
        f"{format_tokens(crossing.tokens.value)} tokens ({format_interval(crossing)}"
        f"{', extrapolated' if crossing.extrapolated else ''})"
        for crossing in spot.crossings
    ]
    return f"there are {len(turns)} crossings {name}: {', then '.join(turns)}"
