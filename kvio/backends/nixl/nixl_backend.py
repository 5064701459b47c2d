"""Reads through NIXL: files by its POSIX or GDS_MT plugin, objects of an S3 server by its OBJ plugin.

All reads of a job go to NIXL as one list, and it keeps them in flight together.  Transfers make progress only while
they are asked after, so waiting for them is polling.

Finds reads that are said to be done and are not: a random mark at the end of each destination must be gone.
"""

import errno
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kvio.backends.config import BackendConfig, BackendKind
from kvio.backends.local.file_handles import OpenedFiles
from kvio.backends.local.posix import require_aligned
from kvio.backends.nixl.nixl_plugin import (
    INSTALL,
    POSIX_OPTIONS,
    SEEN_OF,
    Plugin,
    count_traces,
    load_nixl,
    make_agent,
    one_line,
    plugin_parameters,
    read_queue,
)
from kvio.backends.s3.bucket import OPTIONS as BUCKET_OPTIONS
from kvio.backends.s3.bucket import Bucket, read_address
from kvio.backends.s3.object_placement import BucketPlacement, object_key
from kvio.backends.s3.s3_backend import probe_objects
from kvio.backends.selftest_process import try_reading
from kvio.protocol import NO_LIMIT, Arrival, HostTarget, KVIOError, Read, ShortReadError, Target, Unavailable

MARK = secrets.token_bytes(16)  # of this process: that stored bytes end in it by chance does not happen


def write_sentinels(reads: Sequence[Read], view: memoryview) -> None:
    """Write the mark where the last bytes of each read are to arrive."""
    for read in reads:
        end = read.buffer_offset + read.num_bytes
        mark = MARK[: read.num_bytes]
        view[end - len(mark) : end] = mark


def find_marked(reads: Sequence[Read], view: memoryview) -> Read | None:
    """The first read whose last bytes never arrived; None when all did."""
    for read in reads:
        end = read.buffer_offset + read.num_bytes
        mark = MARK[: read.num_bytes]
        if mark and view[end - len(mark) : end] == mark:
            return read
    return None


MAX_IN_FLIGHT = 64  # jobs
READS_AT_ONCE = NO_LIMIT
QUEUE_REMEDY = "another --option queue=, or --backend posix"
GPU_REMEDY = "a machine with an NVIDIA GPU, a CUDA torch, and GPUDirect Storage"
NAMES: dict[Plugin, str] = {"POSIX": "nixl", "GDS_MT": "nixl-gds", "OBJ": "nixl-obj"}


@dataclass(slots=True)
class _Source:
    """A file or object that NIXL knows: its number in descriptors, its registration, its size."""

    number: int
    registration: Any
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Flight:
    handle: Any
    reads: tuple[Read, ...]
    target: Target
    error: BaseException | None  # of the beginning; told when it is waited for, as the others are


