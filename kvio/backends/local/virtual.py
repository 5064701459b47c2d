"""Lets a virtual clock pass as a device with known bandwidth and latency would; moves nothing.

Moves nothing: what is left of a load is the price of the harness.
"""

from collections.abc import Sequence
from pathlib import Path

from kvio.backends.blocking import blocking
from kvio.backends.config import BackendConfig, BackendKind
from kvio.protocol import KVIOError, Read


class NullReader:
    """Says that every byte arrived, and touches neither file nor memory."""

    name = "null"

    def __init__(self, setting: BackendConfig) -> None:
        self.setting = setting

    def open(self, path: Path) -> None:
        """Open nothing."""

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """The bytes asked for, none of which were moved."""
        return sum(read.num_bytes for read in reads)

    def shut(self, path: Path) -> None:
        """Close nothing."""

    def close(self) -> None:
        """Close nothing."""


class SimulatedReader:
    """Reads from the setting's `SimulatedDevice`."""

    name = "simulated"

    def __init__(self, setting: BackendConfig) -> None:
        if setting.device is None:
            raise KVIOError("the simulated backend needs a device: bandwidth, latency and a virtual clock")
        self._device = setting.device

    def open(self, path: Path) -> None:
        """Open nothing."""

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """The bytes asked for, after the clock has passed for each read."""
        for read in reads:
            self._device.serve(read.num_bytes)
        return sum(read.num_bytes for read in reads)

    def shut(self, path: Path) -> None:
        """Close nothing."""

    def close(self) -> None:
        """Close nothing."""


NULL = BackendKind(
    "nothing: the price of the harness", blocking(NullReader), moves_bytes=False, from_storage=False
)
SIMULATED = BackendKind(
    "a modelled drive with a known answer", blocking(SimulatedReader), moves_bytes=False, from_storage=False
)
