"""The file system that a path lies in, from /proc/self/mountinfo."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo (proc_pid_mountinfo(5)).

    Args:
        mount_point: where it is mounted.
        fs_type: "ext4", "tmpfs", "overlay", "nfs4" …
        source: device, server or whatever the file system calls its source.
        major_minor: device number of its files; "0:…" when there is no block device.
        options: of the mount and of the file system, flags with an empty value.
    """

    mount_point: Path
    fs_type: str
    source: str
    major_minor: str
    options: Mapping[str, str]


def read_mounts(root: Path = Path("/")) -> Iterator[Mount]:
    """All mounts, in the order in which they were made."""
    for line in (root / "proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        _, _, major_minor, _, mount_point, options = before.split(" ")[:6]
        fs_type, source, super_options = after.split(" ", 2)
        yield Mount(
            mount_point=Path(_unescape(mount_point)),
            fs_type=fs_type,
            source=_unescape(source),
            major_minor=major_minor,
            options=MappingProxyType(_parse_options(f"{super_options},{options}")),
        )


def find_mount(path: Path, root: Path = Path("/")) -> Mount | None:
    """The mount that `path` lies in: the longest mount point by path component, the latest among equals.

    By component, because /mnt/a does not hold /mnt/ab/file.  `path` need not exist.
    """
    real = path.resolve()
    holding = [mount for mount in read_mounts(root) if real.is_relative_to(mount.mount_point)]
    depth = max((len(mount.mount_point.parts) for mount in holding), default=0)
    deepest = [mount for mount in holding if len(mount.mount_point.parts) == depth]
    return deepest[-1] if deepest else None


def _unescape(text: str) -> str:
    """Undo the octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _parse_options(text: str) -> dict[str, str]:
    pairs = (option.partition("=") for option in text.split(",") if option)
    return {name: _unescape(value) for name, _, value in pairs}
