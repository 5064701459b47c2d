"""Published recompute and load times: one typed row per published figure, and the CSV reader."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvio.errors import UserError

PUBLISHED = Path(__file__).with_name("published.csv")
MAX_ROWS_BYTES = 16 * 2**20
RATES = ("required_bandwidth", "kv_production_rate")
CROSSOVER = "crossover_point"
LOADING = ("ttft_pair", "load_only", CROSSOVER)
NUMBERS_OF_KIND = {
    "ttft_pair": ("tokens", "recompute_s", "load_s"),
    "recompute_only": ("tokens", "recompute_s"),
    "load_only": ("tokens", "load_s"),
    CROSSOVER: ("crossover_tokens", "crossover_kind"),
    **dict.fromkeys(RATES, ("tokens", "required_bytes_per_s")),
}
NEEDED = ("id", "kind", "model_key", "gpu", "tp", "weight_dtype", "tokens", "recompute_s", "load_s")
MISSING = frozenset({"", "-", "–", "—", "n/a", "na", "none", "null"})

Count = Annotated[int, Field(gt=0, le=2**31)]
Figure = Annotated[float, Field(gt=0, le=1e15)]
Rate = Annotated[float, Field(gt=0, le=1e18)]


class RowsError(UserError):
    """A file of published rows cannot be read, or its rows cannot be calibrated on; one line."""


class PublishedRow(BaseModel):
    """One published figure and its setup; None and "" are missing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(min_length=1)
    kind: str = ""  # what was published: a key of NUMBERS_OF_KIND, or something that is not predicted
    system: str = ""
    model: str = ""  # as the source names it
    model_key: str = ""  # in the catalogue
    model_kind: Literal["dense", "moe", "mla", "hybrid"] | None = None
    gpu: str = ""
    gpu_family: str = ""
    tp: Count | None = None  # GPUs that share the model
    engine: str = ""
    weight_dtype: str = ""
    kv_dtype: str = "bfloat16"
    kv_bytes_per_token: Figure | None = None  # as published; checked against the catalogue's model
    tokens: Count | None = None  # of the prompt
    cached_tokens: Count | None = None  # of these, loaded; None: all of them
    recompute_s: Figure | None = None
    load_s: Figure | None = None
    storage: Literal["memory", "ssd", "network"] | None = None
    storage_name: str = ""  # drive or network of the catalogue, for its rate
    storage_bytes_per_s: Rate | None = None  # goes before the rate of `storage_name`
    crossover_tokens: Figure | None = None
    crossover_kind: Literal["whole", "marginal"] | None = None
    required_bytes_per_s: Rate | None = None
    not_comparable: str = ""  # why this row is not one request for a whole prefix on an idle machine
    uncertainty: str = ""
    conditions: str = ""
    source: str = ""

    @property
    def expected_numbers(self) -> tuple[str, ...]:
        """The columns that a row of this kind needs."""
        return NUMBERS_OF_KIND.get(self.kind, ())

    @property
    def setup(self) -> tuple[str | float | None, ...]:
        """What rows must share to be calibrated together."""
        names = (self.model_key, self.gpu, self.weight_dtype, self.kv_dtype, self.engine, self.system)
        storage = (self.storage, self.storage_name.lower(), self.storage_bytes_per_s)
        return *(name.lower() for name in names), self.tp, *storage, self.kv_bytes_per_token


def read_rows(path: Path) -> tuple[PublishedRow, ...]:
    """All rows of a CSV with the columns of published.csv; a row with a wrong cell is not comparable.

    Raises:
        RowsError: no such file, no CSV, a column or an id is missing.
    """
    try:
        if path.stat().st_size > MAX_ROWS_BYTES:
            raise RowsError(f"{path}: {path.stat().st_size} bytes are too many for a table of rows")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RowsError(
            f"{path}: {error.strerror}. Name a CSV with the columns {', '.join(NEEDED)}."
        ) from error
    except UnicodeDecodeError as error:
        raise RowsError(f"{path}: not a text file (byte {error.start}). Name a CSV.") from error
    try:
        rows = tuple(_rows(path, text))
    except csv.Error as error:
        raise RowsError(f"{path}: not a CSV: {error}") from error
    if not rows:
        raise RowsError(f"{path}: no row below the header")
    return rows


def _rows(path: Path, text: str) -> Iterator[PublishedRow]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    names = Counter(reader.fieldnames or ())
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise RowsError(f"{path}: column {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    twice = [name for name in PublishedRow.model_fields if names[name] > 1]
    if twice:
        raise RowsError(f"{path}: column {twice[0]} is there twice")
    seen: set[str] = set()
    for cells in reader:
        where = f"{path}:{reader.line_num}"
        if None in cells or any(value is None for value in cells.values()):
            raise RowsError(f"{where}: not as many cells as the header has")
        if not cells["id"].strip():
            raise RowsError(f"{where}: a row without an id")
        row = _read_row(cells)
        if row.id in seen:
            row = row.model_copy(update={"not_comparable": f"id {row.id!r:.40} is used by an earlier row"})
        seen.add(row.id)
        yield row


def _read_row(cells: Mapping[str, str]) -> PublishedRow:
    given = {name: text.strip() for name, text in cells.items() if text.strip().lower() not in MISSING}
    row_id, kind = cells["id"].strip(), cells["kind"].strip()
    try:
        return PublishedRow.model_validate({**given, "id": row_id, "kind": kind})
    except ValidationError as error:
        first = error.errors()[0]
        column, cell = first["loc"][0], first["input"]
        reason = f"column {column}: {cell!r:.40}: {first['msg']}"
        return PublishedRow(id=row_id, kind=kind, not_comparable=reason)
