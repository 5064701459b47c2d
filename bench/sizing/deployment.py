"""Everything that one deployment is sized from, and the figures that several of its tables need; modelled."""

from dataclasses import dataclass

from bench.record.validate import require_positive, require_share
from bench.sizing.demand import Demand
from bench.sizing.drives import (
    Drive,
    DriveCount,
    count_drives,
    require_amplification,
    writes_per_day,
    years_of_life,
)
from bench.sizing.throughput import GpuCount, Throughput, count_gpus
from bench.sizing.tokencost import StorageTierCost


@dataclass(frozen=True, slots=True)
class Prices:
    """What the user says things cost; nothing is built in.  None where no price was given."""

    gpu_hour: float | None = None
    media: tuple[StorageTierCost, ...] = ()
    reuses_per_day: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("price of a GPU-hour", self.gpu_hour), ("reuses per day", self.reuses_per_day)):
            if value is not None:
                require_positive(name, value)


@dataclass(frozen=True, slots=True)
class Sizing:
    """Everything that a deployment is sized from.

    Args:
        demand: of the requests.
        measured: prefill throughput, and who says so.
        utilisation: share of it to plan with.
        work_unit: what the demand's work is counted in.
        stored_bytes: KV kept in the store, None where nobody said.
        stored_how: how that came about.
        rate_how: how the requests per second came about; empty as given.
        drive: what the store is built of, None where nobody said.
        write_amplification: bytes that count against a drive's rating / bytes written.
        occupancy: share of what is bought that holds KV.
        prices: of the user.
    """

    demand: Demand
    measured: Throughput
    utilisation: float
    work_unit: str
    stored_bytes: float | None = None
    stored_how: str = ""
    rate_how: str = ""
    drive: Drive | None = None
    write_amplification: float = 1.0
    occupancy: float = 1.0
    prices: Prices = Prices()

    def __post_init__(self) -> None:
        require_share("utilisation", self.utilisation, zero=False)
        require_share("occupancy", self.occupancy, zero=False)
        require_amplification(self.write_amplification)

    @property
    def gpus_without_reuse(self) -> GpuCount:
        """GPUs that prefill every prompt whole."""
        return count_gpus(self.demand.tokens_per_s, self.measured, utilisation=self.utilisation)

    @property
    def gpus_with_reuse(self) -> GpuCount:
        """GPUs that prefill the tokens not found alone."""
        return count_gpus(
            self.demand.tokens_per_s,
            self.measured,
            utilisation=self.utilisation,
            work_share=self.demand.marginal_share,
        )

    def count_drives(self, drive: Drive) -> DriveCount:
        """Drives of that kind that the store is built of."""
        return count_drives(
            drive,
            stored_bytes=self.stored_bytes,
            read_bytes_per_s=self.demand.read_bytes_per_s,
            write_bytes_per_s=self.demand.write_bytes_per_s,
            write_amplification=self.write_amplification,
            occupancy=self.occupancy,
        )

    def wear(self, drive: Drive, num_drives: int) -> tuple[float, float | None]:
        """Writes per day of the host to each drive, and the years until its rated writes are used."""
        writes = writes_per_day(drive, num_drives, self.demand.write_bytes_per_s)
        return writes, years_of_life(drive, writes * self.write_amplification)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a table: what it is, its value and unit, and the formula behind it."""

    quantity: str
    value: float | str | None
    unit: str
    formula: str = ""
