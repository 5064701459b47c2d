"""What P* compares, in words: the next KV chunk, or the next so many tokens where a suffix was asked for."""

from bench.estimate.results import SweetSpot
from bench.record.run import RunRecord
from bench.record.units import format_tokens


def say_arms(run: RunRecord, series: str | None) -> tuple[str, str]:
    """What is loaded and what is computed beyond P*: ("loading the next KV chunk", "computing it")."""
    suffix = run.plan.suffix_tokens
    if not suffix:
        return "loading the next KV chunk", "computing it"
    return f"loading {say_suffix(run, series)}", "computing them" if suffix != 1 else "computing it"


def say_suffix(run: RunRecord, series: str | None) -> str:
    """What a run with a suffix asks about: "the next 1,000 tokens (loaded in whole KV chunks of 256)".

    A suffix is loaded with all of the KV chunks that hold it, and computed without the rest of them.
    """
    suffix = run.plan.suffix_tokens
    said = f"the next {format_tokens(suffix)} tokens" if suffix != 1 else "the next token"
    chunk_tokens = _find_chunk(run, series)
    if run.plan.simulation is not None or suffix % chunk_tokens == 0:
        return said
    return f"{said} (loaded in whole KV chunks of {format_tokens(chunk_tokens)})"


def of_suffix(run: RunRecord, spot: SweetSpot) -> str:
    """What stands behind the name of a P* that was asked for with a suffix: " of the next 1,000 tokens"; else nothing."""
    asked = spot.kind == "marginal" and run.plan.suffix_tokens
    return f" of {say_suffix(run, spot.series)}" if asked else ""


def _find_chunk(run: RunRecord, series: str | None) -> int:
    """Tokens of one KV chunk of the series, the run's unless it has its own."""
    own = run.series[series].settings.get("chunk_tokens") if series in run.series else None
    return own if isinstance(own, int) and own > 0 else run.chunk_tokens
