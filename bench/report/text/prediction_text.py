"""Predictions as text and tables, each row and sentence marked as modelled."""

from collections.abc import Iterator, Sequence
from math import inf

import pandas as pd

from bench.estimate.results import Crossing, Estimate, Point, SweetSpot
from bench.predict.prediction import UNDECIDED, ModelledAnswer, faster_arm
from bench.predict.published_check import Compared, RowOutcome, count_inside, median_error
from bench.record.notices import Notice
from bench.record.units import count_of, format_bytes, format_rate, format_tokens, printable, round_digits
from bench.report.text.format import format_ratio_estimate, format_seconds_estimate
from bench.report.text.sentence import short_answer
from bench.report.text.terminal import align

HEADINGS = ("prefix tokens", "recompute", "load", "recompute/load", "faster", "KV read", "GB/s", "break-even")
FULL_HEADINGS = ("recompute, all layers full", "KV, all layers full")
NAMES = {"whole": "C*", "marginal": "P*"}
WHAT = {
    "whole": ("loading the whole prefix", "recomputing it"),
    "marginal": ("loading the next KV chunk of {chunk}", "computing it"),
}
# what a verdict that holds within the bounds too means for the one that is named
DOUBTS = {
    "load_always_wins": "load may win at every length",
    "recompute_always_wins": "recompute may win at every length",
    "multiple_crossings": "there may be several crossings",
    "crossover": "there may be one crossing",
}


def _cells(point: Point) -> tuple[str, ...]:
    rate = point.bytes_per_s
    return (
        format_tokens(point.prefix_tokens),
        format_seconds_estimate(point.recompute_s),
        format_seconds_estimate(point.load_s),
        format_ratio_estimate(point.ratio),
        faster_arm(point),
        format_bytes(point.num_bytes),
        "—" if rate is None else round_digits(rate.value / 1e9),
        format_rate(point.break_even_bytes_per_s),
    )


def _full_cells(point: Point) -> tuple[str, str]:
    return format_seconds_estimate(point.recompute_s), format_bytes(point.num_bytes)


def answer_text(answer: ModelledAnswer) -> str:
    """Table, sentences of C* and P*, and what had to be supposed."""
    rows: list[tuple[str, ...]] = [HEADINGS, *map(_cells, answer.points)]
    if answer.full_attention:
        full = map(_full_cells, answer.full_attention)
        rows = [(*row, *more) for row, more in zip(rows, (FULL_HEADINGS, *full), strict=True)]
    lines = [f"modelled: {printable(answer.label)}", *align(rows)]
    lines += [f"modelled: {format_spot(spot, answer.chunk_tokens)}" for spot in answer.spots]
    lines += [f"supposed: {printable(notice)}" for notice in answer.notices]
    return "\n".join(lines)


def format_spot(spot: SweetSpot, chunk_tokens: int) -> str:
    """The verdict of one modelled spot in one sentence."""
    chunk = count_of(chunk_tokens, "token")
    loading, other = (words.format(chunk=chunk) for words in WHAT[spot.kind])
    words = {
        "crossover": f"{loading} against {other}: {short_answer(spot)}",
        "multiple_crossings": f"{loading} against {other}: {len(spot.crossings)} crossings, {short_answer(spot)}",
        "load_always_wins": f"{loading} is faster than {other} everywhere: {short_answer(spot)}",
        "recompute_always_wins": f"{loading} is never faster than {other}: {short_answer(spot)}",
    }[spot.verdict]
    doubts = [
        DOUBTS[name]
        for name in DOUBTS
        for notice in spot.notices
        if notice == Notice(kind=UNDECIDED, detail=name)
    ]
    if doubts:
        words += f", but {UNDECIDED}: within the bounds of the times {' or '.join(doubts)}"
    bounded = any(crossing.tokens.low is not None for crossing in spot.crossings)
    details = [_format_crossing(crossing, is_sure=not doubts, bounded=bounded) for crossing in spot.crossings]
    details.append(spot.reason)
    if spot.export_tokens is not None:
        details.append(f"{format_tokens(spot.export_tokens)} in whole chunks of {chunk}")
    return f"{words} ({'; '.join(details)})"