class NixlBackend:
    """One agent for each thread; its targets are registered once and deregistered when it is closed.

    Args:
        setting: direct, queue_depth and options.
        plugin: POSIX and OBJ read into host memory, GDS_MT into device memory.

    Raises:
        KVIOError: NIXL is not installed, an option is wrong, or the plugin cannot be made.
    """

    reads_at_once: int | None = READS_AT_ONCE
    notices: tuple[str, ...] = ()

    def __init__(self, setting: BackendConfig, plugin: Plugin) -> None:
        self.name = NAMES[plugin]
        self.queue_depth = max(1, setting.queue_depth)
        self._plugin = plugin
        self._direct = setting.direct and plugin != "OBJ"
        self._address = read_address(setting.options) if plugin == "OBJ" else None
        self._files = OpenedFiles(direct=self._direct)
        self._sources: dict[Path, _Source] = {}
        self._in_flight: dict[int, _Flight] = {}
        self._targets: Any = None
        self._next_object = 0
        self._has_read = False
        wheel = load_nixl()
        self._errors = wheel.errors
        queue = read_queue(setting.options) if plugin == "POSIX" else ""
        before = count_traces(queue)
        self._agent = make_agent(
            wheel,
            plugin,
            name=f"kvcross-{os.getpid()}-{id(self)}",
            parameters=plugin_parameters(queue, self._address),
        )
        self._way = self._find_way(queue, before)

    def _find_way(self, queue: str, before: int) -> str:
        """The queue as seen in this process, where it leaves a trace; what NIXL was asked for proves nothing."""
        if self._plugin != "POSIX":
            return self.name
        if queue in SEEN_OF and count_traces(queue) <= before:
            return f"{self.name}-posix-unknown"
        return f"{self.name}-posix-{queue}"

    def attach(self, targets: Sequence[Target]) -> None:
        """Register every target with one call.

        Raises:
            KVIOError: it is refused.
        """
        memory = "VRAM" if self._plugin == "GDS_MT" else "DRAM"
        parts = [(target.address, target.num_bytes, self._device(target), "") for target in targets]
        self._targets = self._register(parts, memory, f"{len(parts)} buffers")

    @staticmethod
    def _device(target: Target) -> int:
        tensor = getattr(target, "tensor", None)
        return 0 if tensor is None or tensor.device.index is None else int(tensor.device.index)

    def _register(self, parts: Sequence[tuple[int, int, int, str]], memory: str, what: str) -> Any:  # noqa: ANN401
        try:
            return self._agent.register_memory(list(parts), memory, backends=[self._plugin])
        except self._errors as error:
            raise KVIOError(f"{self.name}: {what} cannot be registered: {one_line(error)}") from None

    def open(self, path: Path) -> None:
        """Open the file, or work out the object's key, and register it.

        Raises:
            KVIOError: gone, not permitted, O_DIRECT refused, or refused by NIXL.
        """
        if path in self._sources:
            self._sources[path] = self._sources.pop(path)  # used last, so shut last
            return
        while self._files.is_full(len(self._sources)) and self._shut_oldest():
            pass
        try:
            size_bytes = path.stat().st_size
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        except OSError as error:
            raise KVIOError(f"{path}: {error.strerror}") from error
        if self._address is not None:
            self._next_object += 1
            number, key, memory = self._next_object, object_key(path, self._address.prefix), "OBJ"
        else:
            self._files.open(path)
            number, key, memory = self._files.descriptor(path), "", "FILE"
        registration = self._register([(0, size_bytes, number, key)], memory, str(path))
        self._files.hold(path)  # NIXL knows its descriptor
        self._sources[path] = _Source(number, registration, size_bytes)

    def _shut_oldest(self) -> bool:
        """False where all are being read."""
        busy = {read.path for flight in self._in_flight.values() for read in flight.reads}
        oldest = next((path for path in self._sources if path not in busy), None)
        if oldest is None:
            return False
        self.shut(oldest)
        return True

    def submit(self, ticket: int, reads: Sequence[Read], target: Target) -> None:
        """Hand all reads of a job over; NIXL begins them at once.

        Raises:
            KVIOError: not aligned as O_DIRECT needs.
        """
        if self._direct:
            require_aligned(reads, target.address)
        memory = "VRAM" if self._plugin == "GDS_MT" else "DRAM"
        device = self._device(target)
        if isinstance(target, HostTarget) and self._address is not None:
            write_sentinels(reads, target.view)  # the OBJ plugin says "done" of objects that end too early
        local = [(target.address + read.buffer_offset, read.num_bytes, device) for read in reads]
        remote = [(read.file_offset, read.num_bytes, self._sources[read.path].number) for read in reads]
        kind = "OBJ" if self._address is not None else "FILE"
        handle, error = self._begin(self._agent.get_xfer_descs(local, memory), remote, kind)
        self._in_flight[ticket] = _Flight(handle, tuple(reads), target, error)

    def _begin(
        self,
        local: Any,  # noqa: ANN401 - an untyped package
        remote: Sequence[tuple[int, int, int]],
        kind: str,
    ) -> tuple[Any, BaseException | None]:
        """The transfer's handle, None where it was refused, and what went wrong: told when it is waited for."""
        handle = None
        try:
            found = self._agent.get_xfer_descs(list(remote), kind)
            handle = self._agent.initialize_xfer(
                "READ", local, found, self._agent.name, backends=[self._plugin]
            )
            self._agent.transfer(handle)
        except self._errors as error:
            return handle, error
        return handle, None

    def wait(self) -> Sequence[Arrival]:
        """Ask after every transfer until one has arrived.

        Raises:
            ShortReadError: a file or object ends before a read does.
            KVIOError: a transfer failed; NIXL does not say why.
        """
        if not self._in_flight:
            raise KVIOError(f"{self.name}: nothing is in flight")
        while True:
            arrived = [ticket for ticket, flight in self._in_flight.items() if self._has_arrived(flight)]
            if arrived:
                return [self._take(ticket) for ticket in arrived]
            os.sched_yield()  # lets other threads of this process go on

    def _has_arrived(self, flight: _Flight) -> bool:
        if flight.error is not None:
            raise self._failed(flight.reads, flight.error)
        try:
            state = self._agent.check_xfer_state(flight.handle)
        except self._errors as error:
            raise self._failed(flight.reads, error) from None
        if state not in {"DONE", "PROC"}:
            raise self._failed(flight.reads, KVIOError(str(state)))
        return bool(state == "DONE")

    def _take(self, ticket: int) -> Arrival:
        flight = self._in_flight.pop(ticket)
        flight.handle.release()
        if isinstance(flight.target, HostTarget) and self._address is not None:
            marked = find_marked(flight.reads, flight.target.view)
            if marked is not None:
                raise self._failed([marked], KVIOError("it said done, and its last bytes never arrived"))
        self._has_read = True
        return Arrival(ticket, sum(read.num_bytes for read in flight.reads))

    def _failed(self, reads: Sequence[Read], error: BaseException) -> KVIOError:
        """A short read where a file has become shorter; NIXL itself tells the two apart in its log only."""
        for read in reads:
            size_bytes = self._size_now(read)
            if size_bytes is not None and size_bytes < read.file_offset + read.num_bytes:
                arrived = max(0, size_bytes - read.file_offset)
                return ShortReadError(
                    f"{read.path}: {arrived} of {read.num_bytes} bytes at offset {read.file_offset}, the end"
                )
        where = f"; object in {self._address.name}" if self._address is not None else ""
        return KVIOError(
            f"{reads[0].path}: {self.name} could not read {reads[0].num_bytes} bytes at offset "
            f"{reads[0].file_offset}{where}: {one_line(error)}"
        )

    def _size_now(self, read: Read) -> int | None:
        if read.path not in self._sources:
            return None
        if self._address is not None:
            return Bucket(self._address).size_bytes(object_key(read.path, self._address.prefix))
        return os.fstat(self._files.descriptor(read.path)).st_size

    def take_way(self) -> str | None:
        """Plugin and queue as seen; how the OBJ plugin words its requests is not."""
        has_read, self._has_read = self._has_read, False
        return self._way if has_read else None

    def shut(self, path: Path) -> None:
        """Deregister and close, unless a job in flight reads it."""
        if any(read.path == path for flight in self._in_flight.values() for read in flight.reads):
            return
        source = self._sources.pop(path, None)
        if source is not None:
            self._agent.deregister_memory(source.registration, backends=[self._plugin])
            self._files.let_go(path)
        self._files.shut(path)

    def drain(self) -> None:
        """Wait for every transfer, whatever comes of it."""
        while self._in_flight:
            _, flight = self._in_flight.popitem()
            while self._is_under_way(flight):
                os.sched_yield()
            if flight.handle is not None:
                flight.handle.release()

    def _is_under_way(self, flight: _Flight) -> bool:
        if flight.error is not None:
            return False
        try:
            return bool(self._agent.check_xfer_state(flight.handle) == "PROC")
        except self._errors:  # it has ended, badly; who drains has an error to tell already
            return False

    def close(self) -> None:
        """Drain, deregister and close files, deregister the targets; safe to call twice."""
        self.drain()
        for path in list(self._sources):
            self.shut(path)
        self._files.close()
        targets, self._targets = self._targets, None
        if targets is not None:
            self._agent.deregister_memory(targets, backends=[self._plugin])
        self._agent = None  # its queue goes with it


