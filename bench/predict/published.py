"""Published rows of recompute and load times: reading them, and why some cannot be predicted."""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.fields import CatalogError
from bench.predict.rates import DTYPE_NAMES, read_weight_dtype
from bench.predict.rowdoubts import find_doubts
from bench.predict.rownames import FP8, find_model, named_weights
from bench.predict.rowtier import COLUMN, RowTier, read_tier
from kvio.errors import UserError

PUBLISHED = Path(__file__).with_name("published.csv")
MAX_ROWS_BYTES = 16 * 2**20
MAX_TOKENS, MAX_NUMBER = 2**31, 10**15
NEEDED = ("id", "kind", "model", "gpu", "n_gpu", "precision", "tokens", "recompute_s", "load_s")
OPTIONAL = (
    "system",
    "load_tier",
    "load_bw_gbps_decimal",
    "crossover_tokens",
    "required_bw_gbps_decimal",
    "engine",
    "uncertainty",
    "conditions",
    "derived_kv_bytes_per_token",
)
NUMBERS = frozenset(
    {
        "n_gpu",
        "tokens",
        "recompute_s",
        "load_s",
        "load_bw_gbps_decimal",
        "crossover_tokens",
        "required_bw_gbps_decimal",
        "derived_kv_bytes_per_token",
    }
)
TIMES = ("ttft_pair", "recompute_only", "load_only")
RATES = ("required_bandwidth", "kv_production_rate")
CROSSOVER = "crossover_point"
ABOUT = ("conditions", "engine", "uncertainty", "system")  # columns that tell of load and doubts
KV_BYTES = "derived_kv_bytes_per_token"
LOADING = ("ttft_pair", "load_only", CROSSOVER)
MISSING = frozenset({"", "-", "–", "—", "n/a", "na", "none", "null"})


class RowsError(UserError):
    """A file of published rows cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published row; "" and None are missing.

    Args:
        faults: by column, why what stands there cannot be used; a number is None in `number` too.
    """

    text: dict[str, str]
    number: dict[str, float | None]
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its name in the file."""
        return self.text["id"]

    @property
    def kind(self) -> str:
        """What was published."""
        return self.text["kind"]

    @property
    def tokens(self) -> int:
        """Prefix length."""
        return int(self.number["tokens"] or 0)

    @property
    def num_gpus(self) -> int:
        """GPUs that share the model."""
        return int(self.number["n_gpu"] or 0)

    @property
    def dtype(self) -> str:
        """Dtype of the weights."""
        return read_weight_dtype(self.text["precision"])

    @property
    def setup(self) -> tuple[str | float | None, ...]:
        """What rows must share to be calibrated together: model, GPUs, precision, engine, system, tier, its rate, KV.

        What a system's name has in brackets is a remark.
        """
        names = ("model", "gpu", "precision", "engine", "load_tier")
        system = re.sub(r"\(.*?\)", "", self.text["system"]).strip().lower()
        shared = (*(self.text[name].lower() for name in names), system)
        return *shared, self.num_gpus, self.storage_bytes_per_s, self.number[KV_BYTES]

    @property
    def tier(self) -> RowTier:
        """Where the KV was loaded from."""
        return read_tier(self.text["load_tier"], self.number[COLUMN])

    @property
    def storage_bytes_per_s(self) -> float | None:
        """Rate of the tier as the row states it, in its column or in the tier's words."""
        return self.tier.bytes_per_s


def read_rows(path: Path) -> tuple[PublishedRow, ...]:
    """All rows of a CSV with the columns of published.csv.

    Raises:
        RowsError: no such file, no CSV, a column or an id is missing.
    """
    try:
        if path.stat().st_size > MAX_ROWS_BYTES:
            raise RowsError(f"{path}: {path.stat().st_size} bytes are too many for a table of rows")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RowsError(
            f"{path}: {error.strerror}; a CSV with the columns {', '.join(NEEDED)} is needed"
        ) from error
    except UnicodeDecodeError as error:
        raise RowsError(f"{path}: not a text file (byte {error.start}); a CSV is needed") from error
    try:
        rows = tuple(_rows(path, text))
    except csv.Error as error:
        raise RowsError(f"{path}: not a CSV: {error}") from error
    if not rows:
        raise RowsError(f"{path}: no row below the header")
    return tuple(_tell_twice(rows))


def _tell_twice(rows: Iterable[PublishedRow]) -> Iterator[PublishedRow]:
    """The rows; one whose id an earlier one has is at fault."""
    seen: set[str] = set()
    for row in rows:
        fault = {"id": f"id {row.id!r:.40} is there twice, and an earlier row has it"}
        yield replace(row, faults=row.faults | fault) if row.id in seen else row
        seen.add(row.id)


