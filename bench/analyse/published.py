"""Published rows of recompute and load times: reading them, and why some cannot be predicted."""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.catalog.config import Model, read_catalogue
from bench.catalog.devices import Devices
from bench.catalog.fields import CatalogError
from kvio.errors import UserError

MAX_ROWS_BYTES = 16 * 2**20
MOST_TOKENS, MOST_NUMBER = 2**31, 10**15
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
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "bfloat16": "bfloat16", "float16": "float16", "fp8": "fp8"}
RATE = re.compile(r"(\d+(?:\.\d+)?)\s*GB/s")
LOADED = re.compile(
    r"under load|production\b|\bqps\b|requests? ?(?:per|/) ?s|concurrency\W{0,3}(?!1\b)\d+|batch(?: size)?\W{0,3}(?!1\b)\d+"
    r"|\b(?!1\b)\d+ (?:concurrent|parallel|simultaneous|clients|users)\b",
    re.I,
)
PARTLY = re.compile(
    r"(?:hit|reuse)s?(?: rate| ratio)?\W{0,3}\d+(?:\.\d+)? ?%|\d+(?:\.\d+)? ?% (?:hit|reuse)", re.I
)
DOUBTED = re.compile(r"uncertain reading|do not pool|not the same software path", re.I)


class RowsError(UserError):
    """A file of published rows cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published row; "" and None are missing."""

    text: dict[str, str]
    number: dict[str, float | None]

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
        return DTYPES[self.text["precision"].lower()]

    @property
    def setup(self) -> tuple[str, ...]:
        """What rows must share to be calibrated together: model, GPUs, precision, engine, system and tier."""
        names = ("model", "gpu", "n_gpu", "precision", "engine", "system", "load_tier")
        return tuple(re.sub(r"\(.*?\)", "", self.text[name]).strip().lower() for name in names)

    @property
    def storage_bytes_per_s(self) -> float | None:
        """Rate of the tier as the row states it, in its column or in the tier's name."""
        stated = self.number["load_bw_gbps_decimal"]
        if stated is not None:
            return stated * 1e9
        named = RATE.search(self.text["load_tier"])
        return float(named[1]) * 1e9 if named else None

    @property
    def loads_from_memory(self) -> bool:
        """Whether the KV lies in host memory."""
        return bool(re.search(r"\b(?:c?pu )?dram\b|host memory", self.text["load_tier"], re.I))


def read_rows(path: Path) -> tuple[Row, ...]:
    """All rows of a CSV with the columns of published.csv.

    Raises:
        RowsError: no such file, no CSV, a column is missing, a number is none, an id is there twice.
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
    twice = next(
        (row.id for i, row in enumerate(rows) if any(row.id == other.id for other in rows[:i])), None
    )
    if twice is not None:
        raise RowsError(f"{path}: id {twice!r} is there twice")
    return rows


def _rows(path: Path, text: str) -> Iterator[Row]:
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
        yield Row(texts, {name: _number(where, name, texts[name]) for name in NUMBERS})


def _number(where: str, name: str, text: str) -> float | None:
    if text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        raise RowsError(f"{where}: column {name}: {text!r:.40} is not a number") from None
    whole = name in {"n_gpu", "tokens"}
    if not 0 < value < math.inf or (whole and value != int(value)):
        raise RowsError(
            f"{where}: column {name}: {text:.40} is not a {'whole ' if whole else ''}number above 0"
        )
    most = MOST_TOKENS if whole or name == "crossover_tokens" else MOST_NUMBER
    if value > most:
        raise RowsError(f"{where}: column {name}: {text:.40} is more than {most:,}")
    return value


def refusals(row: Row, devices: Devices) -> list[str]:
    """Why this row is not to be predicted; empty when it is."""
    return [*_kind_refusals(row), *_device_refusals(row, devices)]


def _kind_refusals(row: Row) -> Iterator[str]:
    if not row.kind:
        yield "kind is missing"
    elif row.kind not in {*TIMES, *RATES, CROSSOVER}:
        yield f"kind {row.kind} is no time, rate or crossover of a whole prefix"
    for name in expected_numbers(row.kind):
        if row.number[name] is None:
            yield f"{name} is missing"
    about = f"{row.text['conditions']}; {row.text['engine']}; {row.text['uncertainty']}"
    loaded, doubted = LOADED.search(about), DOUBTED.search(about)
    if loaded:
        yield f"measured under load ({loaded[0]}); the model is of one request on an idle machine"
    partly = PARTLY.search(about)
    if partly:
        yield f"only a part of the prefix was reused ({partly[0]})"
    if doubted:
        yield f"the row doubts itself ({doubted[0]})"


def expected_numbers(kind: str) -> tuple[str, ...]:
    """Numbers that a row of that kind must have."""
    return {
        "ttft_pair": ("tokens", "recompute_s", "load_s"),
        "recompute_only": ("tokens", "recompute_s"),
        "load_only": ("tokens", "load_s"),
        CROSSOVER: ("crossover_tokens",),
    }.get(kind, ("tokens", "required_bw_gbps_decimal") if kind in RATES else ())


def _device_refusals(row: Row, devices: Devices) -> Iterator[str]:
    if row.number["n_gpu"] is None:
        yield "n_gpu is missing"
    if row.text["precision"].lower() not in DTYPES:
        yield (
            f"precision {row.text['precision']!r} is not one of bf16, fp16, fp8"
            if row.text["precision"]
            else "precision is missing"
        )
    if find_model(row.text["model"]) is None:
        yield f"model {row.text['model']!r:.60} is not in the catalogue"
    try:
        devices.find_gpu(row.text["gpu"])
    except CatalogError as error:
        yield re.split("; known|; or describe", str(error))[0]


def find_model(name: str) -> Model | None:
    """The catalogued model of that key or hub name, with or without its owner; the hub is not asked."""
    wanted = name.lower()
    for key, model in read_catalogue().items():
        if wanted in {key, model.name.lower(), model.name.lower().split("/")[-1]}:
            return model
    return None
