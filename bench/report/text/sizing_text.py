"""The sizing tables as a person reads them; every title says that the figures are modelled."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from bench.record.units import MISSING, format_bytes, format_duration, format_share, printable, round_digits
from bench.report.text.planning_text import Tables, records
from bench.report.text.terminal import align

TITLES = {
    "demand": "What the requests ask",
    "gpus": "GPUs",
    "storage": "Storage",
    "drives": "Drives",
    "cost": "Cost, in the currency of the prices given",
}


def sizing_text(tables: Tables) -> str:
    """All tables but the one over the hit ratio, one below the other."""
    return "\n\n".join(_block(TITLES[name], frame) for name, frame in tables.items() if name in TITLES)


def _block(title: str, frame: pd.DataFrame) -> str:
    rows = [(printable(row["quantity"]), _cell(row), printable(row["formula"])) for row in records(frame)]
    return "\n".join([f"{title} (modelled)", *align(rows, left_columns={0, 2})])


def _cell(row: dict[str, Any]) -> str:
    value, unit = row["value"], row["unit"]
    if value is None or isinstance(value, str):
        return MISSING if value is None else printable(value)
    show = SHOWN.get(unit)
    return show(value) if show is not None else f"{round_digits(value)} {unit}".rstrip()


SHOWN: dict[str, Callable[[float], str]] = {
    "B": format_bytes,
    "B/s": lambda value: f"{format_bytes(value)}/s",
    "share": format_share,
    "tokens": lambda value: f"{value:,.0f} tokens",
    "tokens/s": lambda value: f"{round_digits(value, 4)} tokens/s",
    "GPUs": lambda value: f"{value:,}" if isinstance(value, int) else round_digits(value, 4),
    "drives": lambda value: f"{value:,}" if isinstance(value, int) else round_digits(value, 4),
    "price": lambda value: round_digits(value, 4),
    "s": format_duration,
    "1/s": lambda value: f"{round_digits(value)} per s",
    "1/day": lambda value: f"{round_digits(value)} per day",
}
