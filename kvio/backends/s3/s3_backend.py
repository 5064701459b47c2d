"""Reads objects of an S3 server, whole or by ranges, into host memory; `bucket` says by which library and why."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvio.backends.blocking import blocking
from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.s3.bucket import INSTALL, OPTIONS, Bucket, load_obstore, read_address
from kvio.backends.s3.object_placement import BucketPlacement, object_key
from kvio.protocol import KVIOError, Read, Unavailable

WHOLE, RANGED, MIXED = "s3-whole", "s3-ranged", "s3-mixed"


class S3Reader:
    """Reads one object at a time in each thread; queue depth is the number of threads.

    A read of all bytes of an object is a GET without a range; every other is a ranged GET.
    """

    name = "s3"

    def __init__(self, setting: BackendConfig) -> None:
        address = read_address(setting.options)
        self._bucket = Bucket(address)
        self._prefix = address.prefix
        self._opened: dict[Path, tuple[str, int]] = {}
        self._done: set[str] = set()

    def open(self, path: Path) -> None:
        """Work out the object's key, and its size from the local file that it was placed from; asks no server.

        Raises:
            KVIOError: the file is gone.
        """
        if path in self._opened:
            return
        try:
            size_bytes = path.stat().st_size
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}") from error
        self._opened[path] = (object_key(path, self._prefix), size_bytes)

    def read(self, reads: Sequence[Read], target: memoryview) -> int:
        """Bytes that arrived in `target`.

        Raises:
            ShortReadError: the object ends before a read does.
            KVIOError: a request failed; none is tried twice.
        """
        return sum(self._read(read, target) for read in reads)

    def _read(self, read: Read, target: memoryview) -> int:
        key, size_bytes = self._opened[read.path]
        whole = read.file_offset == 0 and read.num_bytes == size_bytes
        part = target[read.buffer_offset : read.buffer_offset + read.num_bytes]
        self._bucket.read_into(key, read.file_offset, target=part, whole=whole)
        self._done.add(WHOLE if whole else RANGED)
        return read.num_bytes

    def take_way(self) -> str | None:
        """How objects were read since last asked; None when none was."""
        done, self._done = self._done, set()
        return MIXED if len(done) > 1 else next(iter(done), None)

    def shut(self, path: Path) -> None:
        """Forget the object."""
        self._opened.pop(path, None)

    def close(self) -> None:
        """Forget every object; connections go with the bucket."""
        self._opened.clear()


def probe_objects(directory: Path, options: Mapping[str, str], *, backend: str = "s3") -> Unavailable | None:
    """Whether the bucket can be listed; without a bucket named, whether the library is there at all.

    Args:
        directory: of the files; not looked at.
        options: the backend's own.
        backend: that the remedy names.
    """
    try:
        load_obstore()
    except KVIOError:
        return Unavailable("obstore is not installed", INSTALL)
    try:
        address = read_address(options)
        Bucket(address).list_folders(address.prefix)
    except KVIOError as error:
        return Unavailable(
            str(error).partition("; try --option")[0],  # the remedy names all of them
            f"--backend {backend} --option endpoint=http://127.0.0.1:8333 --option bucket=kvcross",
        )
    return None


S3 = BackendKind(
    "objects of an S3 server, a GET at a time in each thread",
    blocking(S3Reader),
    options=OPTIONS,
    placement=BucketPlacement,
    server=read_address,
    probe=probe_objects,
)
