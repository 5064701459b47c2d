"""Scenario files of `size`."""

import json
from collections.abc import Mapping
from pathlib import Path

Parts = Mapping[str, Mapping[str, object]]
GIVEN = {"model": "llama-3.3-70b", "tokens_per_s": 12_000, "measured_gpus": 4}
REQUESTS = {"per_s": 20, "input_tokens": 8000, "hit_ratio": 0.6}


def make_scenario(**parts: Mapping[str, object]) -> Parts:
    """Throughput and requests of the tests, with `parts` in their place or beside them."""
    return {"throughput": GIVEN, "requests": REQUESTS} | parts


def write_scenario(path: Path, parts: Parts) -> Path:
    """The parts as a TOML file; those that are empty are left out."""
    lines: list[str] = []
    for name, fields in parts.items():
        if fields:
            lines += [f"[{name}]", *(f"{key} = {_format(value)}" for key, value in fields.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def _format(value: object) -> str:
    return str(value).lower() if isinstance(value, float) else json.dumps(value, default=str)
