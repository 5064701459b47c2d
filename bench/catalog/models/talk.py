"""The figures of the talk that kvcross began with, computed again, and where its units slip.

Each value comes from the dimensions in the catalogue.  `printed` is what the talk shows where that is another
figure; `as_printed` repeats the talk's own arithmetic, so that the slip is shown and not only claimed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from bench.catalog.models.kv_capacity import (
    RESERVE_SHARE,
    Cache,
    GpuMemory,
    divide_gpu_memory,
    gpu_table,
    label,
    length_table,
    most_tokens,
    room_table,
    token_table,
    users_table,
)
from bench.catalog.models.resolve import resolve_model

MODELS = ("qwen3-8b", "llama-3.3-70b", "llama-3.1-405b")
FACTOR_MODELS = ("llama-2-13b", *MODELS, "deepseek-v3", "llama-4-maverick")  # one of each kind of attention
USERS_MODEL, MAX_MODEL, GPU_MODEL = "llama-3.3-70b", "llama-3.1-405b", "llama-2-13b"
LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
CONTEXTS = (10_000, 100_000)
USERS = (1, 100, 1_000, 10_000)
TB = 10**12
A100_BYTES = 40 * 10**9
SLIP = "decimal GB divided by 1024 and called TB"


@dataclass(frozen=True, slots=True)
class TalkFigure:
    """One figure of the talk.

    Args:
        what: the question.
        value, unit: the right answer.
        formula: how it comes about.
        printed: what the talk shows, None where it is the same to its digits.
        as_printed: the talk's own arithmetic repeated, in `unit`.
        remark: what is wrong with it, "" where nothing is.
    """

    what: str
    value: float
    unit: str
    formula: str
    printed: float | None = None
    as_printed: float | None = None
    remark: str = ""


def talk_caches(keys: Sequence[str] = MODELS) -> list[Cache]:
    """The talk's models with 2-byte KV on one rank."""
    return [Cache(resolve_model(key)) for key in keys]


def talk_gpu() -> GpuMemory:
    """A 13B model with 2-byte weights on an A100 with 40 GB, and a reserve."""
    return divide_gpu_memory(talk_caches([GPU_MODEL])[0], A100_BYTES, reserve_share=RESERVE_SHARE)


def talk_figures() -> list[TalkFigure]:
    """All figures, in the order of the talk."""
    return [*_token_figures(), *_user_figures(), *_room_figures()]


def talk_tables() -> dict[str, pd.DataFrame]:
    """Everything that the talk shows, by the name of the table."""
    users, gpu = talk_caches([USERS_MODEL]), talk_caches([GPU_MODEL])
    return {
        "talk": talk_table(),
        "bytes_per_token": token_table(talk_caches(FACTOR_MODELS), CONTEXTS[-1]),
        "lengths": length_table(talk_caches(), LENGTHS),
        "users": users_table(users, USERS, CONTEXTS),
        "room": room_table(users, TB, CONTEXTS),
        "gpu": gpu_table(gpu, A100_BYTES, CONTEXTS[:1], reserve_share=RESERVE_SHARE),
    }


def talk_table() -> pd.DataFrame:
    """The figures as rows; a missing cell is one where the talk shows nothing else."""
    columns = ("what", "value", "unit", "printed", "as_printed", "remark", "formula")
    return label([{name: getattr(figure, name) for name in columns} for figure in talk_figures()])


def _token_figures() -> list[TalkFigure]:
    found = [
        TalkFigure(
            f"KV bytes of a token, {cache.model.key}",
            cache.whole.bytes_per_token,
            "B",
            f"2 x {len(cache.model.geometry.layers)} layers x {cache.whole.planes[0].token_bytes} B",
        )
        for cache in talk_caches()
    ]
    longest = talk_caches([MAX_MODEL])[0].whole
    return [
        *found,
        TalkFigure(
            f"KV of 1,000,000 tokens, {MAX_MODEL}",
            longest.bytes_at(1_000_000) / 1e9,
            "GB",
            f"1,000,000 x {longest.bytes_per_token} B / 1e9",
        ),
    ]


def _user_figures() -> list[TalkFigure]:
    """Per user and for 10,000.

    Dividing by 1024 gives the printed 31.9 from 3.27 GB (3.2768 cut, not rounded) and 320 from 32.77 GB.
    """
    layout = talk_caches([USERS_MODEL])[0].whole
    per_user = [
        TalkFigure(
            f"KV of one user with {tokens:,} tokens, {USERS_MODEL}",
            layout.bytes_at(tokens) / 1e9,
            "GB",
            f"{tokens} x {layout.bytes_per_token} B / 1e9",
        )
        for tokens in CONTEXTS
    ]
    shown = {10_000: (31.9, 3.27), 100_000: (320.0, 32.77)}
    for_all = [
        TalkFigure(
            f"KV of 10,000 users with {tokens:,} tokens each, {USERS_MODEL}",
            10_000 * layout.bytes_at(tokens) / TB,
            "TB",
            f"10,000 x {tokens} x {layout.bytes_per_token} B / 1e12",
            printed=printed,
            as_printed=10_000 * user_gb / 1024,
            remark=f"10,000 x {user_gb} GB / 1024: {SLIP}",
        )
        for tokens, (printed, user_gb) in shown.items()
    ]
    return [*per_user, *for_all]


def _room_figures() -> list[TalkFigure]:
    cache = talk_caches([USERS_MODEL])[0]
    gpu = talk_gpu()
    held = most_tokens(cache.whole, TB) or 0
    return [
        TalkFigure(
            f"tokens in 1 TB of DRAM at {cache.whole.bytes_per_token // 1024} KiB each",
            held,
            "tokens",
            f"1e12 // {cache.whole.bytes_per_token} B",
            printed=3e6,
            remark=f"rounded to about 3 million; 1 TiB holds {most_tokens(cache.whole, 2**40):,}",
        ),
        TalkFigure(
            f"share of an A100 40 GB left for KV, {GPU_MODEL}, with a reserve of {RESERVE_SHARE:.0%}",
            gpu.kv_share * 100,
            "%",
            f"1 - {gpu.weight_bytes / 1e9:.2f} GB of weights / 40 GB - {RESERVE_SHARE}",
            printed=30.0,
            remark=f"rounded to about 30 %; without a reserve {100 * (1 - gpu.weight_share):.1f} %",
        ),
    ]
