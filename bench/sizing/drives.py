"""How many drives hold, read and survive the KV of a demand; modelled."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from bench.catalog.devices.datasheet import other_figures, pick_figure
from bench.catalog.devices.device_catalog import Devices, Ssd
from bench.record.validate import MAX_FIGURE, InputError, exact, require_positive, require_share
from bench.sizing.size_scenario import DriveSpec

DAY_S = 86_400
YEAR_DAYS = 365


@dataclass(frozen=True, slots=True)
class Drive:
    """One drive; what is not known is None.

    Args:
        capacity_bytes: usable.
        read_bytes_per_s: sustained, of one drive.
        dwpd: rated writes of its whole capacity per day over the warranty.
        warranty_years: for which the rating holds.
        sources: of "capacity", "read" and "dwpd"; what is not in it was given by the user.
    """

    capacity_bytes: int
    read_bytes_per_s: float | None
    dwpd: float | None
    warranty_years: float
    sources: Mapping[str, str] = field(default_factory=dict)

    def source_of(self, figure: str) -> str:
        """Where a figure comes from."""
        return self.sources.get(figure, "as given")

    @property
    def endurance_bytes(self) -> float | None:
        """Bytes that may be written in its life: DWPD x capacity x 365 x years (JESD218 rates it as TBW)."""
        return (
            None if self.dwpd is None else self.dwpd * self.capacity_bytes * YEAR_DAYS * self.warranty_years
        )


def dwpd_of_tbw(tbw_bytes: float, capacity_bytes: int, years: float) -> float:
    """Drive writes per day that a rating in bytes written comes to: TBW / (capacity x 365 x years)."""
    require_positive("TBW", tbw_bytes, unit="bytes")
    require_positive("drive capacity", capacity_bytes, unit="bytes")
    require_positive("warranty", years, unit="years")
    return tbw_bytes / (capacity_bytes * YEAR_DAYS * years)


def require_amplification(write_amplification: float) -> None:
    """Stop unless the flash takes at least the bytes that are written.

    Raises:
        InputError: less than 1, or no number.
    """
    if not 1 <= write_amplification < MAX_FIGURE:
        raise InputError(f"write amplification must be 1 or more, not {write_amplification:g}")


@dataclass(frozen=True, slots=True)
class DriveCount:
    """Drives that each need asks for, unrounded; None where a figure for it is missing."""

    for_capacity: float | None
    for_bandwidth: float | None
    for_endurance: float | None

    @property
    def needs(self) -> dict[str, float]:
        """The known needs by name."""
        named = {
            "capacity": self.for_capacity,
            "bandwidth": self.for_bandwidth,
            "endurance": self.for_endurance,
        }
        return {name: drives for name, drives in named.items() if drives is not None}

    @property
    def whole(self) -> int | None:
        """Rounded up, so that every known need is met; at least one drive."""
        return max(1, ceil(max(self.needs.values()))) if self.needs else None

    @property
    def decided_by(self) -> str | None:
        """The need that asks for most."""
        return max(self.needs, key=lambda name: self.needs[name]) if self.needs else None


def count_drives(
    drive: Drive,
    *,
    stored_bytes: float | None,
    read_bytes_per_s: float,
    write_bytes_per_s: float,
    write_amplification: float = 1.0,
    occupancy: float = 1.0,
) -> DriveCount:
    """Drives for the KV stored, read and written.

        capacity    stored bytes / share of a drive that holds KV / capacity of a drive
        bandwidth   bytes read per second / what a drive reads
        endurance   bytes written per day x write amplification / (DWPD x capacity)

    A rating is for writes of the host under a workload of its own (JESD219), so that its amplification is in it
    already: 1 counts what the host writes, as KV does that is written once in large chunks and deleted whole.

    Raises:
        InputError: an amplification below 1, or no share.
    """
    require_share("occupancy", occupancy, zero=False)
    require_amplification(write_amplification)
    written = exact(write_bytes_per_s) * DAY_S * exact(write_amplification)
    return DriveCount(
        for_capacity=None
        if stored_bytes is None
        else float(exact(stored_bytes) / exact(occupancy) / drive.capacity_bytes),
        for_bandwidth=None
        if drive.read_bytes_per_s is None
        else float(exact(read_bytes_per_s) / exact(drive.read_bytes_per_s)),
        for_endurance=None
        if drive.dwpd is None
        else float(written / (exact(drive.dwpd) * drive.capacity_bytes)),
    )


def writes_per_day(drive: Drive, num_drives: int, write_bytes_per_s: float) -> float:
    """Drive writes per day of the host to each of `num_drives`: bytes a day / (drives x capacity)."""
    return write_bytes_per_s * DAY_S / (num_drives * drive.capacity_bytes)


def years_of_life(drive: Drive, drive_writes_per_day: float) -> float | None:
    """Years until the rated bytes are written; None where the rating is unknown or nothing is written.

    Args:
        drive_writes_per_day: that count against the rating.
    """
    if drive.dwpd is None or drive_writes_per_day == 0:
        return None
    return drive.dwpd / drive_writes_per_day * drive.warranty_years


def find_drive(spec: DriveSpec, devices: Devices) -> Drive:
    """The drive as given, its missing figures from the catalogue.

    Raises:
        InputError: no capacity is known, or a figure is out of its range.
    """
    known = None if spec.ssd is None else _read_drive(spec.ssd, devices, spec.warranty_years)
    capacity_bytes = spec.capacity or (None if known is None else known.capacity_bytes or None)
    if capacity_bytes is None:
        raise InputError(
            f"the capacity of {spec.ssd or 'the drive'} is not known; try drive.capacity = '7.68TB'"
        )
    dwpd = spec.dwpd
    if spec.tbw is not None:
        dwpd = dwpd_of_tbw(spec.tbw, capacity_bytes, spec.warranty_years)
    given = Drive(capacity_bytes, spec.read, dwpd, spec.warranty_years)
    require_positive("warranty", spec.warranty_years, unit="years")
    require_positive("DWPD", 1.0 if dwpd is None else dwpd)
    return given if known is None else _fill(given, known)


def _read_drive(ssd: str, devices: Devices, warranty_years: float) -> Drive:
    """A drive of the catalogue: the largest of its family, what was measured before what is printed."""
    entry = devices.find_storage(ssd)
    if not isinstance(entry, Ssd):
        raise InputError(f"drive.ssd {ssd}: is a link or a store, not a drive")
    figures = {
        "capacity": pick_figure(entry.capacities_bytes),
        "read": pick_figure((*entry.measured_read_bytes_per_s, *entry.read_bytes_per_s)),
        "dwpd": pick_figure(entry.dwpd),
    }
    value = {name: None if figure is None else figure.value for name, figure in figures.items()}
    sources = {
        name: f"{entry.name}, {figure.source}" for name, figure in figures.items() if figure is not None
    }
    measured = entry.measured_read_bytes_per_s or entry.read_bytes_per_s
    for other in other_figures(measured):
        sources["read"] += f"; also {other.value / 1e9:g} GB/s, {other.source}"
    rate = value["read"]
    return Drive(
        round(value["capacity"] or 0),
        None if rate is None else rate / entry.num_drives,
        value["dwpd"],
        warranty_years,
        sources,
    )


def _fill(given: Drive, known: Drive) -> Drive:
    """What was given, and from the catalogue what was not."""
    taken = {
        "capacity": given.capacity_bytes == known.capacity_bytes,
        "read": given.read_bytes_per_s is None,
        "dwpd": given.dwpd is None,
    }
    return replace(
        given,
        read_bytes_per_s=known.read_bytes_per_s if taken["read"] else given.read_bytes_per_s,
        dwpd=known.dwpd if taken["dwpd"] else given.dwpd,
        sources={name: source for name, source in known.sources.items() if taken[name]},
    )
