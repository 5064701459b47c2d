"""Recompute against load over long contexts, as a person reads it: every line says that it is modelled."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from bench.record.units import (
    MISSING,
    format_bytes,
    format_rate,
    format_seconds,
    format_tokens,
    printable,
    round_digits,
)
from bench.report.text.planning_text import Tables, records, text_table


def longctx_text(tables: Tables) -> str:
    """A table per storage, its crossovers below it, and at the end what was supposed."""
    (setting,) = records(tables["setting"])
    lines = [f"modelled: {printable(setting['label'])}"]
    if setting["taken"] is not None:
        lines.append(f"taken: {printable(setting['taken'])}")
    blocks = ["\n".join(lines)]
    crossings = records(tables["crossovers"])
    for rate, rows in tables["times"].groupby("bytes_per_s", sort=False):
        block = [_times(float(str(rate)), rows)]
        ours = [row for row in crossings if row["bytes_per_s"] == rate]
        block += [_format_message(list(rows)) for _, rows in groupby(ours, key=lambda row: row["crossover"])]
        blocks.append("\n".join(block))
    blocks.append("\n".join(f"supposed: {printable(row['notice'])}" for row in records(tables["notices"])))
    return "\n\n".join(block for block in blocks if block)


def _times(bytes_per_s: float, frame: pd.DataFrame) -> str:
    rows = [
        (
            format_tokens(row["tokens"]),
            format_bytes(row["kv_bytes"]),
            format_seconds(row["recompute_s"]),
            format_seconds(row["load_s"]),
            round_digits(row["recompute_per_load_ratio"]),
            format_rate(row["break_even_bytes_per_s"]),
            format_seconds(row["recompute_all_full_s"]),
            format_bytes(row["kv_all_full_bytes"]),
        )
        for row in records(frame)
    ]
    headings = ("tokens", "KV read", "recompute", "load", "recompute/load", "break-even",
                "recompute, all layers full", "KV, all layers full")  # fmt: skip
    return text_table(f"Storage of {format_rate(bytes_per_s)} (modelled)", headings, rows)


def _format_message(rows: Sequence[dict[str, Any]]) -> str:
    """Every range in which load wins, of one kind of crossover."""
    name = f"{rows[0]['crossover']} (modelled)"
    words = rows[0]["verdict"].replace("_", " ")
    if rows[0]["tokens"] is None:
        return f"{name}: {words}"
    ranges, start = [], None
    for row in rows:
        if row["load_wins_beyond"]:
            start = _place(row)
            continue
        ranges.append(f"up to {_place(row)}" if start is None else f"from {start} to {_place(row)}")
        start = None
    if start is not None:
        ranges.append(f"beyond {start}")
    return f"{name}: load wins {' and '.join(ranges)}, {words}"


def _place(row: dict[str, Any]) -> str:
    """One crossing with its bounds."""
    bounds = MISSING
    if row["low_tokens"] is not None:
        bounds = f"{format_tokens(row['low_tokens'])} to {format_tokens(row['high_tokens'])}"
    return f"{format_tokens(row['tokens'])} tokens [{bounds}]"