def _rows(path: Path, text: str) -> Iterator[PublishedRow]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    names = list(reader.fieldnames or ())
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise RowsError(f"{path}: column {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    twice = [name for name in (*NEEDED, *OPTIONAL) if names.count(name) > 1]
    if twice:
        raise RowsError(f"{path}: column {twice[0]} is there twice")
    for cells in reader:
        where = f"{path}:{reader.line_num}"
        if None in cells or any(value is None for value in cells.values()):
            raise RowsError(f"{where}: not as many cells as the header has")
        texts = {name: (cells.get(name) or "").strip() for name in (*NEEDED, *OPTIONAL)}
        if not texts["id"]:
            raise RowsError(f"{where}: a row without an id")
        yield _read_row(texts)


def _read_row(texts: dict[str, str]) -> PublishedRow:
    """The row of these cells; a cell that is no number is a fault of this row alone."""
    numbers, faults = {}, {}
    for name in NUMBERS:
        read = _number(name, texts[name])
        numbers[name] = None if isinstance(read, str) else read
        if isinstance(read, str):
            faults[name] = f"column {name}: {read}"
    return PublishedRow(texts, numbers, faults)


def _number(name: str, text: str) -> float | str | None:
    """The number of a cell, None where it is missing; a text says why it is none."""
    if text.lower() in MISSING:
        return None
    try:
        value = float(text)
    except ValueError:
        return f"{text!r:.40} is not a number"
    whole = name in {"n_gpu", "tokens"}
    if not 0 < value < math.inf or (whole and value != int(value)):
        return f"{text:.40} is not a {'whole ' if whole else ''}number above 0"
    most = MAX_TOKENS if whole or name == "crossover_tokens" else MAX_NUMBER
    return f"{text:.40} is more than {most:,}" if value > most else value


def refusals(row: PublishedRow, devices: Devices) -> list[str]:
    """Why this row is not to be predicted; empty when it is."""
    return [*_kind_refusals(row), *_device_refusals(row, devices)]


def _kind_refusals(row: PublishedRow) -> Iterator[str]:
    if "id" in row.faults:
        yield row.faults["id"]
    if not row.kind:
        yield "kind is missing"
    elif row.kind not in {*TIMES, *RATES, CROSSOVER}:
        yield f"kind {row.kind} is no time, rate or crossover of a whole prefix"
    for name in expected_numbers(row.kind):
        if row.number[name] is None:
            yield row.faults.get(name, f"{name} is missing")
    also = (COLUMN, KV_BYTES) if row.kind in LOADING else (KV_BYTES,) if row.kind in RATES else ()
    yield from (row.faults[name] for name in also if name in row.faults)
    yield from find_doubts("; ".join(row.text[name] for name in ABOUT))


def expected_numbers(kind: str) -> tuple[str, ...]:
    """Numbers that a row of that kind must have."""
    return {
        "ttft_pair": ("tokens", "recompute_s", "load_s"),
        "recompute_only": ("tokens", "recompute_s"),
        "load_only": ("tokens", "load_s"),
        CROSSOVER: ("crossover_tokens",),
    }.get(kind, ("tokens", "required_bw_gbps_decimal") if kind in RATES else ())


def _device_refusals(row: PublishedRow, devices: Devices) -> Iterator[str]:
    if row.number["n_gpu"] is None:
        yield row.faults.get("n_gpu", "n_gpu is missing")
    try:
        read_weight_dtype(row.text["precision"])
    except CatalogError:
        yield (
            f"precision {row.text['precision']!r} is not one of bf16, fp16, fp8"
            if row.text["precision"]
            else "precision is missing"
        )
    yield from _weight_refusals(row)
    if find_model(row.text["model"]) is None:
        yield f"model {row.text['model']!r:.60} is not in the catalogue"
    try:
        devices.find_gpu(row.text["gpu"])
    except CatalogError as error:
        yield re.split("; known|; or describe", str(error))[0]


def _weight_refusals(row: PublishedRow) -> Iterator[str]:
    """Weights that the model's name says, where they are not those of the row or have no modelled rate."""
    weights, precision = named_weights(row.text["model"]), row.text["precision"]
    if weights is None:
        return
    if weights != FP8:
        yield f"model {row.text['model']!r:.60} has weights of {weights}, which is not modelled"
    elif precision and DTYPE_NAMES.get(precision.lower(), precision.lower()) != FP8:
        yield f"model {row.text['model']!r:.60} has weights of {FP8} by its name, and precision is {precision!r:.40}"
