"""What is wrong with an entry of a catalogue, in words of the file and not of the library that checks it."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

A_FIGURE = 'a number such as 12e9, a table such as { value = 12e9, source = "..." }, or a list of these'
PARTS = {"value", "low", "high", "source", "note"}  # of a figure
KINDS_OF_VALUE = {
    "string": "a text in quotes",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "tuple": "a list",
    "dict": "a table",
}


def say_invalid(error: ValidationError, known: Iterable[str]) -> str:
    """The field, what stands there, and what may; the first of several errors.

    Args:
        error: of reading one entry.
        known: fields that such an entry may have.
    """
    first: Any = error.errors()[0]
    field, *inside = (str(part) for part in (first["loc"] or ("entry",)))
    parts = [part for part in inside if part in PARTS and part != "value"]
    where = " ".join([f"field {field}", *(f"({part})" for part in parts)])
    if first["type"] == "extra_forbidden":
        allowed = A_FIGURE if inside else ", ".join(sorted(known))
        return f"{where}: {inside[-1] if inside else 'there'} is no such field; allowed: {allowed}"
    return f"{where}: {_say(first)}"


def _say(first: Mapping[str, Any]) -> str:
    kind, limits, value = first["type"], first.get("ctx", {}), first["input"]
    wanted = KINDS_OF_VALUE.get(kind.split("_")[0], "what this field takes")
    said = {
        "missing": "is missing",
        "value_error": str(limits.get("error")),
        "greater_than": f"{value!r:.60} is not above {limits.get('gt', 0):g}",
        "greater_than_equal": f"{value!r:.60} is not {limits.get('ge', 0):g} or more",
        "finite_number": f"{value!r:.60} is not finite",
        "string_too_short": "is empty",
        "too_short": "is empty",
        "model_type": f"{value!r:.60} is not {A_FIGURE}",
        "model_attributes_type": f"{value!r:.60} is not {A_FIGURE}",
    }
    return said.get(kind, f"{value!r:.60} is not {wanted}")
