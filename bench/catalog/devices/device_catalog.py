"""GPUs, drives, links and kernel rates: the catalogues as values, and how one of them is found by name."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NoReturn, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bench.catalog.devices.datasheet import Figures, Place, format_invalid
from bench.catalog.devices.gpu_names import match_gpu
from bench.catalog.models.fields import CatalogError

TABLES = Path(__file__).parents[1] / "tables"
SHIPPED = ("gpus.toml", "ssds.toml", "links.toml", "kernels.toml", "engines.toml")
MAX_FILE_BYTES = 4 * 2**20


class Entry(BaseModel):
    """What everything in a catalogue has; fields that are not there are unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    name: str
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All that a user may call it."""
        return (self.key, self.name, *self.aliases)

    def is_called(self, name: str) -> bool:
        """Whether that is one of its names, but for case and what stands between words."""
        return _plain(name) in map(_plain, self.names)


class Gpu(Entry):
    """One GPU; rates are of one GPU and one direction, peaks are dense.

    Args:
        fp8_units: whether it has any; None where unknown.
    """

    memory_bytes: Figures = ()
    memory_bytes_per_s: Figures = ()
    bf16_flops_per_s: Figures = ()
    fp8_flops_per_s: Figures = ()
    fp8_units: bool | None = None
    link: str | None = None
    link_bytes_per_s: Figures = ()
    peer_bytes_per_s: Figures = ()


class Ssd(Entry):
    """One drive, or a set of `num_drives` measured together."""

    drive_class: str | None = Field(default=None, alias="class")
    link: str | None = None
    num_drives: int = Field(default=1, ge=1)
    read_bytes_per_s: Figures = ()
    measured_read_bytes_per_s: Figures = ()
    write_bytes_per_s: Figures = ()
    read_iops: Figures = ()
    capacities_bytes: Figures = ()
    dwpd: Figures = ()


class Link(Entry):
    """A host link, a network or an object store; `tier` for what may hold KV by itself."""

    tier: bool = False
    bytes_per_s: Figures = ()
    measured_bytes_per_s: Figures = ()


def _cite(source: object, info: ValidationInfo) -> object:
    return (
        info.context.cite(source) if isinstance(info.context, Place) and isinstance(source, str) else source
    )


class Kernel(Entry):
    """Measured rates of single kernels on one GPU (its key), operations per second.

    Args:
        attention: by prompt length; 32 query heads, 8 KV heads, head_dim 128, batch 1, the causal half counted.
        gemm_low, gemm_high: range over shapes of bfloat16 matrix products with at least 512 rows.
    """

    source: Annotated[str, BeforeValidator(_cite)]
    gemm_low: float = Field(gt=0, allow_inf_nan=False)
    gemm_high: float = Field(gt=0, allow_inf_nan=False)
    attention: dict[int, float] = Field(min_length=1)

    @field_validator("attention")
    @classmethod
    def _ascending(cls, rates: dict[int, float]) -> dict[int, float]:
        if any(tokens < 1 or not rate > 0 for tokens, rate in rates.items()):
            raise ValueError("lengths and rates must be above 0")
        return dict(sorted(rates.items()))

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.gemm_low > self.gemm_high:
            raise ValueError(
                f"gemm_low must not be above gemm_high, not {self.gemm_low:g} above {self.gemm_high:g}"
            )
        return self


class Engine(Entry):
    """What a serving engine adds to its kernels; () is nothing.

    Args:
        compute_share: rate of the whole prefill over the rate of its kernels.
        overhead_s: of a request, before anything that depends on its length.
        copy_s: of one host-to-device copy, besides its bytes.
        block_tokens: tokens of one such copy, all layers.
    """

    compute_share: Figures = ()
    overhead_s: Figures = ()
    copy_s: Figures = ()
    block_tokens: int = Field(ge=1)


Found = TypeVar("Found", bound=Entry)
Section = Literal["gpus", "ssds", "links", "kernels", "engines"]
KINDS: dict[Section, type[Entry]] = {
    "gpus": Gpu,
    "ssds": Ssd,
    "links": Link,
    "kernels": Kernel,
    "engines": Engine,
}


@dataclass(frozen=True, slots=True)
class Devices:
    """All catalogues by key."""

    gpus: Mapping[str, Gpu]
    ssds: Mapping[str, Ssd]
    links: Mapping[str, Link]
    kernels: Mapping[str, Kernel]
    engines: Mapping[str, Engine]

    def find_gpu(self, name: str) -> Gpu:
        """The GPU of that key, name or alias, or the one that it can only mean ("A100-SXM4-80GB").

        Raises:
            CatalogError: there is none; near ones are listed.
        """
        key = None
        if not any(gpu.is_called(name) for gpu in self.gpus.values()):
            known = {
                key: (gpu.names, [figure.value for figure in gpu.memory_bytes])
                for key, gpu in self.gpus.items()
            }
            key = match_gpu(name, known)
        return _find(key or name, self.gpus, "GPU", "gpus")

    def find_storage(self, name: str) -> Ssd | Link:
        """The drive, network or object store of that key, name or alias.

        Raises:
            CatalogError: there is none; near ones are listed.
        """
        return _find(name, self._stores, "storage", "ssds")

    def is_storage(self, name: str) -> bool:
        """Whether a drive, set, network or object store has that very name."""
        return any(store.is_called(name) for store in self._stores.values())

    @property
    def _stores(self) -> dict[str, Ssd | Link]:
        return {**self.ssds, **{key: link for key, link in self.links.items() if link.tier}}

    def find_set(self, drive: str, num_drives: int) -> Ssd | None:
        """The set of that many drives that was measured together, by the drive's key, name or alias; None without one."""
        one = next((ssd for ssd in self.ssds.values() if ssd.is_called(drive)), None)
        names = [] if one is None else [f"{num_drives}x {name}" for name in one.names]
        sets = [ssd for ssd in self.ssds.values() if ssd.num_drives == num_drives > 1]
        return next((ssd for ssd in sets if any(ssd.is_called(name) for name in names)), None)

    def find_engine(self, name: str) -> Engine:
        """The engine of that key or name."""
        return _find(name, self.engines, "engine", "engines")

    def find_link(self, key: str) -> Link:
        """The link of that key or name."""
        return _find(key, self.links, "link", "links")


