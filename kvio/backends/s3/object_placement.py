"""Chunk files as objects in a bucket: placed once for a run, and gone with it.

A key is `<prefix>/<scratch directory>/<store>/<file>`, so that two runs never meet, and so that what a killed run
left behind can be told from what belongs to one that lives: each run leaves a mark under its scratch directory's
name that says on which machine and in which folder that directory is.  The next run in that folder removes objects
whose directory is gone.  Objects of other machines and folders are left alone, and so are those without a mark.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from kvio.backends.s3.bucket import Bucket, ObjectError, read_address
from kvio.os_errors import thread_limit_errors
from kvio.protocol import KVIOError
from kvio.store import scratch
from kvio.store.store_files import os_errors_as_store_errors

NUM_PLACERS = 4
MARK = "owner"
MACHINE_ID = Path("/etc/machine-id")


def object_key(path: Path, prefix: str) -> str:
    """The key of a chunk file: `prefix`, then its path from the scratch directory on.

    Raises:
        KVIOError: it lies in no scratch directory.
    """
    below = path.relative_to(scratch_of(path).parent)
    return "/".join([*([prefix] if prefix else []), *below.parts])


def scratch_of(path: Path) -> Path:
    """The scratch directory that `path` is, or lies in.

    Raises:
        KVIOError: there is none.
    """
    for found in (path, *path.parents):
        if found.name.startswith(scratch.PREFIX):
            return found
    raise KVIOError(f"{path}: not in a scratch directory of a run, so it has no key")


def describe_owner(folder: Path) -> str:
    """A digest of this machine and folder, which names neither."""
    machine = MACHINE_ID.read_text().strip() if MACHINE_ID.is_file() else ""
    with os_errors_as_store_errors(folder):
        facts = os.statvfs(folder), folder.stat().st_ino
    text = f"{machine}\n{folder.resolve()}\n{facts[0].f_fsid}\n{facts[1]}"
    return hashlib.sha256(text.encode()).hexdigest()


class BucketPlacement:
    """Objects of the files below `root`, a scratch directory or a folder in one.

    Args:
        options: of the backend: endpoint, bucket, region, prefix.
        root: everything below it is this placement's, and nothing else.

    Raises:
        KVIOError: obstore is not installed, no bucket is named, or `root` is in no scratch directory.
    """

    def __init__(self, options: Mapping[str, str], root: Path) -> None:
        self._address = read_address(options)
        self._bucket = Bucket(self._address)
        self._root = root
        self._folder = object_key(root, self._address.prefix)
        self.name = f"{self._address.name}, {self._address.prefix}"

    def open(self) -> None:
        """Remove what dead runs of this folder left, then leave this run's mark.

        Listing comes first: some servers make a bucket of a misspelt name when something is put into it.

        Raises:
            ObjectError: the bucket is not there, or does not permit it.
        """
        parent = self._root.parent
        owner = describe_owner(parent)
        for name in self._bucket.list_folders(self._address.prefix):
            if name.startswith(scratch.PREFIX) and not (parent / name).exists():
                self._remove_if_owned(object_key(parent / name, self._address.prefix), owner)
        self._bucket.write(f"{self._folder}/{MARK}", owner.encode())

    def _remove_if_owned(self, folder: str, owner: str) -> None:
        if self._bucket.read(f"{folder}/{MARK}") == owner.encode():
            self._remove(folder)

    def _remove(self, folder: str) -> None:
        """Remove all below `folder`, the mark last: a kill on the way leaves what the next run recognises."""
        mark = f"{folder}/{MARK}"
        found = self._bucket.list_keys(folder)
        self._bucket.remove([key for key in found if key != mark])
        self._bucket.remove([key for key in found if key == mark])

    def upload(
        self,
        paths: Sequence[Path],
        *,
        packed_bytes: int | None = None,
        before_each: Callable[[], None] | None = None,
    ) -> None:
        """Upload these files, each by one request, and read each back to compare.

        Raises:
            KVIOError: a file cannot be read, a request failed, or other bytes came back.
        """

        def place(path: Path) -> None:
            if before_each is not None:
                before_each()
            self._place(path)

        with (
            thread_limit_errors(f"{NUM_PLACERS} placing threads"),
            ThreadPoolExecutor(NUM_PLACERS, thread_name_prefix="kvio-place") as pool,
        ):
            try:
                for _ in pool.map(place, paths):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _place(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}") from error
        key = object_key(path, self._address.prefix)
        self._bucket.write(key, content)
        back = self._bucket.read(key)
        if back is None or len(back) != len(content):
            found = "nothing" if back is None else f"{len(back)} bytes"
            raise ObjectError(
                f"{self._address.name}: {key}: {found} came back of {len(content)} bytes placed"
            )
        if digest(back) != digest(content):
            raise ObjectError(f"{self._address.name}: {key}: other bytes came back than were placed")

    def remove(self) -> None:
        """Remove every object below the root's key.

        Raises:
            ObjectError: the server does not answer, or does not permit it.
        """
        self._remove(self._folder)


def digest(content: bytes | memoryview) -> str:
    """A hash that tells objects of other bytes apart."""
    return str(xxhash.xxh3_128_hexdigest(content))