def _format_crossing(crossing: Crossing, *, is_sure: bool, bounded: bool) -> str:
    """Which side load wins on, and the bounds; where they hold another verdict too, of the last crossing alone."""
    direction = "load wins beyond" if crossing.load_wins_beyond else "load wins only below"
    said = [direction, *(["extrapolated"] if crossing.extrapolated else [])]
    low, high = crossing.tokens.low, crossing.tokens.high
    if low is not None and high is not None:
        said.append(
            f"{format_tokens(low)} to {format_tokens(high)}{'' if is_sure else ' for the last crossing'}"
        )
    elif is_sure:
        said.append("its bounds are open" if bounded else "no bounds known")
    return ", ".join(said)


def answer_tables(answers: Sequence[ModelledAnswer]) -> dict[str, pd.DataFrame]:
    """Times by setting and length, and every crossing; one row without tokens where there is none."""
    times = [row for answer in answers for row in _time_rows(answer)]
    crossings = [row for answer in answers for spot in answer.spots for row in _crossing_rows(answer, spot)]
    return {"times": pd.DataFrame(times), "crossings": pd.DataFrame(crossings)}


def _time_rows(answer: ModelledAnswer) -> Iterator[dict[str, object]]:
    full = {point.prefix_tokens: point for point in answer.full_attention}
    for point in answer.points:
        same = full.get(point.prefix_tokens, point)
        yield {
            "origin": "modelled",
            "setting": printable(answer.label),
            "prefix_tokens": point.prefix_tokens,
            **_columns("recompute", point.recompute_s),
            **_columns("load", point.load_s),
            "faster": faster_arm(point),
            "fixed_s": point.first_token_s,
            "num_bytes": point.num_bytes,
            "read_bytes_per_s": point.bytes_per_s and point.bytes_per_s.value,
            "break_even_bytes_per_s": point.break_even_bytes_per_s,
            "recompute_full_attention_s": same.recompute_s and same.recompute_s.value,
            "num_bytes_full_attention": same.num_bytes,
        }


def _columns(name: str, seconds: Estimate | None) -> dict[str, float | None]:
    if seconds is None:
        return dict.fromkeys((f"{name}_s", f"{name}_low_s", f"{name}_high_s"))
    return {f"{name}_s": seconds.value, f"{name}_low_s": seconds.low, f"{name}_high_s": seconds.high}


def _crossing_rows(answer: ModelledAnswer, spot: SweetSpot) -> Iterator[dict[str, object]]:
    for crossing in spot.crossings or (None,):
        yield {
            "origin": "modelled",
            "setting": printable(answer.label),
            "crossover": NAMES[spot.kind],
            "verdict": spot.verdict,
            "load_wins_beyond": crossing and crossing.load_wins_beyond,
            "tokens": crossing and crossing.tokens.value,
            "low_tokens": crossing and crossing.tokens.low,
            "high_tokens": crossing and crossing.tokens.high,
        }


def _format_compared(one: Compared) -> str:
    said = f"{one.quantity} {one.modelled:.4g} modelled"
    if one.low is not None and one.high is not None:
        said += f" [{one.low:.4g}–{'∞' if one.high == inf else f'{one.high:.4g}'}]"
    said += f", {one.published:.4g} published, {100 * one.error:+.1f} %"
    if one.wide:
        said += ", take the bounds and not the number"
    return f"{said}, OUTSIDE of the bounds" if one.inside is False else said


def outcome_lines(outcomes: Sequence[RowOutcome]) -> list[str]:
    """A line per row; the last line is the median over the rows that count."""
    lines = []
    for outcome in outcomes:
        name = printable(outcome.row.id)
        if outcome.refused:
            lines.append(f"{name}: refused: {printable('; '.join(outcome.refused))}")
            continue
        how = (
            "calibrates, not counted"
            if outcome.calibrating
            else "calibrated"
            if outcome.calibrated
            else "modelled"
        )
        said = [", ".join(map(_format_compared, outcome.compared))]
        said += [f"supposed: {printable(one)}" for one in outcome.taken]
        lines.append(f"{name}: {how}: {'; '.join(said)}")
    parts = [median_error([one for one in outcomes if one.calibrated is way]) for way in (True, False)]
    if all(count for _, count in parts):  # else the last line has it
        for kind, (error, count) in zip(("calibrated", "other"), parts, strict=True):
            lines.append(f"rows of {kind} setups: {100 * (error or 0.0):.1f} % over {count} rows")
    inside, bounded = count_inside(outcomes)
    if bounded:
        lines.append(f"within the modelled bounds: {inside} of {bounded} published numbers")
    error, count = median_error(outcomes)
    lines.append(f"median error: {'—' if error is None else f'{100 * error:.1f}'} % over {count} rows")
    return lines
