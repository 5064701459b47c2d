"""Reads objects of a Mooncake store into registered host memory: all that a thread has in flight as one batch.

Mooncake has no request that is begun and asked after later, so a batch is brought, whole, while it is waited for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.mooncake.mooncake_client import (
    INSTALL,
    INVALID,
    NOT_FOUND,
    NOTHING_UNDER_WAY,
    OPTIONS,
    is_installed,
    read_mooncake,
    say,
    shared_client,
)
from kvio.backends.mooncake.mooncake_master import find_master
from kvio.backends.mooncake.mooncake_placement import Keys, MooncakePlacement, Placed
from kvio.backends.s3.bucket import ObjectError
from kvio.backends.selftest_process import try_reading
from kvio.protocol import NO_LIMIT, Arrival, HostTarget, KVIOError, Read, ShortReadError, Target, Unavailable

MAX_IN_FLIGHT = 128  # jobs
READS_AT_ONCE = NO_LIMIT
REMEDY = "--option master=HOST:PORT of a running store, or no master for a store of the run's own"
_KEPT: list[
    memoryview
] = []  # memory that a transfer which failed may still write into; until this process ends


@dataclass(frozen=True, slots=True)
class _Request:
    """A read as the store is asked for it."""

    read: Read
    target: HostTarget
    part: Placed

    @property
    def start(self) -> int:
        """In the object."""
        return self.read.file_offset - self.part.start

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.read.num_bytes == self.part.num_bytes

    @property
    def address(self) -> int:
        return self.target.address + self.read.buffer_offset


class MooncakeBackend:
    """One for each thread; all of a process share one client.

    Args:
        setting: queue_depth, directory, packed_bytes and options.

    Raises:
        KVIOError: Mooncake is not installed, an option is wrong, or the store does not answer.
    """

    name = "mooncake"
    reads_at_once: int | None = READS_AT_ONCE
    notices: tuple[str, ...] = ()

    def __init__(self, setting: BackendConfig) -> None:
        address = read_mooncake(setting.options)
        self.queue_depth = max(1, setting.queue_depth)
        self._client = shared_client(address, find_master(address, setting.directory))
        self._keys = Keys(address.prefix, setting.packed_bytes)
        self._sizes: dict[Path, int] = {}
        self._submitted: dict[int, tuple[Sequence[Read], HostTarget]] = {}
        self._registered: list[HostTarget] = []
        self._done: set[str] = set()

    def attach(self, targets: Sequence[Target]) -> None:
        """Register every target.

        Raises:
            KVIOError: it is refused.
        """
        for target in targets:
            host = _require_host(target)
            self._client.register(host)
            self._registered.append(host)

    def open(self, path: Path) -> None:
        """Find out the size of the file that the objects were placed from; asks no server.

        Raises:
            KVIOError: the file is gone.
        """
        if path in self._sizes:
            return
        try:
            self._sizes[path] = path.stat().st_size
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}") from error

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Keep the job for `wait`."""
        self._submitted[ticket] = (reads, _require_host(target))

    def wait(self) -> Sequence[Arrival]:
        """Bring every job that was submitted.

        Raises:
            ShortReadError: an object ends before a read does.
            KVIOError: a request failed.
        """
        if not self._submitted:
            raise KVIOError(f"{self.name}: nothing is in flight")
        jobs, self._submitted = self._submitted, {}
        requests = [
            _Request(read, target, self._find(read)) for reads, target in jobs.values() for read in reads
        ]
        self._bring([request for request in requests if request.whole], whole=True)
        self._bring([request for request in requests if not request.whole], whole=False)
        return [Arrival(ticket, sum(read.num_bytes for read in reads)) for ticket, (reads, _) in jobs.items()]

    def _find(self, read: Read) -> Placed:
        return self._keys.find(read.path, read.file_offset, size_bytes=self._sizes[read.path])

    def _bring(self, requests: Sequence[_Request], *, whole: bool) -> None:
        if not requests:
            return
        keys = [request.part.key for request in requests]
        addresses = [request.address for request in requests]
        if whole:
            results = self._client.get_whole(
                keys, addresses, [request.read.num_bytes for request in requests]
            )
        else:
            ranges = [(request.start, request.read.num_bytes) for request in requests]
            results = self._client.get_ranges(keys, addresses, ranges)
        failed = [pair for pair in zip(requests, results, strict=True) if pair[1] != pair[0].read.num_bytes]
        _KEPT.extend(
            found.target.view for found, code in failed if code < 0 and code not in NOTHING_UNDER_WAY
        )
        if failed:
            raise self._failed(*failed[0])
        self._done.add("whole" if whole else "ranged")

    def _failed(self, request: _Request, result: int) -> KVIOError:
        """A short read where the object is shorter than was asked; Mooncake says that nothing of it is valid then."""
        read, size_bytes = request.read, request.part.num_bytes
        if result >= 0:
            return _short(read, result)
        if result == INVALID:
            found = self._client.size_bytes(request.part.key)
            size_bytes = size_bytes if found is None else found
        empty = result == NOT_FOUND and size_bytes == 0  # of an empty file there is no object
        if (empty or result == INVALID) and size_bytes < request.start + read.num_bytes:
            return _short(read, max(0, size_bytes - request.start))
        if result == INVALID and size_bytes != request.part.num_bytes:
            return ObjectError(
                f"{self._client.name}: {request.part.key}: {size_bytes} bytes, {request.part.num_bytes} were placed"
            )
        return ObjectError(f"{self._client.name}: {request.part.key}: {say(result)}")

    def take_way(self) -> str | None:
        """The transport that this process opened, and how objects were read since last asked; None when none was."""
        done, self._done = self._done, set()
        if not done:
            return None
        return f"mooncake-{self._client.transport}-{'mixed' if len(done) > 1 else next(iter(done))}"

    def shut(self, path: Path) -> None:
        """Forget the file."""
        self._sizes.pop(path, None)

    def drain(self) -> None:
        """Forget what was never begun: what was, has ended."""
        self._submitted = {}

    def close(self) -> None:
        """Forget every file, deregister the targets; safe to call twice."""
        self.drain()
        self._sizes.clear()
        while self._registered:
            self._client.deregister(self._registered.pop())


def _short(read: Read, arrived: int) -> ShortReadError:
    return ShortReadError(
        f"{read.path}: {arrived} of {read.num_bytes} bytes at offset {read.file_offset}, the end of the object"
    )


def _require_host(target: Target) -> HostTarget:
    if not isinstance(target, HostTarget):
        raise KVIOError("mooncake reads into host memory only")
    return target


def try_mooncake(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Why the store cannot be read; None where it can.  A store is started where none is named."""
    if not is_installed():
        return Unavailable("mooncake is not installed", INSTALL)
    return try_reading("mooncake", directory, options, remedy=REMEDY)


MOONCAKE = BackendKind(
    "objects of a Mooncake store, a batch at a time in each thread",
    MooncakeBackend,
    max_in_flight=MAX_IN_FLIGHT,
    reads_at_once=READS_AT_ONCE,
    options=OPTIONS,
    placement=MooncakePlacement,
    server=read_mooncake,
    probe=try_mooncake,
)
