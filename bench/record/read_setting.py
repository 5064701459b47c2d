"""Request size, queue depth and threads of a load series, and the search that chose them."""

import statistics

from pydantic import BaseModel, ConfigDict, Field

from bench.record.plan import Plan


class ReadSetting(BaseModel):
    """How files are read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_threads: int = Field(gt=0)
    in_flight: int = Field(gt=0)  # parts of chunks in flight per thread
    request_bytes: int = Field(gt=0)  # largest read passed to the backend

    @property
    def queue_depth(self) -> int:
        """Jobs in flight over all threads, each a part of a chunk."""
        return self.num_threads * self.in_flight

    def __str__(self) -> str:
        """In words: "4 threads, 16 in flight, 4 MiB requests"."""
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        return f"{threads}, {self.queue_depth} in flight, {_format_binary(self.request_bytes)} requests"

    @property
    def brief(self) -> str:
        """For labels, threads × in flight of each, and the request size: "4 × 4, 4 MiB"."""
        return f"{self.num_threads} × {self.in_flight}, {_format_binary(self.request_bytes)}"


def _format_binary(num_bytes: int) -> str:
    for size, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"


class SettingTrial(BaseModel):
    """A tried setting: the rate of each read in order; `failed` is the reason if it stopped."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    setting: ReadSetting
    bytes_per_s: tuple[float, ...] = ()
    failed: str | None = None


class SettingSearch(BaseModel):
    """The search for the read setting of one load series."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # used by all rounds; None without a search: the layout's values are used
    chosen: ReadSetting | None = None
    # the layout's values; another setting must be significantly faster
    default: ReadSetting | None = None
    reason: str  # of the choice, or of no search
    trials: tuple[SettingTrial, ...] = ()  # in the order first tried
    prefix_tokens: int | None = None  # of each trial
    seconds: float | None = None  # of the search, with process start and warm-up

    def bytes_per_s(self, setting: ReadSetting) -> float | None:
        """Median rate of one of the settings; None where nothing was read with it."""
        rates = [rate for trial in self.trials if trial.setting == setting for rate in trial.bytes_per_s]
        return statistics.median(rates) if rates else None


def settle(plan: Plan, searches: dict[str, SettingSearch]) -> Plan:
    """The plan with the settings that were found."""
    loads = []
    for load in plan.loads:
        found = searches.get(load.series)
        chosen = None if found is None else found.chosen
        if chosen is not None:
            load = load.model_copy(
                update={
                    "num_threads": chosen.num_threads,
                    "queue_depth": chosen.queue_depth,
                    "request_bytes": chosen.request_bytes,
                }
            )
        loads.append(load)
    return plan.model_copy(update={"loads": tuple(loads)})
