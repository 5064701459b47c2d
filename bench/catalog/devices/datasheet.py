"""One number of a data sheet or a measurement, with where it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

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
    """Bounds that hold what every public source says; None where one number is all that is known."""
    used = pick_figure(figures)
    if used is None:
        return None, None
    known = (used, *other_figures(figures))
    if len(known) == 1:
        return used.low, used.high
    return min(one.low or one.value for one in known), max(one.high or one.value for one in known)