@cache
def read_devices(extra: Path | None = None) -> Devices:
    """The shipped catalogues, and over them the entries of a file of the user's.

    Raises:
        CatalogError: a file cannot be read or is not understood; one line with place and field.
    """
    found: dict[Section, dict[str, Entry]] = {section: {} for section in KINDS}
    for path in [*(TABLES / name for name in SHIPPED), *([extra] if extra else [])]:
        for section, entries in _read_file(path).items():
            found[section].update(entries)
    devices = Devices(**found)  # type: ignore[arg-type]
    linked: list[Gpu | Ssd] = [*devices.gpus.values(), *devices.ssds.values()]
    for device in linked:
        if device.link is not None and device.link not in devices.links:
            raise CatalogError(f"{device.key}: field link: {device.link!r} is in no catalogue of links")
    for key in devices.kernels:
        if key not in devices.gpus:
            raise CatalogError(
                f"kernels.{key}: there is no [gpus.{key}] with the peak that its rates are a share of"
            )
    return devices


def _read_file(path: Path) -> dict[Section, dict[str, Entry]]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CatalogError(f"{path}: {path.stat().st_size} bytes are too many for a catalogue")
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise CatalogError(
            f"{path}: {error.strerror}; a TOML file with [gpus.NAME] tables is needed"
        ) from error
    except ValueError as error:  # broken TOML, bytes that are no text
        raise CatalogError(f"{path}: not valid TOML: {error}") from error
    unknown = tables.keys() - {"sources", *KINDS}
    if unknown:
        raise CatalogError(f"{path}: table [{sorted(unknown)[0]}] is none of {', '.join(KINDS)} and sources")
    sources = tables.get("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(text, str) for text in sources.values()):
        raise CatalogError(f"{path}: [sources] must give a text for each name")
    place = Place(path.name, sources)
    return {section: _read_section(path, section, tables.get(section, {}), place) for section in KINDS}


def _read_section(path: Path, section: Section, entries: object, place: Place) -> dict[str, Entry]:
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise CatalogError(f"{path}: [{section}] must hold tables such as [{section}.my-device]")
    found = {}
    for key, entry in entries.items():
        try:
            found[key] = KINDS[section].model_validate({"key": key, "name": key, **entry}, context=place)
        except ValidationError as error:
            fields = KINDS[section].model_fields.items()
            known = [one.alias or name for name, one in fields if name != "key"]
            raise CatalogError(f"{path}: {section}.{key}: {format_invalid(error, known)}") from error
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _find(name: str, entries: Mapping[str, Found], what: str, section: Section) -> Found:
    by_name = {_plain(one): entry for entry in entries.values() for one in entry.names}
    found = by_name.get(_plain(name))
    if found is None:
        _refuse(name, entries, what=what, section=section)
    return found


def _refuse(name: str, entries: Mapping[str, Entry], *, what: str, section: Section) -> NoReturn:
    names = {one.lower(): entry.key for entry in entries.values() for one in entry.names}
    near = dict.fromkeys(names[one] for one in get_close_matches(name.lower(), names, n=6, cutoff=0.5))
    hint = f"near it: {', '.join(near)}" if near else f"known: {', '.join(entries)}"
    raise CatalogError(
        f"{what} {name!r:.80} is in no catalogue; {hint}; or describe it: --catalogue FILE.toml with [{section}.NAME]"
    )
