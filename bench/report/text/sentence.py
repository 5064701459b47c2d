"""The answer in one sentence: for which model, device and storage, from where on, and how sure."""

from collections.abc import Sequence

from bench.estimate.results import Analysis, Crossing, SweetSpot
from bench.record.run import RunRecord, Sample
from bench.record.units import format_token_range, format_tokens, printable
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import (
    backend_name,
    data_path,
    device_name,
    load_series,
    say_cache,
    say_depth,
    say_model,
    series_label,
    storage_name,
)
from bench.report.text.asked import of_suffix, say_arms
from bench.report.text.format import format_tokens_estimate
from bench.report.text.main_answer import asked_spot, main_spot
from bench.report.text.repeats import say_repeats

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
            f"For {say_model(run)} on {device_name(run)} "
            f"with {storage_name(run)}, nothing can be said: "
            f"no load series was measured ({say_repeats(run, samples)})."
        )
    return sentence(run, samples, analysis, spot=spot)


def sentence(run: RunRecord, samples: Sequence[Sample], analysis: Analysis, *, spot: SweetSpot) -> str:
    """One sentence that says one spot, and all that the answer depends on."""
    path = data_path(run, samples, series=spot.series) or "an unproven data path"
    cache = say_cache(run, samples, series=spot.series)
    backend = backend_name(run, spot.series)
    by = f" by {backend}" if backend is not None else f" by {series_label(run, spot.series)}"
    single = spot.verdict == "crossover"
    qualities = [
        say_interval(spot.crossings[0]) if single else None,
        f"measured {format_token_range(spot.measured_range)}" if spot.measured_range else "no range measured",
        say_repeats(run, samples, series={spot.series}, crossings=spot.crossings),
        say_depth(samples),
    ]
    suspects = suspect_codes(run, samples, analysis, series=spot.series)
    doubt = f"; suspect: {', '.join(suspects)}" if suspects else ""
    return (
        f"For {say_model(run)} on {device_name(run)}, "
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
        return f"{name}{say_places(spot)}"
    return {
        "load_always_wins": f"no {name}: load always wins",
        "recompute_always_wins": f"no {name}: recompute always wins",
        "inconclusive": f"{name} inconclusive",
    }[spot.verdict]


def say_places(spot: SweetSpot) -> str:
    """Where load wins, after the name: " = 7,208 tokens", " = 700 tokens (load wins below)", or of several all."""
    if len(spot.crossings) == 1:
        falling = "" if spot.crossings[0].load_wins_beyond else " (load wins below)"
        return f" = {format_tokens(spot.crossings[0].tokens.value)} tokens{falling}"
    turns = (
        f"{'beyond' if crossing.load_wins_beyond else 'below'} {format_tokens(crossing.tokens.value)}"
        for crossing in spot.crossings
    )
    return f": load wins {' and '.join(turns)} tokens"


def say_crossing(crossing: Crossing) -> str:
    """Tokens with interval of one crossing, and what it is if not the usual: a falling one, an extrapolation."""
    turn = "" if crossing.load_wins_beyond else " (recompute wins beyond)"
    fitted = " (extrapolated)" if crossing.extrapolated else ""
    return format_tokens_estimate(crossing.tokens) + turn + fitted


def say_interval(crossing: Crossing) -> str:
    """The 95 % interval of a crossing, or why there is none."""
    low, high = crossing.tokens.low, crossing.tokens.high
    if crossing.extrapolated:
        return "no 95 % interval: extrapolated"
    if low is None or high is None:
        return "no 95 % interval: too few rounds"
    return f"95 % interval {format_tokens(low)} to {format_tokens(high)} tokens"


def say_guess(crossing: Crossing) -> str:
    """A crossing that is not the answer: where it may lie, and how that is known."""
    if crossing.extrapolated:
        return f"the fitted curves cross at {format_tokens(crossing.tokens.value)} tokens, an extrapolation"
    return f"the best guess is {format_tokens(crossing.tokens.value)} tokens ({say_interval(crossing)})"


def _predicate(run: RunRecord, spot: SweetSpot) -> str:
    name = crossover_name(spot)
    whole = "loading the whole prefix", "recomputing it"
    what = whole if spot.kind == "whole" else say_arms(run, spot.series)
    if spot.verdict == "crossover":
        return _crossover(spot, *what)
    if spot.verdict == "multiple_crossings":
        return _crossings(spot, f"{name}{of_suffix(run, spot)}")
    guess = "".join(f"; {say_guess(crossing)}" for crossing in spot.crossings)
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
        f"{format_tokens(crossing.tokens.value)} tokens ({say_interval(crossing)}"
        f"{', extrapolated' if crossing.extrapolated else ''})"
        for crossing in spot.crossings
    ]
    return f"there are {len(turns)} crossings {name}: {', then '.join(turns)}"
