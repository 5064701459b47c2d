"""The capacity tables as a person reads them: decimal units, binary ones next to them, missing said as such."""

from typing import Any

import pandas as pd

from bench.record.units import MISSING, format_bytes, format_share, format_tokens, printable, round_digits
from bench.report.text.planning_text import Tables, records, text_table

NONE_FILLS = "no length fills it"


def format_both(num_bytes: int) -> str:
    """Decimal and binary, four digits each: "32.77 TB (29.80 TiB)"."""
    scales = [
        (2 ** (10 * power), 10 ** (3 * power), prefix) for power, prefix in enumerate("KMGTPE", start=1)
    ]
    for binary, decimal, prefix in reversed(scales):
        if abs(num_bytes) >= decimal:
            both = round_digits(num_bytes / decimal, 4), round_digits(num_bytes / binary, 4)
            return f"{both[0]} {prefix.replace('K', 'k')}B ({both[1]} {prefix}iB)"
    return f"{num_bytes} B"


def capacity_text(tables: Tables) -> str:
    """All tables, one below the other, each with its origin in the title."""
    return "\n\n".join(DRAWN[name](frame) for name, frame in tables.items())


def _models(frame: pd.DataFrame) -> str:
    rows = [
        (
            printable(row["model"]),
            row["attention_kind"],
            row["kv_dtype"],
            f"{row['kv_bytes_per_token']:,}",
            MISSING if row["context_tokens"] is None else format_tokens(row["context_tokens"]),
        )
        for row in records(frame)
    ]
    headings = ("model", "kind", "KV dtype", "bytes/token", "context")
    return text_table("Models of the catalogue (arithmetic)", headings, rows)


def _tokens(frame: pd.DataFrame) -> str:
    headings = ("model", "kind", "KV dtype", "bytes/token", "beyond window", "state", "TP", "bytes/token of a rank",
                "kept how often", "2BSLHD", "formula wrong by")  # fmt: skip
    rows = [
        (
            printable(row["model"]),
            row["attention_kind"],
            row["kv_dtype"],
            f"{row['kv_bytes_per_token']:,}",
            f"{row['beyond_window_bytes_per_token']:,}",
            format_bytes(row["state_bytes"]) if row["state_bytes"] else MISSING,
            str(row["tensor_parallel"]),
            f"{row['rank_bytes_per_token']:,}",
            f"{row['replication_factor']:.3g} x",
            f"{row['mha_formula_bytes_per_token']:,}",
            "right" if row["mha_formula_factor"] == 1 else f"{row['mha_formula_factor']:.4g} x",
        )
        for row in records(frame)
    ]
    at = frame["at_tokens"].iloc[0]
    return text_table(f"KV bytes of a token (arithmetic; factors at {at:,} tokens)", headings, rows)


def _lengths(frame: pd.DataFrame) -> str:
    rows = [
        (printable(row["model"]), format_tokens(row["tokens"]), f"{row['kv_bytes']:,}", format_both(row["kv_bytes"]),
         format_both(row["kv_bytes_on_ranks"]))
        for row in records(frame)
    ]  # fmt: skip
    return text_table(
        "KV against length (arithmetic)", ("model", "tokens", "bytes", "KV, once", "on all ranks"), rows
    )


def _users(frame: pd.DataFrame) -> str:
    rows = [
        (printable(row["model"]), f"{row['users']:,}", format_tokens(row["tokens"]), format_both(row["user_bytes"]),
         format_both(row["kv_bytes"]), format_both(row["kv_bytes_on_ranks"]))
        for row in records(frame)
    ]  # fmt: skip
    headings = ("model", "users", "tokens each", "KV of a user", "KV of all, once", "on all ranks")
    return text_table("Users x context, nothing shared (arithmetic)", headings, rows)


def _room(frame: pd.DataFrame) -> str:
    rows = [
        (printable(row["model"]), format_both(row["room_bytes"]), _most(row["sequence_tokens"]),
         format_tokens(row["tokens"]), f"{row['users']:,}", f"{row['users_as_ranks_keep_it']:,}")
        for row in records(frame)
    ]  # fmt: skip
    headings = ("model", "room", "tokens in one sequence", "tokens each", "users", "users, a copy per rank")
    return text_table("What fits into DRAM or a drive (arithmetic)", headings, rows)


def _gpu(frame: pd.DataFrame) -> str:
    rows = [
        (printable(row["model"]), str(row["tensor_parallel"]), format_both(row["memory_bytes"]),
         f"{format_bytes(row['weight_bytes'])}, {format_share(row['weight_share'])}",
         format_bytes(row["reserve_bytes"]), _left(row), _most(row["sequence_tokens"]),
         format_tokens(row["tokens"]), f"{row['users']:,}")
        for row in records(frame)
    ]  # fmt: skip
    headings = ("model", "TP", "memory of a GPU", "weights", "reserve", "left for KV", "tokens in one sequence",
                "tokens each", "users")  # fmt: skip
    return text_table("GPU memory (arithmetic)", headings, rows)


def _left(row: dict[str, Any]) -> str:
    if row["kv_bytes"] <= 0:
        return f"none: {format_bytes(-row['kv_bytes'])} short"
    return f"{format_bytes(row['kv_bytes'])}, {format_share(row['kv_share'])}"


def _most(tokens: int | None) -> str:
    return NONE_FILLS if tokens is None else format_tokens(tokens)


DRAWN = {
    "models": _models,
    "bytes_per_token": _tokens,
    "lengths": _lengths,
    "users": _users,
    "room": _room,
    "gpu": _gpu,
}
