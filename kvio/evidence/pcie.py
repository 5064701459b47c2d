"""What the PCI Express link between a drive and the CPU can carry at most."""

import re
from dataclasses import dataclass
from pathlib import Path

# Bytes/s of one lane in one direction after line coding, by signalling rate in GT/s.
# Source: PCI Express Base Specification: 8b/10b coding at 2.5 and 5 GT/s, 128b/130b at 8, 16 and 32 GT/s,
# 242 of each 256-byte flit at 64 GT/s.  Packet headers come off that, so these are upper bounds.
LANE_BYTES_PER_S = {
    2.5: 2.5e9 / 8 * 8 / 10,
    5.0: 5e9 / 8 * 8 / 10,
    8.0: 8e9 / 8 * 128 / 130,
    16.0: 16e9 / 8 * 128 / 130,
    32.0: 32e9 / 8 * 128 / 130,
    64.0: 64e9 / 8 * 242 / 256,
}
GENERATIONS = {rate: number for number, rate in enumerate(LANE_BYTES_PER_S, start=1)}


@dataclass(frozen=True, slots=True)
class Link:
    """A PCI Express link: its generation (1 to 6) and its number of lanes."""

    generation: int
    width: int

    @property
    def bytes_per_s(self) -> float:
        """Upper bound of its payload rate in one direction."""
        rate = next(rate for rate, number in GENERATIONS.items() if number == self.generation)
        return LANE_BYTES_PER_S[rate] * self.width


def find_link(disk: Path) -> Link | None:
    """The narrowest hop above the device at `disk`, a resolved folder in sysfs; None when no hop is known.

    A hop counts with its fastest generation and its present width: an idle link may run slower to save
    power and speed up under load, and a bound must not refuse a true rate.
    """
    folder = _controller(disk)
    hops = [link for parent in (folder, *folder.parents) if (link := _read_link(parent)) is not None]
    return min(hops, key=lambda link: link.bytes_per_s, default=None)


def _controller(disk: Path) -> Path:
    """Where to start: multipath NVMe disks are virtual devices that lie beside a link to their controller."""
    if not any(part.startswith("nvme-subsys") for part in disk.parts):
        return disk
    controllers = [path for path in disk.parent.glob("nvme*") if re.fullmatch(r"nvme\d+", path.name)]
    return controllers[0].resolve() if len(controllers) == 1 else disk


def _read_link(folder: Path) -> Link | None:
    try:
        speed = (folder / "max_link_speed").read_text()
        width = (folder / "current_link_width").read_text()
    except OSError:  # not a PCI device, or one inside the root complex
        return None
    found = re.match(r"([0-9.]+) GT/s", speed)
    generation = GENERATIONS.get(float(found[1])) if found else None
    lanes = int(width) if width.strip().isdigit() else 0
    # 63 and 255 are what the kernel reports for "unknown"
    return Link(generation, lanes) if generation is not None and 0 < lanes <= 32 else None
