"""Recomputing against loading as contexts grow to a million tokens: both arms of the cost model; modelled."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from bench.catalog.models.geometry import WINDOWED, Geometry
from bench.catalog.models.kv_capacity import label
from bench.catalog.models.resolve import Model
from bench.predict.cost_model import CostModel
from bench.predict.memory_fit import format_length, format_room
from bench.predict.prediction import ModelledAnswer, answer

ORIGIN = "modelled"
OF_A_CROSSING = ("load_wins_beyond", "tokens", "low_tokens", "high_tokens")
NAMES = {"whole": "C*", "marginal": "P*"}


def series_to(longest: int, shortest: int = 1_000) -> tuple[int, ...]:
    """Lengths 1, 2, 5, 10 … times `shortest`, the longest itself last."""
    steps = [int(step * 10**power) for power in range(len(str(longest))) for step in (1, 2, 5)]
    return (*(shortest * step for step in steps if shortest * step < longest), longest)


def attend_to_all(geometry: Geometry) -> Geometry:
    """The same model with layers that attend to everything in place of windows and chunks."""
    layers = tuple(
        replace(kind, attention="full") if kind.attention in WINDOWED else kind for kind in geometry.layers
    )
    return replace(geometry, layers=layers, window_tokens=None)


def longctx_tables(
    model: Model,
    costs: Sequence[CostModel],
    lengths: Sequence[int],
    *,
    kv_dtype: str,
    memory_bytes: float | None = None,
    taken: str | None = None,
) -> dict[str, pd.DataFrame]:
    """Setting, times, crossovers and all that was supposed, by name.

    Args:
        model: that the costs are of.
        costs: of one machine, with storages of different rates.
        lengths: of the prefix, rising.
        kv_dtype: that the costs were built with.
        memory_bytes: of one GPU, None when unknown.
        taken: what of the setting nobody chose, None where all of it was.
    """
    answers = [answer(cost, lengths) for cost in costs]
    rates = ", ".join(f"{cost.storage.value / 1e9:g}" for cost in costs if cost.storage is not None)
    setting = f"{costs[0].label.partition(', loading from')[0]}, loading at {rates} GB/s"
    said = dict.fromkeys(
        [
            *(notice for cost in costs for notice in cost.notices),
            *format_length(model.geometry, lengths[-1]),
            *format_room(costs[0], lengths[-1], memory_bytes),
        ]
    )
    return {
        "setting": label([{"label": setting, "taken": taken}], ORIGIN),
        "times": time_table(costs, answers, kv_dtype=kv_dtype),
        "crossovers": crossing_table(costs, answers),
        "notices": label([{"notice": notice} for notice in said], ORIGIN),
    }


def time_table(
    costs: Sequence[CostModel], answers: Sequence[ModelledAnswer], *, kv_dtype: str
) -> pd.DataFrame:
    """One row per storage and length; modelled.

    Columns: bytes_per_s (of the storage), tokens, kv_bytes (that all ranks read), recompute_s, load_s,
    recompute_per_load_ratio, break_even_bytes_per_s, and for comparison what windows and chunks save:
    recompute_all_full_s and kv_all_full_bytes, as if every layer attended to everything.

    Args:
        costs: the same model and machine with storages of different rates.
        answers: of each.
        kv_dtype: that the costs were built with.
    """
    rows = []
    for cost, found in zip(costs, answers, strict=True):
        geometry = attend_to_all(cost.geometry)
        full = replace(cost, geometry=geometry, layout=geometry.layout(kv_dtype, cost.num_gpus))
        for point in found.points:
            n = point.prefix_tokens
            rows.append(
                {
                    "bytes_per_s": None if cost.storage is None else cost.storage.value,
                    "tokens": n,
                    "kv_bytes": point.num_bytes,
                    "recompute_s": cost.recompute_s(n),
                    "load_s": cost.load_s(n),
                    "recompute_per_load_ratio": cost.recompute_s(n) / cost.load_s(n),
                    "break_even_bytes_per_s": point.break_even_bytes_per_s,
                    "recompute_all_full_s": full.recompute_s(n),
                    "kv_all_full_bytes": full.num_bytes(n),
                }
            )
    return label(rows, ORIGIN)


def crossing_table(costs: Sequence[CostModel], answers: Sequence[ModelledAnswer]) -> pd.DataFrame:
    """One row per storage, kind of crossover and crossing, by length; one without tokens where there is none; modelled.

    Columns: bytes_per_s, crossover (C* or P*), verdict, load_wins_beyond (else load wins up to it), tokens,
    low_tokens, high_tokens.
    """
    rows = [
        {"bytes_per_s": None if cost.storage is None else cost.storage.value, **row}
        for cost, found in zip(costs, answers, strict=True)
        for row in _spots(found)
    ]
    return label(rows, ORIGIN)


def _spots(found: ModelledAnswer) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for spot in found.spots:
        head = {"crossover": NAMES[spot.kind], "verdict": spot.verdict}
        if not spot.crossings:
            rows.append({**head, **dict.fromkeys(OF_A_CROSSING)})
        for crossing in spot.crossings:
            found_at = crossing.tokens
            values = (crossing.load_wins_beyond, found_at.value, found_at.low, found_at.high)
            rows.append({**head, **dict(zip(OF_A_CROSSING, values, strict=True))})
    return rows
