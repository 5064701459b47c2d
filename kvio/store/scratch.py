"""A run's scratch directory: locked while the run lives, removed however it ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvio.protocol import KVIOError

PREFIX = "kvcross-"
TRIAL_PREFIX = f"{PREFIX}trial-"  # of what is there for a few seconds, and no run
LOCK_NAME = "lock"
TRIES = 16  # to make a directory of our own beside runs that clean up: each loses to one of those at most


class ScratchError(KVIOError):
    """There is no place to put KV files."""


@contextmanager
def open_scratch(parent: Path, *, prefix: str = PREFIX) -> Iterator[Path]:
    """A new, private directory in `parent`, its name begun with `prefix`, removed when the block ends.

    The kernel drops the lock when the process dies, even by kill -9; the next run's `clean_stale` then finds
    the directory without an owner.  A fork keeps the lock until parent and child are both gone.

    Raises:
        ScratchError: `parent` is missing, read-only or full.
    """
    directory, lock = _make_locked(parent, prefix)
    identity = directory.lstat()
    try:
        yield directory
    finally:
        try:
            _remove(directory, identity)
        finally:
            os.close(lock)


def _remove(directory: Path, identity: os.stat_result) -> None:
    """Remove everything, the lock last: a kill on the way leaves a directory that the next run recognises.

    Works by descriptor on the directory of this identity: what has taken its name since, a link say, is left alone.
    What cannot be removed (the directory is gone, its disk read-only) stays; its user has reported the error.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.path.samestat(os.fstat(descriptor), identity):
            _empty(descriptor)
            with suppress(OSError):
                directory.rmdir()
    finally:
        os.close(descriptor)


def _empty(descriptor: int) -> None:
    try:
        with os.scandir(descriptor) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return
    for name, is_directory in sorted(entries, key=lambda entry: entry[0] == LOCK_NAME):
        if is_directory:
            shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)
        else:
            with suppress(OSError):
                os.unlink(name, dir_fd=descriptor)


def _make_locked(parent: Path, prefix: str) -> tuple[Path, int]:
    for _ in range(TRIES):
        directory = _make_directory(parent, prefix)
        try:
            lock = os.open(directory / LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # a cleaning run removed the newborn directory before it had a lock
        except OSError as error:
            raise _refused(parent, error) from error
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_same_file(lock, directory / LOCK_NAME):
            return directory, lock
        os.close(lock)  # a cleaning run was faster than the lock
    raise ScratchError(
        f"{parent}: {TRIES} new directories were removed here as soon as they were made; name another"
    )


def _make_directory(parent: Path, prefix: str) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))  # mode 0700
    except NotADirectoryError as error:
        raise ScratchError(f"{parent}: a file, not a directory; name a directory") from error
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not parent.is_dir():
            raise ScratchError(f"{parent}: no such directory; create it or name another") from error
        raise _refused(parent, error) from error  # of procfs, say, "no such file"


def _refused(parent: Path, error: OSError) -> ScratchError:
    return ScratchError(f"{parent}: cannot make a scratch directory: {error.strerror}")


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def clean_stale(parent: Path, *, prefix: str = PREFIX) -> list[Path]:
    """Remove the scratch directories in `parent` whose run is dead; gives those removed.

    Directories of live runs, of other users and links are left alone.
    """
    found = sorted(parent.glob(prefix + "*")) if parent.is_dir() else []
    return [path for path in found if _is_ours(path) and _remove_if_stale(path)]


def count_live(parent: Path) -> int:
    """Scratch directories in `parent` whose runs live; a trial's, or one of the same name without a run's lock, is none."""
    found = parent.glob(PREFIX + "*") if parent.is_dir() else ()
    runs = (path for path in found if not path.name.startswith(TRIAL_PREFIX))
    return sum(1 for path in runs if _is_ours(path) and _is_held(path))


def _is_held(directory: Path) -> bool:
    try:
        lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # none, or not a file of ours
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _is_ours(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _remove_if_stale(directory: Path) -> bool:
    try:
        identity = directory.lstat()
        lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _remove_if_empty(directory)
    except OSError:  # a folder, say, or not ours: no run of ours made it
        return False
    try:
        if os.fstat(lock).st_size:
            return False  # a file of the user's that has this name: ours is empty
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        _remove(directory, identity)
        return not directory.exists()
    finally:
        os.close(lock)


def _remove_if_empty(directory: Path) -> bool:
    """Without a lock file it is newborn, or its owner died at once; a directory with content is not ours."""
    try:
        directory.rmdir()
    except OSError:
        return False
    return True
