"""The scenario of `size`: throughput, requests, store, drive and prices, read from a TOML file."""

import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    ValidationError,
    model_validator,
)

from bench.record.units import parse_bytes, parse_duration, parse_rate
from bench.record.validate import InputError

Bytes = Annotated[int, BeforeValidator(lambda value: parse_bytes(str(value)))]
Rate = Annotated[float, BeforeValidator(lambda value: parse_rate(str(value)))]
Duration = Annotated[float, BeforeValidator(lambda value: parse_duration(str(value)))]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Source(_Part):
    kv_dtype: str | None = None  # default: the sweep's, the checkpoint's, else bfloat16
    utilisation: float = 1.0  # share of the throughput to plan with


class GivenSource(_Source):
    """A throughput that the user measured."""

    model: str  # catalogue key, config.json or hub name
    tokens_per_s: float  # prompt tokens at the prompts' length, without reuse
    measured_gpus: int | None = None  # that measured it together; default: tp
    tp: int = 1  # tensor-parallel ranks; each stores and loads its own shard


class SweepSource(_Source):
    """Model and throughput of a sweep."""

    sweep: Path
    measured_gpus: int | None = None  # default: the ranks of the sweep
    tp: int | None = None  # default: the ranks of the sweep


class MachineSource(_Source):
    """The modelled throughput of a described machine."""

    model: str
    gpu: str  # of the catalogue
    num_gpus: int = 1  # tensor-parallel GPUs that run the model together
    dtype: str = "bfloat16"  # of the weights
    engine: str = "vllm"  # or kernels, a bound without an engine


class _Rate(_Part):
    per_s: float | None = None  # requests
    target: float | None = None  # prompt tokens/s, in place of per_s
    kept_output_tokens: float = 0.0  # generated tokens of a request whose KV is stored

    @model_validator(mode="after")
    def _give_one_rate(self) -> Self:
        if self.per_s is not None and self.target is not None:
            raise ValueError("give per_s or target, not both")
        return self


class MeanRequests(_Rate):
    """Requests that are all alike."""

    input_tokens: int
    hit_ratio: float  # hit tokens / prompt tokens


class TraceRequests(_Rate):
    """Prompts and hits of a Mooncake-format trace against the store's capacity."""

    trace: Path
    policy: str = "lru"  # lru, lfu, fifo, optimal
    block_tokens: int = 512  # tokens of one hash id
    skip_bad: bool = False  # exclude lines that cannot be read, and count them


class StoreSpec(_Part):
    """How much KV is kept."""

    capacity: Bytes | None = None
    retention: Duration | None = None  # how long KV is kept, in place of capacity
    occupancy: float = 1.0  # share of what is bought that holds KV

    @model_validator(mode="after")
    def _give_one_size(self) -> Self:
        if self.capacity is not None and self.retention is not None:
            raise ValueError("give capacity or retention, not both")
        return self


class DriveSpec(_Part):
    """The drive that the store is built of; the catalogue completes a named one."""

    ssd: str | None = None  # of the catalogue
    capacity: Bytes | None = None
    read: Rate | None = None  # sustained
    dwpd: float | None = None  # rated drive writes per day, of the host
    tbw: Bytes | None = None  # rated bytes written by the host, in place of dwpd
    warranty_years: float = 5.0
    write_amplification: float = 1.0  # times that a byte written counts against the rating

    @model_validator(mode="after")
    def _give_one_rating(self) -> Self:
        if self.dwpd is not None and self.tbw is not None:
            raise ValueError("give dwpd or tbw, not both")
        return self


class PriceSpec(_Part):
    """Prices in the user's currency; none is built in."""

    gpu_hour: float | None = None  # of one GPU
    dram_gb: float | None = None  # of a GB (1e9 bytes)
    ssd_gb: float | None = None
    lifetime_years: float | None = None  # over which DRAM and SSD are written off
    reuse_per_day: float | None = None  # reuses of a stored token; default: from the store

    @model_validator(mode="after")
    def _pair_memory_with_its_life(self) -> Self:
        if self.has_memory and self.lifetime_years is None:
            raise ValueError("lifetime_years is needed with dram_gb or ssd_gb; try lifetime_years = 5")
        if not self.has_memory and (self.lifetime_years is not None or self.reuse_per_day is not None):
            raise ValueError("lifetime_years and reuse_per_day need dram_gb or ssd_gb")
        return self

    @property
    def has_memory(self) -> bool:
        """Whether DRAM or SSD has a price."""
        return self.dram_gb is not None or self.ssd_gb is not None


def _tag_source(value: object) -> str | None:
    keys = value if isinstance(value, dict) else {}
    found = [name for name in ("tokens_per_s", "sweep", "gpu") if name in keys]
    return found[0] if len(found) == 1 else None


def _tag_requests(value: object) -> str:
    return "trace" if isinstance(value, dict) and "trace" in value else "mean"


Source = Annotated[
    Annotated[GivenSource, Tag("tokens_per_s")]
    | Annotated[SweepSource, Tag("sweep")]
    | Annotated[MachineSource, Tag("gpu")],
    Discriminator(
        _tag_source,
        custom_error_type="source",
        custom_error_message="give one of tokens_per_s (measured), sweep and gpu (modelled),"
        " or --throughput, --from, --gpu",
    ),
]
AskedRequests = Annotated[
    Annotated[MeanRequests, Tag("mean")] | Annotated[TraceRequests, Tag("trace")],
    Discriminator(_tag_requests),
]
UNIONS = {"throughput", "requests"}  # whose errors have the kind as second step


class Scenario(_Part):
    """Everything that `size` reads."""

    throughput: Source
    requests: AskedRequests
    store: StoreSpec = StoreSpec()
    drive: DriveSpec | None = None
    prices: PriceSpec = PriceSpec()
    catalogue: Path | None = None  # TOML file with more devices

    @model_validator(mode="after")
    def _read_every_field(self) -> Self:
        is_trace = isinstance(self.requests, TraceRequests)
        if is_trace and self.store.capacity is None:
            raise ValueError("store.capacity is needed with requests.trace; try capacity = '10TB'")
        if not is_trace and self.requests.per_s is None and self.requests.target is None:
            raise ValueError("requests.per_s or requests.target (prompt tokens/s) is needed")
        if "occupancy" in self.store.model_fields_set and self.drive is None and not self.prices.has_memory:
            raise ValueError("store.occupancy needs a drive, prices.dram_gb or prices.ssd_gb")
        names_ssd = self.drive is not None and self.drive.ssd is not None
        if self.catalogue is not None and not names_ssd and not isinstance(self.throughput, MachineSource):
            raise ValueError("catalogue needs throughput.gpu or drive.ssd")
        return self


def read_scenario(path: Path, **flags: object) -> Scenario:
    """The scenario in `path`; `flags` that are not None replace fields of its throughput.

    Raises:
        InputError: names the first field that cannot be used, and why.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; a scenario such as docs/examples/size.toml is needed"
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    given = content.get("throughput", {})
    if isinstance(given, dict):
        content["throughput"] = given | {name: value for name, value in flags.items() if value is not None}
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {_format_first(error)}") from None


def _format_first(error: ValidationError) -> str:
    first = error.errors()[0]
    steps = [str(step) for step in first["loc"]]
    if len(steps) > 1 and steps[0] in UNIONS:
        del steps[1]
    why = {"missing": "is needed", "extra_forbidden": "is not a field of this kind"}.get(
        first["type"], first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    )
    return f"{'.'.join(steps)}: {why}" if steps else why
