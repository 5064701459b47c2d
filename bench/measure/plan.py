"""What was asked of a sweep; everything a run does follows from its plan, seed and machine."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

DType = Literal["bfloat16", "float16", "float32"]


class LoadSpec(BaseModel):
    """One way to load: a backend under a layout preset; None takes the preset's or the best value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: str = "posix"
    preset: str = "best"
    direct: bool | None = None
    chunk_tokens: int | None = Field(default=None, gt=0)
    num_threads: int | None = Field(default=None, gt=0)
    request_bytes: int | None = Field(default=None, gt=0)
    queue_depth: int | None = Field(default=None, gt=0)


class SimulationSpec(BaseModel):
    """A known truth: recompute a + b n + c n^2 and load a + b n seconds, with multiplicative noise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recompute_s: tuple[float, float, float] = (0.02, 2e-5, 4e-9)
    load_s: tuple[float, float] = (0.05, 1e-5)
    round_noise: float = Field(default=0.03, ge=0, lt=1)
    sample_noise: float = Field(default=0.02, ge=0, lt=1)


class Plan(BaseModel):
    """A sweep as asked.  Paths are kept as given; seconds, bytes and tokens throughout."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    dtype: DType = "bfloat16"
    kv_dtype: str | None = None
    tensor_parallel: int = Field(default=1, gt=0)
    device: str = "auto"
    attention: str = "auto"
    prefill_chunk: int | None = Field(default=None, gt=0)
    suffix_tokens: int = Field(default=0, ge=0)
    layers: Literal["auto", "all", "fit"] = "auto"
    weights: str | None = None
    loads: tuple[LoadSpec, ...] = (LoadSpec(),)
    simulation: SimulationSpec | None = None
    tokens: tuple[int, ...] | None = None
    num_rounds: int = Field(default=8, gt=0)
    num_samples: int = Field(default=5, gt=0)
    num_warmups: int = Field(default=1, ge=0)
    budget_s: float = Field(default=180.0, gt=0)
    precision: float = Field(default=0.10, gt=0, lt=1)
    seed: int = 0
    data_dir: Path | None = None
    limit_bytes_per_s: float | None = Field(default=None, gt=0)
    working_set_bytes: int | None = Field(default=None, gt=0)
