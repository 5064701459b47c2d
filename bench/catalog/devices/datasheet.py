"""One number of a data sheet or a measurement, with where it comes from.

What is wrong with an entry of a catalogue, in words of the file and not of the library that checks it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

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


def format_invalid(error: ValidationError, known: Iterable[str]) -> str:
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
    return f"{where}: {_format_message(first)}"


def _format_message(first: Mapping[str, Any]) -> str:
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


UNVERIFIED = "unverified"


class Figure(BaseModel):
    """A number in base units with its public source; `low` and `high` where the source gives a range."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    source: str = Field(min_length=1)
    note: str | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.low or self.value) > self.value or (self.high or self.value) < self.value:
            raise ValueError(f"low, value and high must rise, not {self.low}, {self.value:g}, {self.high}")
        return self

    @property
    def verified(self) -> bool:
        """Whether somebody read a public source for it."""
        return self.source != UNVERIFIED


@dataclass(frozen=True, slots=True)
class Place:
    """The file that figures are read from, with the sources that it names."""

    name: str
    sources: Mapping[str, str]

    def cite(self, source: str | None) -> str:
        """The source written out; a figure without one is vouched for by its file alone."""
        return self.name if source is None else self.sources.get(source, source)


def _listed(value: object, info: ValidationInfo) -> object:
    """One figure or several as they stand in a file, a bare number among them, as a list of figures."""
    values = value if isinstance(value, list | tuple) else (value,)
    place = info.context
    if not isinstance(place, Place):
        return values
    return [_cited(one, place) for one in values]


def _cited(value: object, place: Place) -> object:
    if isinstance(value, dict) and isinstance(value.get("source"), str | None):
        return {**value, "source": place.cite(value.get("source"))}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"value": value, "source": place.cite(None)}
    return value


# one figure or several in the file, always a tuple once read; () is unknown
Figures = Annotated[tuple[Figure, ...], BeforeValidator(_listed)]


def pick_figure(figures: Sequence[Figure]) -> Figure | None:
    """The figure to use: the first with a source, else the first unverified one, else None: unknown."""
    return next((figure for figure in figures if figure.verified), figures[0] if figures else None)


def other_figures(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """What other public sources say of the same thing as the figure that is used, in another value."""
    used = pick_figure(figures)
    return tuple(one for one in figures if used and one.verified and one.value != used.value)


def range_of(figures: Sequence[Figure]) -> tuple[float | None, float | None]:
    """Bounds that hold the value of every public source; None where there is one number."""
    used = pick_figure(figures)
    if used is None:
        return None, None
    known = (used, *other_figures(figures))
    if len(known) == 1:
        return used.low, used.high
    return min(one.low or one.value for one in known), max(one.high or one.value for one in known)
