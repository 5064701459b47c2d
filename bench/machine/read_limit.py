"""A slower disk on demand: the kernel's block layer holds the reading process to so many bytes per second."""

import errno
import itertools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from kvio.errors import UserError
from kvio.evidence.mounts import read_mounts
from kvio.evidence.storage_device import describe_storage

# kvcross-<process id>-<its start in clock ticks since boot>-<number>: names its owner, who may be gone
GROUP_NAME = re.compile(r"kvcross-(\d+)-(\d+)-\d+")
CLOSE_TRIES = 100
CLOSE_WAIT_S = 0.01
_numbers = itertools.count()


class LimitRefusedError(UserError):
    """Reads cannot be limited on this machine; one line with the reason."""


@dataclass(frozen=True, slots=True)
class Controller:
    """The block-layer controller of this machine."""

    # of the cgroup interface (kernel: admin-guide/cgroup-v1/blkio-controller.rst, cgroup-v2.rst)
    version: Literal[1, 2]
    folder: Path  # where groups are made

    @property
    def limit_file(self) -> str:
        """Takes the limit of a group."""
        return "blkio.throttle.read_bps_device" if self.version == 1 else "io.max"

    def limit_line(self, disk: str, bytes_per_s: int) -> str:
        """What to write to `limit_file`."""
        return f"{disk} {bytes_per_s}" if self.version == 1 else f"{disk} rbps={bytes_per_s}"

    @property
    def counter_file(self) -> str:
        """Counts what a group has read."""
        return "blkio.throttle.io_service_bytes" if self.version == 1 else "io.stat"

    def counted_bytes(self, text: str, disk: str) -> int:
        """Bytes read from `disk`, out of the text of `counter_file`."""
        name = r" Read (\d+)" if self.version == 1 else r"(?: \S+)* rbytes=(\d+)"
        found = re.search(rf"^{re.escape(disk)}{name}", text, re.MULTILINE)
        return int(found[1]) if found else 0  # the kernel lists a disk from its first read on


def find_controller(root: Path = Path("/")) -> Controller | None:
    """The controller to use: io of cgroup v2, else blkio of v1; None when the kernel offers neither."""
    first = None
    for mount in read_mounts(root):
        folder = root / mount.mount_point.relative_to("/")
        if mount.fs_type == "cgroup2" and "io" in _read_words(folder / "cgroup.controllers"):
            return Controller(2, folder)
        if mount.fs_type == "cgroup" and "blkio" in mount.options:
            first = Controller(1, folder)
    return first


