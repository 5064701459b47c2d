"""Detect CPU and disk interference from other processes, per round."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from bench.machine.counters import SystemCounters, read_system_counters
from bench.measure.conditions.header import BUSY_SHARE
from bench.measure.conditions.object_server import find_server
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan
from bench.record.notices import Notice
from kvio.evidence.io_counters import Traffic
from kvio.evidence.storage_device import find_block_device

# above both, in one round, another process writes to the drive: the sweep itself writes rows and headers
WRITTEN_SHARE = 0.10  # of what was read from it
WRITTEN_BYTES = 64e6


@dataclass(slots=True)
class InterferenceMonitor:
    """Interference by round number."""

    read: Callable[[], SystemCounters]  # the counters now
    before: SystemCounters  # the counters when the round before ended
    # of the processor, in the rounds in which others took much of it
    shares: dict[int, float] = field(default_factory=dict)
    # of the drive, in the rounds in which others wrote much to it
    traffic: dict[int, Traffic] = field(default_factory=dict)

    def look(self, number: int) -> tuple[Notice, ...]:
        """Notices after round `number`: one of each kind, for all rounds so far."""
        before, self.before = self.before, self.read()
        share = self.before.others_share_since(before)
        if share is not None and share > BUSY_SHARE:
            self.shares[number] = share
        moved = self.before.drive_since(before)
        if moved is not None and moved.written_bytes > max(WRITTEN_BYTES, WRITTEN_SHARE * moved.read_bytes):
            self.traffic[number] = moved
        return (*self._notice_processor(), *self._notice_drive())

    def _notice_processor(self) -> tuple[Notice, ...]:
        if not self.shares:
            return ()
        message = (
            f"{_since(self.shares)}: other work took up to {max(self.shares.values()):.0%} of the processor in "
            f"{_format_rounds(self.shares)}; expect wide intervals"
        )
        return (Notice(kind="busy_machine", detail=message),)

    def _notice_drive(self) -> tuple[Notice, ...]:
        if not self.traffic:
            return ()
        written = sum(moved.written_bytes for moved in self.traffic.values())
        read = sum(moved.read_bytes for moved in self.traffic.values())
        message = (
            f"{_since(self.traffic)}: {written / 1e9:.2f} GB were written to the drive in {_format_rounds(self.traffic)}, "
            f"where the sweep only reads, while it gave {read / 1e9:.2f} GB; that may have slowed it"
        )
        return (Notice(kind="drive_shared", detail=message),)


def start_monitor(setup: ResolvedPlan, session: MeasurementSession) -> InterferenceMonitor | None:
    """Start to count other work; None in a simulation, which nothing disturbs."""
    if setup.plan.simulation is not None:
        return None
    counts_processor = not _has_server_here(setup)
    reads_files = session.scratch is not None and any(load.reads_files for load in setup.loads)
    device = find_block_device(session.scratch) if session.scratch is not None and reads_files else None

    def read() -> SystemCounters:
        return read_system_counters(session.clock.now_s(), counts_processor=counts_processor, device=device)

    return InterferenceMonitor(read, read())


def _has_server_here(setup: ResolvedPlan) -> bool:
    """Whether a server on this machine serves the reads: its processor time is part of the sweep."""
    servers = (find_server(load) for load in setup.loads)
    return any(server is not None and server.interface.name == "lo" for server in servers)


def _since(numbers: Iterable[int]) -> str:
    """How a notice begins: alike for as long as rounds are added to it, so that the latest replaces the others."""
    return f"from round {min(numbers)} on"


def _format_rounds(numbers: Iterable[int]) -> str:
    """Numbers of rounds for people: "round 2", "rounds 2-4, 7"."""
    ordered = sorted(numbers)
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])
    ]
    ranges = ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"round{'s' if len(ordered) > 1 else ''} {ranges}"
