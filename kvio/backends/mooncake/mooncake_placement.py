"""Chunk objects in a Mooncake store: placed once for a run, and gone with it.

An object is what the stack would put there: a chunk, or its layers or roles, also where files hold several of them.
A key is `<prefix>/<owner>/<scratch directory>/<store>/<file>`, in a larger file with `@<number>`.  Mooncake lists no
keys but removes by pattern, so the owner, a digest of machine and folder, stands in the key: the next run in that
folder removes whatever is below its own digest and belongs to no scratch directory that is there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvio.backends.mooncake.mooncake_client import (
    MooncakeAddress,
    StoreClient,
    close_clients,
    read_mooncake,
    say,
    shared_client,
)
from kvio.backends.mooncake.mooncake_master import OwnMaster, StoreSegment, find_master
from kvio.backends.s3.bucket import ObjectError
from kvio.backends.s3.object_placement import describe_owner, digest, object_key, scratch_of
from kvio.layout.object_places import CONTAINER_PREFIX
from kvio.protocol import HostTarget, KVIOError, make_host_target
from kvio.store import scratch

OWNER_DIGITS = 16
POISON = 0xA5


@dataclass(frozen=True, slots=True)
class Placed:
    """An object, and where in a file its bytes are."""

    key: str
    start: int
    num_bytes: int


class Keys:
    """The keys of a store's objects.

    Args:
        prefix: before all.
        packed_bytes: of each object in a file that holds several; None where each has a file of its own.
    """

    def __init__(self, prefix: str, packed_bytes: int | None) -> None:
        self._prefix = prefix
        self._packed_bytes = packed_bytes

    def find(self, path: Path, offset: int, *, size_bytes: int) -> Placed:
        """The object that holds the byte at `offset` of a file of `size_bytes`."""
        key = object_key(path, owned_prefix(self._prefix, scratch_of(path).parent))
        packed = self._packed_bytes
        if packed is None or not path.name.startswith(CONTAINER_PREFIX):
            return Placed(key, 0, size_bytes)
        number = offset // packed
        start = number * packed
        return Placed(f"{key}@{number:04d}", start, min(packed, size_bytes - start))

    def all_of(self, path: Path, size_bytes: int) -> Iterator[Placed]:
        """Every object of a file; none of an empty one, for Mooncake keeps no empty objects."""
        offset = 0
        while offset < size_bytes:
            found = self.find(path, offset, size_bytes=size_bytes)
            yield found
            offset += found.num_bytes


@cache
def _owner(folder: Path) -> str:
    return describe_owner(folder)[:OWNER_DIGITS] if folder.is_dir() else "nobody"


def owned_prefix(prefix: str, folder: Path) -> str:
    """What the keys of all runs in a folder begin with."""
    return "/".join([*([prefix] if prefix else []), _owner(folder)])


class MooncakePlacement:
    """Objects of the files below `root`, a scratch directory or a folder in one.

    Args:
        options: of the backend.
        root: everything below it is this placement's, and nothing else.

    Raises:
        KVIOError: an option is wrong, or `root` is in no scratch directory.
    """

    def __init__(self, options: Mapping[str, str], root: Path) -> None:
        self._address: MooncakeAddress = read_mooncake(options)
        self._root = root
        self._scratch = scratch_of(root)
        self._master: OwnMaster | None = None
        self._segments: list[StoreSegment] = []
        self._may_hold = False  # objects in a store that outlives the run
        self.name = f"{self._address.name}, {self._address.prefix}"

    def _client(self) -> StoreClient:
        return shared_client(self._address, find_master(self._address, self._root))

    def open(self) -> None:
        """Start a store where none is named; else remove what dead runs of this folder left in it.

        Raises:
            KVIOError: it cannot be started, or does not answer.
        """
        if self._address.master is None:
            self._master = OwnMaster(self._scratch)
            return
        client = self._client()  # may take seconds, in which other runs begin: they must be found living
        self._may_hold = True  # whatever this run puts there, by any of its processes
        folder = self._scratch.parent
        living = [path.name for path in folder.glob(f"{scratch.PREFIX}*")]
        client.remove_below(owned_prefix(self._address.prefix, folder), but=living)

    def upload(
        self,
        paths: Sequence[Path],
        *,
        packed_bytes: int | None = None,
        before_each: Callable[[], None] | None = None,
    ) -> None:
        """Put the objects of these files, each by one request, and bring each back to compare.

        Raises:
            KVIOError: a file cannot be read, the store is full, or other bytes came back.
        """
        keys = Keys(self._address.prefix, packed_bytes)
        placed = {path: tuple(keys.all_of(path, _size_of(path))) for path in paths}
        sizes = [part.num_bytes for parts in placed.values() for part in parts]
        if not sizes:
            return
        if self._address.master is None:
            master = find_master(self._address, self._root)
            self._segments.append(StoreSegment(master, sum(sizes), folder=self._scratch))
        client = self._client()
        self._may_hold = True
        with ExitStack() as registered:
            source, back = make_host_target(max(sizes)), make_host_target(max(sizes))
            for target in (source, back):
                client.register(target)
                registered.callback(client.deregister, target)
            for path, parts in placed.items():
                if before_each is not None:
                    before_each()
                for part in parts:
                    _fill(source, path, part)
                    _put(client, part, source=source, back=back)

    def remove(self) -> None:
        """Remove every object below the root's key, and end what was started.

        Raises:
            KVIOError: the store does not answer.
        """
        try:
            # a store that ends now needs no tidying
            if self._may_hold and self._master is None:
                client = self._client()
                client.remove_below(
                    object_key(self._root, owned_prefix(self._address.prefix, self._scratch.parent))
                )
            self._may_hold = False
        finally:
            self._end()

    def _end(self) -> None:
        master, self._master = self._master, None
        if master is not None:
            close_clients(master.address)  # while it answers
            master.stop()
        while self._segments:
            segment = self._segments.pop()
            segment.leave() if master is None else segment.stop()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise KVIOError(f"{path}: {error.strerror}") from error


def _fill(source: HostTarget, path: Path, part: Placed) -> None:
    try:
        with path.open("rb") as file:
            file.seek(part.start)
            arrived = file.readinto(source.view[: part.num_bytes])
    except OSError as error:
        raise KVIOError(f"{path}: {error.strerror}") from error
    if arrived != part.num_bytes:
        raise KVIOError(f"{path}: {arrived} of {part.num_bytes} bytes at offset {part.start}")


def _put(client: StoreClient, part: Placed, *, source: HostTarget, back: HostTarget) -> None:
    client.put(part.key, source, part.num_bytes)
    back.view[: part.num_bytes] = bytes([POISON]) * part.num_bytes
    (arrived,) = client.get_whole([part.key], [back.address], [part.num_bytes])
    if arrived != part.num_bytes:
        found = say(arrived) if arrived < 0 else f"{arrived} bytes"
        raise ObjectError(f"{client.name}: {part.key}: came back of {part.num_bytes} bytes placed: {found}")
    if digest(back.view[:arrived]) != digest(source.view[:arrived]):
        raise ObjectError(f"{client.name}: {part.key}: other bytes came back than were placed")
