"""Bytes that the physical devices below a file system read and wrote, whoever asked for it."""

from dataclasses import dataclass
from pathlib import Path

from kvio.evidence.storage_device import BlockDevice

SECTOR_BYTES = 512  # unit of /sys/block/X/stat on every device; Documentation/block/stat.rst
SECTORS_READ, SECTORS_WRITTEN = 2, 6  # positions in that file


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of all physical devices together, so far."""

    read_bytes: int
    written_bytes: int

    def moved_since(self, before: "Traffic") -> "Traffic | None":
        """Bytes between `before` and this; None where a counter ran backwards, which was reset."""
        read = self.read_bytes - before.read_bytes
        written = self.written_bytes - before.written_bytes
        return None if min(read, written) < 0 else Traffic(read, written)


def read_traffic(device: BlockDevice, root: Path = Path("/")) -> Traffic | None:
    """What /sys/block/X/stat says now, summed; None where one keeps no counters, as behind a loop device."""
    if not all(disk.counts_reads for disk in device.physical):
        return None
    read = written = 0
    for disk in device.physical:
        try:
            fields = (root / "sys/block" / disk.name / "stat").read_text().split()
        except OSError:  # no descriptor is left; unplugged, or hidden from this container
            return None
        read += int(fields[SECTORS_READ])
        written += int(fields[SECTORS_WRITTEN])
    return Traffic(read * SECTOR_BYTES, written * SECTOR_BYTES)