class ReadThrottle:
    """Holds the processes that are attached to `bytes_per_s` read from the disks under `path`.

    As a context manager, it removes its group in the end; processes still in it go back to where they were.

    Args:
        path: a folder on the disk.
        bytes_per_s: over all attached processes together, from each disk.

    Raises:
        LimitRefusedError: no block device, no controller, no permission.
    """

    def __init__(self, path: Path, bytes_per_s: float) -> None:
        self.disks = _require_disks(path)
        self.bytes_per_s = _require_rate(bytes_per_s)
        self._origins: dict[int, Path] = {}
        controller = find_controller()
        if controller is None:
            raise LimitRefusedError("the kernel offers neither the io nor the blkio cgroup controller")
        self.controller = controller
        clean_stale_groups(controller)
        self.group = controller.folder / f"kvcross-{os.getpid()}-{_start_ticks(os.getpid())}-{next(_numbers)}"
        self._make_group()

    def _make_group(self) -> None:
        try:
            if self.controller.version == 2:
                (self.controller.folder / "cgroup.subtree_control").write_text("+io")
            self.group.mkdir()
        except OSError as error:
            raise LimitRefusedError(
                f"cannot make the cgroup {self.group}: {error.strerror}; "
                "--limit needs root and a writable cgroup hierarchy"
            ) from None
        try:
            self._set_limit()
        except (OSError, LimitRefusedError) as error:
            self.group.rmdir()
            raise LimitRefusedError(f"cannot limit reads in {self.group}: {error}") from None

    def _set_limit(self) -> None:
        target = self.group / self.controller.limit_file
        for disk in self.disks:
            line = self.controller.limit_line(disk, self.bytes_per_s)
            target.write_text(line)
            if not any(shown.startswith(line) for shown in target.read_text().splitlines()):
                raise LimitRefusedError(f"the kernel took {line!r} and does not show it")

    def attach(self, pid: int) -> None:
        """Put process `pid`, with all its threads and its children to come, under the limit.

        Raises:
            LimitRefusedError: it is gone, or not ours to move.
        """
        origin = self._group_of(pid)
        try:
            (self.group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise LimitRefusedError(f"cannot limit process {pid}: {error.strerror}") from None
        if origin != self.group:
            self._origins[pid] = origin

    def _group_of(self, pid: int) -> Path:
        """The group a process is in now."""
        names = {""} if self.controller.version == 2 else {"blkio"}
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            raise LimitRefusedError(f"cannot limit process {pid}: no such process") from None
        for line in lines:
            _, controllers, name = line.split(":", 2)
            if names & set(controllers.split(",")):
                return self.controller.folder / name.lstrip("/")
        return self.controller.folder

    def members(self) -> set[int]:
        """Process ids under the limit."""
        return {int(word) for word in _read_words(self.group / "cgroup.procs")}

    def read_bytes(self) -> int:
        """Bytes that the processes have read from the disks under the limit, as the block layer counts."""
        text = (self.group / self.controller.counter_file).read_text()
        return sum(self.controller.counted_bytes(text, disk) for disk in self.disks)

    def close(self) -> bool:
        """Send processes back and remove the group, safe to call twice; False if it had to stay.

        A process that is just dying holds the group for a moment.  What stays, a later run removes.
        """
        for _ in range(CLOSE_TRIES):
            if not self.group.is_dir():
                return True
            for pid in self.members():
                _move(pid, self._origins.get(pid, self.controller.folder))
            if _remove(self.group):
                return True
            time.sleep(CLOSE_WAIT_S)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def clean_stale_groups(controller: Controller) -> list[str]:
    """Remove groups whose owner was killed; names of those removed.  A group still in use stays."""
    removed = []
    for group in sorted(controller.folder.glob("kvcross-*")):
        found = GROUP_NAME.fullmatch(group.name)
        if found is None or _start_ticks(int(found[1])) == int(found[2]):
            continue
        if _remove(group):
            removed.append(group.name)
    return removed


def clean_groups_left_behind() -> None:
    """Remove groups of sweeps that were killed, where the kernel has such groups at all."""
    controller = find_controller()
    if controller is not None:
        clean_stale_groups(controller)


def _remove(group: Path) -> bool:
    """False where the group is still in use, already gone, or not ours to remove."""
    try:
        group.rmdir()
    except OSError as error:
        if error.errno not in {errno.EBUSY, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        return False
    return True


def _require_disks(path: Path) -> tuple[str, ...]:
    storage = describe_storage(path)
    if storage.device is None or not storage.device.disks:
        raise LimitRefusedError(f"{path} is on {storage.name}: there is no block device to limit")
    return storage.device.disks


def _require_rate(bytes_per_s: float) -> int:
    if not 1 <= bytes_per_s < 2**63:
        raise LimitRefusedError(f"a limit of {bytes_per_s} bytes/s cannot be set; pass at least 1")
    return int(bytes_per_s)


def _move(pid: int, group: Path) -> None:
    try:
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        if error.errno != errno.ESRCH and psutil.pid_exists(pid):  # gone meanwhile is as good
            raise


def _start_ticks(pid: int) -> int | None:
    """Clock ticks since boot at which a process started, None when it is gone; distinguishes a reused id."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(
        fields[19]
    )  # starttime is field 22, and the third comes right after the name; proc_pid_stat(5)


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (
        OSError
    ):  # a cgroup2 mount of a kernel that keeps its controllers in v1, or one that may not be entered
        return []