def try_nixl(
    directory: Path, options: Mapping[str, str], *, plugin: Plugin = "POSIX", remedy: str = QUEUE_REMEDY
) -> Unavailable | None:
    """Why the plugin cannot read; None where it can.

    NIXL lists plugins that cannot load, and creates backends that cannot read: only a transfer is proof.
    """
    try:
        load_nixl()
    except KVIOError:
        return Unavailable("nixl is not installed", INSTALL)
    return try_reading(NAMES[plugin], directory, options, remedy=remedy)


def try_objects(directory: Path, options: Mapping[str, str]) -> Unavailable | None:
    """Why the OBJ plugin cannot read; None where it can.  obstore uploads the objects."""
    try:
        load_nixl()
    except KVIOError:
        return Unavailable("nixl is not installed", INSTALL)
    return probe_objects(directory, options, backend="nixl-obj") or try_nixl(directory, options, plugin="OBJ")


NIXL = BackendKind(
    "files, NIXL's POSIX plugin",
    partial(NixlBackend, plugin="POSIX"),
    max_in_flight=MAX_IN_FLIGHT,
    reads_at_once=READS_AT_ONCE,
    options=POSIX_OPTIONS,
    probe=try_nixl,
)
NIXL_GDS = BackendKind(
    "files into a GPU, NIXL's GDS_MT plugin",
    partial(NixlBackend, plugin="GDS_MT"),
    target_memory="device",
    max_in_flight=MAX_IN_FLIGHT,
    reads_at_once=READS_AT_ONCE,
    needs_gpu=True,
    probe=partial(try_nixl, plugin="GDS_MT", remedy=GPU_REMEDY),
)
NIXL_OBJ = BackendKind(
    "objects of an S3 server, NIXL's OBJ plugin",
    partial(NixlBackend, plugin="OBJ"),
    max_in_flight=MAX_IN_FLIGHT,
    reads_at_once=READS_AT_ONCE,
    options=BUCKET_OPTIONS,
    placement=BucketPlacement,
    server=read_address,
    probe=try_objects,
)
