"""Recompute against load over long contexts, as a person reads it: every line says that it is modelled."""

from typing import Any

import pandas as pd

from bench.show.numbers import (
    MISSING,
    format_bytes,
    format_rate,
    format_seconds,
    format_tokens,
    printable,
    round_digits,
)
from bench.show.tables import Tables, records, text_table


def longctx_text(tables: Tables) -> str:
    """A table per storage, its crossovers below it, and at the end what was supposed."""
    (setting,) = records(tables["setting"])
    blocks = [f"modelled: {printable(setting['label'])}"]
    crossings = records(tables["crossovers"])
    for rate, rows in tables["times"].groupby("bytes_per_s", sort=False):
        block = [_times(float(str(rate)), rows)]
        block += [_say(row) for row in crossings if row["bytes_per_s"] == rate]
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


def _say(row: dict[str, Any]) -> str:
    words = row["verdict"].replace("_", " ")
    if row["tokens"] is None:
        return f"{row['crossover']} (modelled): {words}"
    bounds = (
        MISSING
        if row["low_tokens"] is None
        else f"{format_tokens(row['low_tokens'])} to {format_tokens(row['high_tokens'])}"
    )
    return f"{row['crossover']} (modelled): load wins beyond {format_tokens(row['tokens'])} tokens [{bounds}], {words}"
