"""Files that stay open between reads."""

import errno
import fcntl
import os
from collections import OrderedDict
from pathlib import Path

from kvio.backends.protocol import KVIOError

MAX_OPEN_FILES = 32  # per thread; the usual limit of a process is 1024
REMEDIES = {
    errno.EMFILE: "; too many open files: raise ulimit -n or use fewer threads",
    errno.ENFILE: "; the system has no more open files",
    errno.EINVAL: "; this file system refuses O_DIRECT: read buffered, or use another directory",
}


class OpenedFiles:
    """Descriptors by path; the least recently used are closed first.

    Args:
        direct: open with O_DIRECT.
        most: files that are kept open.
    """

    def __init__(self, *, direct: bool, most: int = MAX_OPEN_FILES) -> None:
        self._direct = direct
        self._most = most
        self._opened: OrderedDict[Path, int] = OrderedDict()

    def open(self, path: Path) -> None:
        """Open `path`, and under O_DIRECT check that the descriptor really has it.

        Raises:
            KVIOError: gone, not permitted, too many open files, or O_DIRECT refused.
        """
        if path in self._opened:
            self._opened.move_to_end(path)
            return
        if len(self._opened) >= self._most:
            os.close(self._opened.popitem(last=False)[1])
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self._direct else 0)
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}{REMEDIES.get(error.errno or 0, '')}") from error
        self._opened[path] = descriptor
        if self._direct and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise KVIOError(f"{path}: opened, but without O_DIRECT; read buffered, or use another directory")

    def descriptor(self, path: Path) -> int:
        """Of an opened path."""
        return self._opened[path]

    def shut(self, path: Path) -> None:
        """Close `path`, if it is open."""
        descriptor = self._opened.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close every file; safe to call twice."""
        while self._opened:
            os.close(self._opened.popitem()[1])
