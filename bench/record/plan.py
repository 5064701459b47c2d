"""What was asked of a sweep; everything a run does follows from its plan, seed and machine."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bench.record.units import parse_bytes, parse_duration, parse_rate
from bench.record.validate import parsed
from kvio.errors import UserError

SETTLE_S = 0.4  # of reading, until a limit is held
LIMIT_TOLERANCE = 1.15  # the kernel accounts in slices of a tenth of a second

DType = Literal["bfloat16", "float16", "float32"]


class PlanError(UserError):
    """What was asked cannot be measured; one line that says what, where and what to try."""


def _known_device(name: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name) is None:
        raise ValueError("it should be auto, cpu, cuda or cuda:N")
    return name


class LoadSpec(BaseModel):
    """One way to load: a backend under a layout preset; None takes the preset's or the best value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: str = "posix"
    preset: str = "best"
    direct: bool | None = None
    chunk_tokens: int | None = Field(default=None, gt=0)
    num_threads: int | None = Field(default=None, gt=0, le=1024)
    request_bytes: int | None = Field(default=None, gt=0)
    queue_depth: int | None = Field(default=None, gt=0, le=1024)
    options: dict[str, str] = Field(default_factory=dict)

    @property
    def series(self) -> str:
        """The name of its series in the record."""
        return f"{self.backend}/{self.preset}"


class SimulationSpec(BaseModel):
    """A known truth: recompute a + b n + c n^2 and load a + b n seconds, with multiplicative noise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recompute_s: tuple[float, float, float] = (0.02, 2e-5, 4e-9)
    load_s: tuple[float, float] = (0.05, 1e-5)
    round_noise: float = Field(default=0.03, ge=0, lt=1)
    sample_noise: float = Field(default=0.02, ge=0, lt=1)


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Bytes per second that the kernel lets the measuring processes read."""

    bytes_per_s: float

    def enough_bytes(self) -> float:
        """Bytes that take long enough for the limit to show: after a pause, some 50 ms of reading are free."""
        return SETTLE_S * self.bytes_per_s

    def exceeded_by(self, num_bytes: int, seconds: float) -> bool:
        """Whether a read was faster than the limit allows."""
        return num_bytes > LIMIT_TOLERANCE * self.bytes_per_s * seconds


class Plan(BaseModel):
    """A sweep as asked.  Paths are kept as given; seconds, bytes and tokens throughout."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    dtype: DType = "bfloat16"
    kv_dtype: str | None = None
    tensor_parallel: int = Field(default=1, gt=0)
    device: Annotated[str, AfterValidator(_known_device)] = "auto"
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    prefill_chunk: int | None = Field(default=None, gt=0)
    suffix_tokens: int = Field(default=0, ge=0)
    layers: Literal["auto", "all", "fit"] = "auto"
    weights: str | None = None
    loads: tuple[LoadSpec, ...] = (LoadSpec(),)
    hybrid: bool = (
        False  # beside every load series, one that recomputes from the front while it loads from the back
    )
    simulation: SimulationSpec | None = None
    tokens: tuple[int, ...] | None = None
    num_rounds: int | None = Field(default=None, gt=0)  # None: as many as the budget allows
    num_samples: int = Field(default=5, gt=0, le=1000)
    num_warmups: int = Field(default=1, ge=0)
    budget_s: float = Field(default=180.0, gt=0)
    precision: float = Field(default=0.10, gt=0, lt=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    data_dir: Path | None = None
    limit_bytes_per_s: float | None = Field(default=None, gt=0)
    working_set_bytes: int | None = Field(default=None, gt=0)

    @property
    def limit(self) -> ReadLimit | None:
        """The read limit; None without one."""
        return None if self.limit_bytes_per_s is None else ReadLimit(self.limit_bytes_per_s)

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], *, options: Mapping[str, dict[str, str]]) -> Self:
        """The plan that the flags of `sweep` ask for.

        Args:
            flags: by parameter name; bytes, rates and durations as text.
            options: of each backend.
        """
        backends = flags["backend"].split(",")
        loads = tuple(
            LoadSpec(
                backend=backend,
                preset=preset,
                direct=None if flags["buffered"] is None else not flags["buffered"],
                chunk_tokens=flags["chunk_tokens"],
                num_threads=flags["threads"],
                queue_depth=flags["queue_depth"],
                options=options[backend],
                request_bytes=parsed(parse_bytes, flags["request"]),
            )
            for backend in backends
            for preset in flags["layout"].split(",")
        )
        return cls.model_validate(
            {
                **{name: value for name, value in flags.items() if name in cls.model_fields},
                "tensor_parallel": flags["tp"],
                "loads": loads,
                "simulation": SimulationSpec() if "simulated" in backends else None,
                "tokens": parse_lengths(flags["tokens"]),
                "num_rounds": flags["rounds"],
                "num_samples": flags["samples"],
                "budget_s": parsed(parse_duration, flags["budget"]),
                "limit_bytes_per_s": parsed(parse_rate, flags["limit"]),
                "working_set_bytes": parsed(parse_bytes, flags["working_set"]),
            }
        )


def require_lengths(lengths: tuple[int, ...], *, most: int, chunk_tokens: int, layout: str) -> None:
    """Stop on a token list that cannot be measured as asked.

    Args:
        lengths: prefix lengths asked for, in the order given.
        most: the model's maximum.
        chunk_tokens: the largest KV chunk of any load series.
        layout: whose chunk that is.
    """
    if not lengths:
        raise PlanError("the token list is empty; try --tokens 512,1024,2048")
    bad = [n for n in lengths if n <= 0]
    if bad:
        raise PlanError(f"prefix length {bad[0]} is not positive; lengths are tokens, from 1 on")
    for before, after in itertools.pairwise(lengths):
        if after <= before:
            raise PlanError(f"the token list must rise: {after} follows {before}")
    if lengths[-1] > most:
        raise PlanError(f"prefix length {lengths[-1]} is beyond the model's maximum of {most} tokens")
    if lengths[0] < chunk_tokens:
        raise PlanError(
            f"a chunk of layout {layout} ({chunk_tokens} tokens) is larger than the prefix of {lengths[0]}; "
            f"try --chunk-tokens {lengths[0]} or lengths from {chunk_tokens} on"
        )


def parse_lengths(text: str) -> tuple[int, ...] | None:
    """The lengths in `512,1024,2048`; None for `auto`, which lets the sweep choose."""
    if text.strip() == "auto":
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise PlanError(
            f"token list {text!r} is not whole numbers with commas; try --tokens 512,1024"
        ) from None
