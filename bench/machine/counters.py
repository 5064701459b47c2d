"""Counters of this machine at one moment; between two of them, what others did."""

import os
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from kvio.evidence.io_counters import Traffic, read_traffic
from kvio.evidence.storage_device import BlockDevice

ROOT = Path("/")
# positions in a line of /proc/stat; source: proc_stat(5).  Not those of interrupts: the ones of our own reads are in them
USER, NICE, SYSTEM, STEAL = 0, 1, 2, 7
SHORTEST_S = 0.3  # in less, ticks of the kernel are too coarse for a share


@dataclass(frozen=True, slots=True)
class SystemCounters:
    """Counters up to now; None where there is none."""

    at_s: float  # by the clock of the sweep
    busy_s: float | None  # processor seconds that anyone spent on the cores that this process may use
    own_s: float  # processor seconds of this process and of all that it started
    num_cores: int  # that this process may use
    # process ids of what this process itself started and what still runs
    children: frozenset[int] = frozenset()
    drive: Traffic | None = None  # bytes of the devices below the files

    def others_share_since(self, before: "SystemCounters") -> float | None:
        """Of those cores, 0 to 1, used by other processes; None where it is unknown."""
        elapsed_s = self.at_s - before.at_s
        if self.busy_s is None or before.busy_s is None or elapsed_s < SHORTEST_S:
            return None
        if before.children - self.children:  # one was killed, and its children are not counted
            return None
        others_s = (self.busy_s - before.busy_s) - (self.own_s - before.own_s)
        return others_s / (elapsed_s * self.num_cores)

    def drive_since(self, before: "SystemCounters") -> Traffic | None:
        """Bytes read and written meanwhile; None where it is unknown."""
        if self.drive is None or before.drive is None:
            return None
        return self.drive.moved_since(before.drive)


def read_system_counters(
    at_s: float, *, counts_processor: bool = True, device: BlockDevice | None = None, root: Path = ROOT
) -> SystemCounters:
    """The counters now, those of the processor where they are asked for, those of a drive where it is known."""
    cores = os.sched_getaffinity(0)
    busy_s = read_busy_s(cores, root) if counts_processor else None
    own = psutil.Process()
    children = frozenset(child.pid for child in own.children() if is_alive(child))
    drive = None if device is None else read_traffic(device, root)
    return SystemCounters(at_s, busy_s, read_own_s(own), len(cores), children, drive)


def is_alive(process: psutil.Process) -> bool:
    """False for one that has ended too, but is not waited for yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_busy_s(cores: Set[int], root: Path = ROOT) -> float | None:
    """Processor seconds spent on these cores since the start, with what a hypervisor gave to other guests; None where
    not all of them are listed."""
    try:
        lines = [line.split() for line in (root / "proc/stat").read_text().splitlines()]
    except OSError:  # hidden from this container
        return None
    names = {f"cpu{core}" for core in cores}
    ticks = [[int(field) for field in line[1:]] for line in lines if line and line[0] in names]
    if len(ticks) < len(cores) or any(len(core) <= STEAL for core in ticks):
        return None
    busy = sum(core[kind] for core in ticks for kind in (USER, NICE, SYSTEM, STEAL))
    return busy / os.sysconf("SC_CLK_TCK")


def read_own_s(own: psutil.Process) -> float:
    """Processor seconds of a process and all that it started, those that have ended too."""
    total_s = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it ended in between: its parent counts it by now
            total_s += sum(process.cpu_times()[:4])  # user, system, and both of children that were waited for
    return total_s
